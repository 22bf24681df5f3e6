"""srj_enrich on streams: watermarks, metrics in the progress, restarts, retried tasks, and the other two ways to mount it."""

from __future__ import annotations

import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F  # noqa: N812  Spark's own convention

from srj import Disorder, RequestError, Windows, enrich_in_pandas, for_each_batch, srj_enrich
from tests.integration.scripts import run
from tests.integration.stores import Store, open_store

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from tests.servers import Server

FILES, ROWS, PRESENT = 6, 200, 40
PRODUCTS = [(key, f"family {key % 4}", key) for key in range(PRESENT)]
START = datetime(2024, 3, 1, tzinfo=UTC)
ORDERS = ("input", "any")
ALL_ORDERS = (*ORDERS, Disorder(max=50), Windows(30))
SCHEMA = "n bigint, k int, time timestamp"


def _key(number: int) -> int | None:
    return None if number % 13 == 0 else number * 7 % 60


def _seconds_late(number: int) -> int:
    """Some as late as the watermark still bears, and in the second half some that it drops."""
    return 400 if number >= 3 * ROWS and number % 25 == 7 else 8 * (number % 25 == 11)


@pytest.fixture(scope="module")
def shop(store: Store) -> Iterator[Store]:
    """Forty products in four groups."""
    store.run("CREATE TABLE shop (k int PRIMARY KEY, family varchar(20), price int)")
    store.insert("shop", PRODUCTS)
    return store


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six files, an event a second, some of them late; the last event's time closes all windows before it."""
    folder = tmp_path_factory.mktemp("events")
    for file in range(FILES):
        numbers = range(file * ROWS, file * ROWS + ROWS)
        times = [START + timedelta(seconds=number - _seconds_late(number)) for number in numbers]
        if file == FILES - 1:
            times[-1] += timedelta(hours=1)
        columns = {
            "n": pa.array(numbers, pa.int64()),
            "k": pa.array([_key(number) for number in numbers], pa.int32()),
            "time": pa.array(times, pa.timestamp("us", "UTC")),
        }
        pq.write_table(pa.table(columns), folder / f"{file}.parquet")
        time.sleep(0.01)  # the source reads files in the order of their times
    return folder


def _stream(spark: SparkSession, files: Path) -> DataFrame:
    return spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(files))


def _run(frame: DataFrame, folder: Path) -> StreamingQuery:
    """Into a Parquet sink, which takes each micro-batch exactly once, until all files are read."""
    writer = frame.writeStream.format("parquet").option("checkpointLocation", str(folder / "checkpoint"))
    query = writer.trigger(availableNow=True).start(str(folder / "out"))
    assert query.awaitTermination(240)
    return query


def _rows(spark: SparkSession, folder: Path) -> Counter[tuple[Any, ...]]:
    return Counter(map(tuple, spark.read.parquet(str(folder / "out")).collect()))


def _expected() -> Counter[tuple[Any, ...]]:
    """Every event's number and key with what its key has."""
    keys = ((number, _key(number)) for number in range(FILES * ROWS))
    return Counter((n, k, *((f"family {k % 4}", k) if k is not None and k < PRESENT else (None, None))) for n, k in keys)


def _windows(frame: DataFrame) -> DataFrame:
    """Events and prices of each minute and family."""
    grouped = frame.groupBy(F.window("time", "1 minute"), "family").agg(
        F.count("*").alias("events"), F.sum("price").alias("total"), F.max("n").alias("last")
    )
    return grouped.selectExpr("window.start", "family", "events", "total", "last")


@pytest.fixture(scope="module")
def plain_windows(spark: SparkSession, files: Path, tmp_path_factory: pytest.TempPathFactory) -> Counter[tuple[Any, ...]]:
    """What Spark's own join with the whole table gives, micro-batch by micro-batch: it drops late rows, too."""
    folder = tmp_path_factory.mktemp("plain")
    whole = spark.createDataFrame(PRODUCTS, "k int, family string, price int")
    _run(_windows(_stream(spark, files).withWatermark("time", "10 seconds").join(whole, "k", "left")), folder)
    rows = _rows(spark, folder)
    dropped = FILES * ROWS - 1 - sum(row[2] for row in rows.elements())
    assert 0 < dropped <= sum(_seconds_late(number) == 400 for number in range(FILES * ROWS))
    return rows


@pytest.mark.parametrize("order", ALL_ORDERS, ids=repr)
def test_windows_after_the_join_close_by_the_watermark_before_it(
    spark: SparkSession, shop: Store, files: Path, tmp_path: Path, plain_windows: Counter[tuple[Any, ...]], order: Any
) -> None:
    """A watermark, the join, a windowed aggregation in append mode: as over Spark's own join; and the metrics add up."""
    stream = srj_enrich(
        _stream(spark, files).withWatermark("time", "10 seconds"),
        shop.table("shop"),
        key="k",
        order=order,
        ttl=1000.0 + ALL_ORDERS.index(order),
    )
    assert stream.schema["time"].metadata == {"spark.watermarkDelayMs": 10_000}
    query = _run(_windows(stream), tmp_path)
    assert _rows(spark, tmp_path) == plain_windows
    dropped = sum(operator.numRowsDroppedByWatermark for progress in query.recentProgress for operator in progress.stateOperators)
    assert dropped > 0
    _check_metrics(query)


def _check_metrics(query: StreamingQuery) -> None:
    """The metrics of all micro-batches under their names; their sums are what the stream and the table imply."""
    found = [row["srj"] for progress in query.recentProgress for row in progress.observedMetrics.values() if progress.numInputRows]
    assert len(found) == FILES
    for one in found:
        assert one["rows"] == ROWS
        assert one["hits"] + one["misses"] + one["null_keys"] + one["impossible_keys"] == one["rows"]
        assert one["keys_per_batch"] == (one["keys"] / one["batches"] if one["batches"] else None)
        assert (one["database_ms"] > 0) == (one["batches"] > 0)
    keys = [_key(number) for number in range(FILES * ROWS)]
    sums = {
        name: sum(one[name] for one in found) for name in ("keys", "null_keys", "absent", "matches", "retries", "impossible_keys")
    }
    assert sums == {
        "keys": len(set(keys) - {None}),
        "null_keys": keys.count(None),
        "absent": sum(key is not None and key >= PRESENT for key in keys),
        "matches": sum(key is not None and key < PRESENT for key in keys),
        "retries": 0,
        "impossible_keys": 0,
    }


@pytest.mark.parametrize("order", ORDERS)
def test_a_query_stopped_in_the_middle_goes_on_from_its_checkpoint(
    spark: SparkSession, shop: Store, files: Path, tmp_path: Path, order: str
) -> None:
    """Stopped while it runs, started again: every row exactly once."""
    stream = srj_enrich(_stream(spark, files), shop.table("shop"), "k", order=order).drop("time")
    writer = stream.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writer.start(str(tmp_path / "out"))
    deadline = time.monotonic() + 120
    while query.isActive and not query.recentProgress and time.monotonic() < deadline:
        time.sleep(0.02)
    query.stop()
    before = _rows(spark, tmp_path)
    assert 0 < before.total() < FILES * ROWS
    _run(stream, tmp_path)
    assert _rows(spark, tmp_path) == _expected()


def test_the_other_forms_give_the_same_rows(spark: SparkSession, shop: Store, files: Path, tmp_path: Path) -> None:
    """ForeachBatch with both operators, and mapInPandas on the stream and in batch."""
    for order in ORDERS:
        out = tmp_path / order

        def write(batch: DataFrame, number: int, out: Path = out) -> None:
            batch.drop("time").write.mode("overwrite").parquet(str(out / "out" / f"batch={number}"))

        function = for_each_batch(shop.table("shop"), "k", write, order=order)
        writer = _stream(spark, files).writeStream.option("checkpointLocation", str(out / "checkpoint"))
        query = writer.foreachBatch(function).trigger(availableNow=True).start()
        assert query.awaitTermination(240)
        found = spark.read.parquet(str(out / "out")).drop("batch")
        assert Counter(map(tuple, found.collect())) == _expected()
    stream = enrich_in_pandas(_stream(spark, files), shop.table("shop"), "k").drop("time")
    _run(stream, tmp_path)
    assert _rows(spark, tmp_path) == _expected()


def test_map_in_pandas_gives_the_same_rows_as_map_in_arrow(spark: SparkSession, shop: Store, files: Path) -> None:
    """Every how, with a prefix, large numbers beside NULLs, and instants that stay the same in a time zone with a summer time."""
    batch = spark.read.schema(SCHEMA).parquet(str(files)).selectExpr("*", "time AS also", "CAST(time AS timestamp_ntz) AS local")
    zone = "spark.sql.session.timeZone"
    spark.conf.set(zone, "America/New_York")
    try:
        for how in ("left", "inner", "semi", "anti"):
            prefix = {} if how in ("semi", "anti") else {"prefix": "p_"}
            options: Any = {"how": how, "order": "any"} | prefix
            expected = srj_enrich(batch, shop.table("shop"), "k", **options)
            found = enrich_in_pandas(batch, shop.table("shop"), "k", **options)
            assert found.schema == expected.schema
            assert Counter(map(tuple, found.collect())) == Counter(map(tuple, expected.collect())), how
    finally:
        spark.conf.set(zone, "UTC")
    with pytest.raises(RequestError, match="expected an order other than 'input' for the pandas form; leave it out"):
        enrich_in_pandas(batch, shop.table("shop"), "k", order="input")


@pytest.mark.timeout(900)
def test_retried_tasks_leave_each_row_once(postgres: Server, mariadb: Server, tmp_path: Path) -> None:
    """Each task fails after some rows, by an exception or with its worker: the second attempt's rows are the only ones."""
    folder = tmp_path / "files"
    folder.mkdir()
    keys = [_key(number) for number in range(600)]
    for file in range(2):
        part = slice(file * 300, file * 300 + 300)
        columns = {"n": pa.array(range(600)[part], pa.int64()), "k": pa.array(keys[part], pa.int32())}
        pq.write_table(pa.table(columns), folder / f"{file}.parquet")
    for one in open_store(postgres, "srj_retried"):
        for other in open_store(mariadb, "srj_retried"):
            for store in (one, other):
                store.run("CREATE TABLE parts (k int PRIMARY KEY, name varchar(40))")
                store.insert("parts", [(number, f"part {number}") for number in range(PRESENT)])
            tables = {store.server.kind: f"{store.url}#parts" for store in (one, other)}
            result, printed = run("retried_tasks", {"tables": tables, "files": str(folder)}, tmp_path)
    expected = sorted([[n, k, None if k is None or k >= PRESENT else f"part {k}"] for n, k in enumerate(keys)], key=repr)
    assert len(result["rows"]) == 8
    for name, rows in result["rows"].items():
        assert rows == expected, name
    assert result["failures"] >= 8, printed
