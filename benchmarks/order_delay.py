"""What an order constraint costs: how long rows stay in the operator, over a database with 50 ms round trips and 80 % hits.

``python -m benchmarks.order_delay`` prints the table of docs/order.md and draws its plot: medians of several runs of each cell. A
paced source sends batches of 1,000 rows; each row is stamped when the operator reads it, when it leaves the operator, and when the
next operator gets it from Spark. Every run begins with rows that are not counted, in the same worker: their misses open the
connections and put the hot keys into the cache.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.sql.types import LongType, StructField, StructType

from benchmarks.setting import _server
from srj import Disorder, Table
from srj.enrich import plan_for
from srj.experiments.delay_proxy import delayed
from srj.experiments.local_session import local_session
from srj.operators import out_of_order
from srj.options import parse_options

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

    from srj.operators.plan import Plan

_ROOT = Path(__file__).resolve().parent.parent
BATCH, HOT = 1_000, 5_000
# Every hot key, and then again: the second time the lookups of the first have answered before the counted rows come.
WARM = 2 * HOT
EACH_WAY = 0.025
PACE = 0.010  # seconds between two batches: 100,000 rows/s
PAUSE = 2.0  # seconds for the rows that are not counted, a dozen round trips for each new connection among them
ORDERS: dict[str, Any] = {
    "0": Disorder(max=0),
    "100": Disorder(max=100),
    "1,000": Disorder(max=1_000),
    "10,000": Disorder(max=10_000),
    "any": "any",
}


def stamped(batches: Iterator[pa.RecordBatch], column: int) -> Iterator[pa.RecordBatch]:
    """The batches, with the time in one column."""
    for batch in batches:
        columns = list(batch.columns)
        columns[column] = pa.array(np.full(batch.num_rows, time.monotonic_ns()))
        yield pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def paced(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Those that warm up at once; after a pause one batch at a time, none before its time."""
    yield from itertools.islice(batches, WARM // BATCH)
    begin = time.monotonic() + PAUSE
    for number, batch in enumerate(batches):
        time.sleep(max(0.0, begin + number * PACE - time.monotonic()))
        yield batch


def timed_join(plan: Plan) -> DataFrame:
    """The out-of-order operator, warmed up, with stamps in the stream's columns 2 (read) and 3 (left)."""
    fingerprint, payload, passage = plan.fingerprint, plan.payload, out_of_order._passage(plan)  # noqa: SLF001

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from srj.operators import worker  # noqa: PLC0415  in the worker

        for _ in worker.out_of_order(fingerprint, payload, passage, itertools.islice(batches, WARM // BATCH)):
            pass
        yield from stamped(worker.out_of_order(fingerprint, payload, passage, stamped(batches, 2)), 3)

    joined = out_of_order._numbered(plan).mapInArrow(run, out_of_order._schema(plan))  # noqa: SLF001
    return out_of_order._finish(joined, plan)  # noqa: SLF001


def measure(spark: SparkSession, table: Table, order: Any, rows: int, *, with_pace: bool) -> dict[str, float]:
    """One run over cold keys beside hot ones: seconds in all, milliseconds that hits stayed in the operator and after it."""
    # Four hot keys, then one that is asked for the first time.
    source = spark.range(-WARM, rows, 1, 1).selectExpr(
        f"if(id >= 0 AND id % 5 = 0, {HOT} + id div 5, pmod(id * 7919, {HOT})) AS key",
        "id % 5 <> 0 AS is_hot",
        "0L AS read",
        "0L AS left",
    )
    if with_pace:
        source = source.mapInArrow(paced, source.schema)
    plan = plan_for(source, table, "key", parse_options({"order": order, "ttl": None, "missing_ttl": None, "metrics": False}))
    joined = timed_join(plan).selectExpr("is_hot", "read", "left", "0L AS got")
    schema = StructType([*joined.schema.fields[:3], StructField("got", LongType())])
    found = joined.mapInArrow(lambda batches: stamped(batches, 3), schema).toArrow()
    if found.num_rows != rows:
        raise AssertionError(f"expected {rows} rows, got {found.num_rows}")
    result = {"seconds": (np.asarray(found["got"]).max() - np.asarray(found["read"]).min()) / 1e9}
    hot = found.filter(found["is_hot"])
    read, left, got = (np.asarray(hot[name]) / 1e6 for name in ("read", "left", "got"))
    for name, delay in (("operator", left - read), ("spark", got - read)):
        result |= {f"{name}_p50": float(np.percentile(delay, 50)), f"{name}_p99": float(np.percentile(delay, 99))}
    return result


def one_session(url: str, pipelined: bool, runs: int, rows: int) -> list[dict[str, Any]]:
    """All orders in one Spark session, for the setting can't change in it; each cell's medians."""
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(_ROOT), os.environ.get("PYTHONPATH")]))
    cells = list(itertools.product(ORDERS, (True, False)))
    measured: dict[tuple[str, bool], list[dict[str, float]]] = {cell: [] for cell in cells}
    with TemporaryDirectory(prefix="srj-order-") as folder:
        more = {
            "spark.python.udf.pipelined.enabled": str(pipelined).lower(),
            "spark.sql.execution.arrow.maxRecordsPerBatch": str(BATCH),
            "spark.log.level": "ERROR",
        }
        spark = local_session(Path(folder), 2, more)
        caches = (Table(url, ("items",), where=f"{number} >= 0") for number in itertools.count())  # one of its own for each run
        measure(spark, next(caches), "any", 10 * BATCH, with_pace=True)  # which warms Spark up
        for _ in range(runs):
            for name, with_pace in cells:
                measured[name, with_pace].append(measure(spark, next(caches), ORDERS[name], rows, with_pace=with_pace))
        spark.stop()
    return [
        {"pipelined": pipelined, "paced": with_pace, "order": name}
        | {figure: statistics.median(run[figure] for run in found) for figure in found[0]}
        for (name, with_pace), found in measured.items()
    ]


def main() -> None:
    """Both kinds of session, each in a process of its own, for Spark keeps static settings."""
    parser = argparse.ArgumentParser(description="What an order constraint costs.")
    parser.add_argument("--runs", type=int, default=3, help="of each cell, whose median counts (default: 3)")
    parser.add_argument("--rows", type=int, default=200_000, help="of the stream in each run (default: 200,000)")
    parser.add_argument("--plot", type=Path, default=_ROOT / "docs" / "order_delay.png", help="where to draw it")
    parser.add_argument("--session", nargs=2, metavar=("URL", "KIND"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.session:
        url, kind = given.session
        json.dump(one_session(url, kind == "pipelined", given.runs, given.rows), sys.stdout)
        return
    with _server() as server:
        server.execute(
            f"CREATE TABLE items AS SELECT id, 'item-' || lpad(id::text, 11, '0') AS name, id * 0.25::float8 AS price "
            f"FROM generate_series(0::bigint, {HOT + given.rows}) AS id; ALTER TABLE items RENAME id TO key; "
            "ALTER TABLE items ADD PRIMARY KEY (key)"
        )
        server.execute("VACUUM ANALYZE items")
        with delayed(server.host, server.port, EACH_WAY) as proxy:
            url = server.url.replace(f":{server.port}/", f":{proxy.port}/")
            results: list[dict[str, Any]] = []
            for kind in ("pipelined", "gathered"):
                command = [sys.executable, "-m", "benchmarks.order_delay", "--runs", str(given.runs), "--rows", str(given.rows)]
                done = subprocess.run([*command, "--session", url, kind], cwd=_ROOT, check=True, stdout=subprocess.PIPE, text=True)
                results += json.loads(done.stdout.splitlines()[-1])
    print_table(results)
    draw(results, given.plot)


def print_table(results: list[dict[str, Any]]) -> None:
    """In Markdown."""
    print("| Spark passes on | source | constraint | hits in the operator, p50 / p99 | to the next operator, p50 / p99 | total |")
    print("| --- | --- | --- | --- | --- | --- |")
    for row in results:
        spark = "each batch" if row["pipelined"] else "64 KB"
        source = "100,000 rows/s" if row["paced"] else "as fast as it can"
        print(
            f"| {spark} | {source} | {row['order']} | {row['operator_p50']:.1f} / {row['operator_p99']:.1f} ms "
            f"| {row['spark_p50']:.1f} / {row['spark_p99']:.1f} ms | {row['seconds']:.2f} s |"
        )


def draw(results: list[dict[str, Any]], path: Path) -> None:
    """The paced runs: delay by constraint."""
    import matplotlib as mpl  # noqa: PLC0415  only here

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415

    figure, axes = plt.subplots(figsize=(6, 3.5))
    names = list(ORDERS)
    for pipelined, colour in ((True, "tab:blue"), (False, "tab:orange")):
        rows = {row["order"]: row for row in results if row["paced"] and row["pipelined"] == pipelined}
        for percentile, style in (("p50", "-"), ("p99", "--")):
            label = f"{'pipelined' if pipelined else 'not pipelined'}, {percentile}"
            axes.plot(names, [rows[name][f"spark_{percentile}"] for name in names], style, color=colour, marker="o", label=label)
    axes.set(xlabel="order constraint (rows)", ylabel="delay of hits, ms", yscale="log")
    axes.legend(fontsize=8)
    axes.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    main()
