"""One way to join one stream with one table through Spark: its rate, its rows' delay, and what it costs.

One streaming query takes all micro-batches, from Parquet files of keys. Those of phase ``"warm"`` start JVM, workers, connections
and caches. Those of ``"rate"`` are as large as the way allows; from the first one's begin to the last one's end the server's
counts are taken. Those of ``"delay"`` have the same rows for all ways. Each phase ends when its time is over; what is left of it is
thrown away unread, and counts nowhere. Every row that comes out is compared with a plain join's, those of ``"warm"`` too.
"""

from __future__ import annotations

import os
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812  Spark's own convention

from srj.errors import ConnectionFailedError
from srj.experiments import peer_worker
from srj.experiments.experiment import Checksum, Measurement
from srj.experiments.jdbc import missing_driver
from srj.experiments.peer_stream import FILES, parts_of, write_parts
from srj.experiments.peer_ways import Relation, finisher, joined, settings_of
from srj.experiments.plain_join import added, plain_join
from srj.experiments.relation import ensure_relation, read_rows
from srj.experiments.server_usage import MemoryPeak, ServerUsage
from srj.table import DatabaseUrl

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import StreamingQuery

    from srj.experiments.peer_stream import Part
    from srj.experiments.peers import PeerCell
    from srj.experiments.server_usage import Usage

_LOW = 2**32 - 1
_NOW = "cast(reflect('java.lang.System', 'currentTimeMillis') as bigint)"  # of each row, for `now()` is one of the query
_TOO_LARGE = ("OutOfMemoryError", "Not enough memory to build and broadcast", "Cannot broadcast the table")


def measure(cell: PeerCell, url: str) -> Measurement:
    """Run the cell."""
    table = ensure_relation(url, cell.relation, indexed=True)
    parts = parts_of(cell.sizes(), hits=cell.hits, hot=cell.hot, relation=cell.relation, seed=cell.seed)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="srj-peers-")))
        counts = folder / "counts"
        counts.mkdir()
        write_parts(folder / "keys", parts)
        relation = Relation(url, table, cell.relation, cell.entries, counts)
        usage = stack.enter_context(ServerUsage(url, table))
        memory = stack.enter_context(MemoryPeak())
        spark = _session(folder, cell, url)
        stack.callback(spark.stop)
        run = _Run(cell, parts, relation, usage, spark)
        try:
            query = run.start(folder)
            while not query.awaitTermination(0.2):
                if run.is_over:  # what is left would only be thrown away
                    query.stop()
        except Exception as error:
            if cell.way == "broadcast join" and any(sign in f"{error}" for sign in _TOO_LARGE):
                why = f"the table of {cell.relation:,} rows does not fit into a broadcast with {cell.heap} of heap"
                return Measurement({"unfit": why}, Checksum(0, 0), Checksum(0, 0))
            raise
        figures = run.figures(query) | {"jvm_bytes": memory.jvm, "python_bytes": memory.python}
        if cell.way in ("one by one", "one by one, async", "a query per row"):
            figures["lookups_in_all"] = peer_worker.noted(counts)
        return Measurement(figures, added(run.outputs), run.plain_join(url, folder))


def _session(folder: Path, cell: PeerCell, url: str) -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["TZ"] = "UTC"
    os.environ[peer_worker.URL] = url
    more = settings_of(cell.way, url)
    settings = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.extraJavaOptions": cell.java,
        "spark.driver.memory": cell.heap,
        "spark.local.dir": str(folder / "local"),
        "spark.log.level": "ERROR",
        "spark.python.udf.pipelined.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.streaming.numRecentProgressUpdates": "1000",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        **more,
    }
    builder = SparkSession.builder.master("local[2]").appName("srj peers")
    for name, value in settings.items():
        builder = builder.config(name, value)
    try:
        return builder.getOrCreate()
    except Exception as error:
        if "spark.jars.packages" not in more:
            raise
        raise ConnectionFailedError(missing_driver(DatabaseUrl.parse(url).dialect)) from error


@dataclass
class _Run:
    """The micro-batches of one query.

    Attributes:
        outputs: a checksum of each micro-batch that was joined.
        is_over: whether no micro-batch will be joined any more.
    """

    cell: PeerCell
    parts: list[Part]
    relation: Relation
    usage: ServerUsage
    spark: SparkSession
    outputs: list[Checksum] = field(default_factory=list)
    is_over: bool = False
    _taken: list[int] = field(default_factory=list)
    _spent: dict[str, float] = field(default_factory=dict)
    _left: dict[int, dict[int, int]] = field(default_factory=dict)
    _usages: list[Usage] = field(default_factory=list)

    def start(self, folder: Path) -> StreamingQuery:
        """Start the query, which ends by itself."""
        finish = finisher(self.cell.way, self.spark, self.relation)
        stream = self.spark.readStream.schema("id bigint").option("maxFilesPerTrigger", FILES).parquet(str(folder / "keys"))
        writer = joined(self.cell.way, stream, self.relation).writeStream.trigger(availableNow=True)

        def take(batch: DataFrame, number: int) -> None:
            self._take(finish, batch, number)

        return writer.option("checkpointLocation", str(folder / "checkpoint")).foreachBatch(take).start()

    def _take(self, finish: Any, batch: DataFrame, number: int) -> None:
        phase = self.parts[number].phase
        begun = time.monotonic()
        if self._spent.get(phase, 0.0) > self.cell.seconds[phase]:
            self.is_over = phase == "delay"
            return
        first = phase not in self._spent
        if first and phase != "warm":
            self._usages.append(self.usage())
        rows = finish(batch)
        hashes = F.xxhash64(*(rows[name] for name in ("id", "name", "price", "quantity")))
        at = F.expr(_NOW) if phase == "delay" else F.lit(0)
        summed = _summed(rows.select(hashes.alias("hash"), at.alias("at")), "at").collect()
        if self.cell.way == "foreachBatch + IN list":
            self.spark.catalog.clearCache()  # the micro-batch that it persisted
        self.outputs.append(added(_checksum(row) for row in summed))
        self._taken.append(number)
        if phase == "delay":
            self._left[number] = {row["at"]: row["rows"] for row in summed}
        self._spent[phase] = self._spent.get(phase, 0.0) + time.monotonic() - begun

    def figures(self, query: StreamingQuery) -> dict[str, Any]:
        """What was seen, once the query has ended."""
        progress = {one["batchId"]: one for one in query.recentProgress}
        rated = [number for number in self._taken if self.parts[number].phase == "rate"]
        rows = sum(len(self.parts[number].keys) for number in rated)
        seconds = sum(progress[number]["durationMs"]["triggerExecution"] for number in rated) / 1000
        delays = np.sort(np.concatenate([_delays(left, progress[number]) for number, left in self._left.items()]))
        before, after = self._usages
        return {
            "rate": rows / seconds,
            "rows": rows,
            "micro_batches": len(rated),
            "rows_a_micro_batch": len(self.parts[rated[0]].keys),
            "delay_p50_ms": float(np.quantile(delays, 0.5)),
            "delay_p99_ms": float(np.quantile(delays, 0.99)),
            "delay_rows": len(delays),
            "delay_micro_batches": len(self._left),
            "queries": None if before.queries is None or after.queries is None else after.queries - before.queries,
            "cpu_seconds": None if before.cpu is None or after.cpu is None else after.cpu - before.cpu,
        }

    def plain_join(self, url: str, folder: Path) -> Checksum:
        """Of the same keys, by Arrow, from rows that were read past Spark and srj."""
        keys = np.concatenate([self.parts[number].keys for number in self._taken])
        path = folder / "plain.parquet"
        pq.write_table(plain_join(keys, read_rows(url, self.relation.table, np.unique(keys))), path)
        rows = self.spark.read.parquet(str(path))
        hashes = F.xxhash64(*rows.columns)
        (row,) = _summed(rows.select(hashes.alias("hash"), F.lit(0).alias("at")), "at").collect()
        return _checksum(row)


def _summed(hashes: DataFrame, by: str) -> DataFrame:
    """Rows and hashes; in halves, for a sum of 64-bit hashes overflows."""
    low, high = F.col("hash").bitwiseAND(F.lit(_LOW)), F.shiftrightunsigned("hash", 32)
    return hashes.groupBy(by).agg(F.count("*").alias("rows"), F.sum(low).alias("low"), F.sum(high).alias("high"))


def _checksum(row: Any) -> Checksum:
    return Checksum(row["rows"], (row["low"] + (row["high"] << 32)) % 2**64)


def _delays(left: dict[int, int], progress: Any) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Milliseconds from the begin of a micro-batch until each of its rows had left the join."""
    begun = datetime.fromisoformat(progress["timestamp"]).timestamp() * 1000
    return np.repeat(np.array(list(left), np.float64) - begun, list(left.values()))
