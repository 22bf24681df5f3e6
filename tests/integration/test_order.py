"""Order constraints, punctuation and its undoing through Spark, over a database that is 10 ms away."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from srj import Batch, Disorder, RequestError, Table, Windows, enrich_in_pandas, restore_order, srj_enrich
from srj.experiments.delay_proxy import delayed
from srj.lookup.order import scrambling_distances
from srj.operators import worker
from srj.options import parse_options

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from tests.integration.stores import Store

ROWS, KEYS, FILES = 4_000, 600, 3
START = datetime(2024, 3, 1, tzinfo=UTC)
# Few keys a lookup, so that there are many; an own cache for each test.
BATCH = Batch(size=20, in_flight=2, max_wait="1 ms")


@pytest.fixture(scope="module")
def far(postgres_store: Store) -> Iterator[Table]:
    """Parts with two rows a key, one or none, behind a slow network."""
    postgres_store.run("CREATE TABLE parts (k int, part varchar(20)); CREATE INDEX ON parts (k)")
    postgres_store.insert("parts", [(key, f"part {n} of {key}") for key in range(KEYS) for n in range(key % 3)])
    server = postgres_store.server
    with delayed(server.host, server.port, 0.005, 0.002) as proxy:
        yield Table(postgres_store.url.replace(f":{server.port}/", f":{proxy.port}/"), "parts")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Keys of which half come again and again, with event times that jump back and forth by a minute."""
    folder = tmp_path_factory.mktemp("parts")
    for file in range(FILES):
        numbers = range(file * ROWS, file * ROWS + ROWS)
        columns = {
            "n": pa.array(numbers, pa.int64()),
            "k": pa.array([_key(number) for number in numbers], pa.int32()),
            "time": pa.array([_time(number) for number in numbers], pa.timestamp("us", "UTC")),
        }
        pq.write_table(pa.table(columns), folder / f"{file}.parquet")
    return folder


def _key(number: int) -> int:
    return number % 10 if number % 2 else number * 7 % KEYS


def _time(number: int) -> datetime:
    return START + timedelta(seconds=number + 60 * (number % 7 == 0))


def _expected() -> Counter[tuple[Any, ...]]:
    """Every row with what its key has."""
    rows: Counter[tuple[Any, ...]] = Counter()
    for n in range(FILES * ROWS):
        rows.update([(n, f"part {m} of {_key(n)}") for m in range(_key(n) % 3)] or [(n, None)])
    return rows


def _read(spark: SparkSession, files: Path) -> DataFrame:
    """As one partition a file, in batches of 500 rows."""
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", 500)
    return spark.read.schema("n bigint, k int, time timestamp").parquet(*sorted(map(str, files.glob("*.parquet"))))


ORDERS = [Disorder(max=0), Disorder(max=7), Disorder(max=500), Windows(100, (250, 100)), Windows(64, position="n"), "any"]


@pytest.mark.parametrize("order", ORDERS, ids=repr)
def test_rows_leave_within_the_constraint_with_their_own_matches(spark: SparkSession, far: Table, files: Path, order: Any) -> None:
    """In every partition, as the output and the metrics show; and the order of the input can be restored."""
    frame = _joined(spark, files, far, order=order, ttl=1000.0 + ORDERS.index(order))
    rows = frame.collect()
    assert Counter((row["n"], row["part"]) for row in rows) == _expected()
    for partition in {row["srj_partition"] for row in rows}:
        mine = [row for row in rows if row["srj_partition"] == partition]
        numbers = np.array([row["srj_row"] for row in mine])
        left = numbers[np.append(True, numbers[1:] != numbers[:-1])]
        distance = int(scrambling_distances(left).max(initial=0))
        if isinstance(order, Disorder):
            assert distance <= order.max
        elif isinstance(order, Windows):
            positions = left if order.position is None else left + min(row["n"] for row in mine)
            assert (np.diff(order.sections(positions)) >= 0).all()
        assert distance > 0 or order == Disorder(max=0)
        for position in range(0, len(mine), 97):
            assert not (numbers[position + 1 :] < mine[position]["srj_complete_below"]).any()
    restored = restore_order(_joined(spark, files, far, order=order, ttl=1000.0 + ORDERS.index(order))).collect()
    numbers_again = [row["n"] for row in restored]
    assert numbers_again == sorted(numbers_again)
    assert Counter((row["n"], row["part"]) for row in restored) == _expected()


@pytest.mark.parametrize("how", ["inner", "semi", "anti"])
def test_order_is_restored_where_rows_were_dropped(spark: SparkSession, far: Table, files: Path, how: str) -> None:
    """By the join itself, and by a filter after it; through pandas too."""
    form = enrich_in_pandas if how == "inner" else srj_enrich
    frame = form(
        _read(spark, files), far, "k", how=how, order=Disorder(max=200), punctuate=True, batch=BATCH, ttl=500.0, cache="1 MB"
    )
    numbers = [row["n"] for row in restore_order(frame.where("n % 3 <> 0")).collect()]
    per_row = {"inner": lambda n: _key(n) % 3, "semi": lambda n: _key(n) % 3 > 0, "anti": lambda n: _key(n) % 3 == 0}[how]
    assert numbers == [n for n in range(FILES * ROWS) if n % 3 for _ in range(int(per_row(n)))]


def test_punctuation_tells_the_oldest_event_time_that_is_still_to_come(
    spark: SparkSession, far: Table, files: Path, tmp_path: Path
) -> None:
    """Of the stream's watermark; and the watermark survives the join and the restoring."""
    stream = spark.readStream.schema("n bigint, k int, time timestamp").option("maxFilesPerTrigger", 1).parquet(str(files))
    joined = srj_enrich(
        stream.withWatermark("time", "10 seconds"), far, "k", how="left", order="any", punctuate=True, batch=BATCH, ttl=700.0
    )
    assert joined.columns[-4:] == ["srj_row", "srj_complete_below", "srj_pending_since", "srj_partition"]
    assert restore_order(joined).schema["time"].metadata == {"spark.watermarkDelayMs": 10_000}
    writer = joined.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writer.trigger(availableNow=True).start(str(tmp_path / "out"))
    assert query.awaitTermination(120)
    for batch in range(FILES):
        (file,) = [path for path in (tmp_path / "out").glob("*.parquet") if pq.read_table(path)["n"][0].as_py() // ROWS == batch]
        rows = pq.read_table(file).to_pylist()
        newest = np.maximum.accumulate([row["srj_row"] for row in rows])
        for position in range(0, len(rows), 53):
            # Of those that are still to come, the ones that had arrived when this one left; and perhaps some that no row tells of.
            pending = [row["time"] for row in rows[position + 1 :] if row["srj_row"] < newest[position]]
            since = rows[position]["srj_pending_since"]
            assert not pending or since <= min(pending)
        assert any(row["srj_pending_since"] is not None for row in rows)
        assert rows[-1]["srj_pending_since"] is None
    assert sum(pq.read_table(path).num_rows for path in (tmp_path / "out").glob("*.parquet")) == sum(_expected().values())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"punctuate": True},
            "punctuate only where rows may leave out of their order, got order='input', the default, .*; give another",
        ),
        ({"order": 5}, r"order as 'input', 'any', Disorder\(max=…\) or Windows\(…\), got 5; write Disorder\(max=5\)"),
        ({"order": "Any"}, r"order as .*, got 'Any'; did you mean 'any'\?"),
        ({"order": "Input"}, r"order as .*, got 'Input'; did you mean 'input'\?"),
        ({"order": Windows(10, position="m")}, "a stream column named 'm' for the position, got none"),
        ({"order": Windows(10, position="time")}, "a position of whole numbers, got time of type timestamp; cast it to bigint"),
    ],
)
def test_an_order_that_can_not_be_kept_is_refused(
    spark: SparkSession, far: Table, files: Path, options: dict[str, Any], message: str
) -> None:
    """On the driver."""
    with pytest.raises(RequestError, match=f"^expected {message}"):
        srj_enrich(_read(spark, files), far, "k", **options)


def test_restoring_needs_the_punctuation(spark: SparkSession, far: Table, files: Path) -> None:
    """And says which columns are missing."""
    with pytest.raises(RequestError, match=r"^expected the columns srj_partition, .* keep them until here"):
        restore_order(_joined(spark, files, far).drop("srj_row"))
    with pytest.raises(RequestError, match=r"^expected a stream without .* srj_partition; restore its order first, or drop them"):
        _joined(spark, files, far).transform(srj_enrich, far, "k", prefix="again_", order="any", punctuate=True)


def test_a_row_without_punctuation_is_refused_rather_than_dropped() -> None:
    """As a union with rows that had none brings them; in the worker, where it shows."""
    rows = pa.record_batch({"x": ["a", "b"], "p": pa.array([0, None], pa.int32()), "r": [0, 1], "below": [1, 2]})
    with pytest.raises(RequestError, match="the punctuation of a join in every row, got NULL"):
        list(worker.restore_order([0], 1, 2, 3, iter([rows])))


def test_an_order_may_stand_in_a_config_file(tmp_path: Path) -> None:
    """As max, or as windows."""
    config = tmp_path / "srj.toml"
    for text, order in (
        ("order = 'any'", "any"),
        ("[order]\nmax = 100", Disorder(max=100)),
        ("[order]\nwindows = [10, [100, 20]]\nposition = 'offset'", Windows(10, (100, 20), position="offset")),
    ):
        config.write_text(text, encoding="utf-8")
        assert parse_options({"config": config}).order == order
    for text in ("[order]\nwindows = 10", "[order]\nmax = 1\nwindows = [10]", "[order]\nmaximum = 1", "[order]"):
        config.write_text(text, encoding="utf-8")
        with pytest.raises(RequestError, match=r"^expected .*\[order\]"):
            parse_options({"config": config})


def _joined(spark: SparkSession, files: Path, table: Table, order: Any = "any", ttl: float = 900.0) -> DataFrame:
    return srj_enrich(_read(spark, files), table, "k", order=order, batch=BATCH, punctuate=True, cache="1 MB", ttl=ttl)
