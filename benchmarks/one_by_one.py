"""Half of the keys are in the cache: srj against one lookup per missing row.

That is what most hand-written joins do: an LRU cache of as many entries in each worker (`cachetools.LRUCache`), a prepared
statement for each row that it does not know. Both caches are in a steady state before the first pair: rows go on over
the same keys, uniformly, twice as many as the cache holds.
"""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import asyncpg
import cachetools
import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812  Spark's own convention

from benchmarks.pairs import Checksum, Contest, timed
from benchmarks.setting import SCHEMA, read_checksum, run_to_nowhere, summed
from srj import srj_enrich

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame

    from benchmarks.setting import Setting

GROUP = "one-by-one"
_SQL = f"SELECT name, price, quantity FROM {SCHEMA}.many_items WHERE id = $1"
_SCHEMA = pa.schema(
    [("key", pa.int64()), ("name", pa.string()), ("price", pa.float64()), ("quantity", pa.int32()), ("hit", pa.bool_())]
)
_DDL = "key bigint, name string, price double, quantity int, hit boolean"


def contests(setting: Setting) -> Iterator[Contest]:
    """The one contest."""
    scale = setting.scale
    details: dict[str, object] = {}
    rounds = itertools.count()
    one_by_one = map_one_by_one(setting.server.url, scale.cached_keys)

    def stream(rows: int) -> DataFrame:
        start = next(rounds) * 10 * scale.half_hits
        return setting.spark.range(start, start + rows, 1, 2).select(F.pmod(F.xxhash64("id"), F.lit(scale.seen_keys)).alias("key"))

    def enriched(keys: DataFrame) -> DataFrame:
        return srj_enrich(keys, setting.table("many_items"), key={"key": "id"}, cache=f"{scale.cached_keys} rows", ttl="1 d")

    def mapped(keys: DataFrame) -> DataFrame:
        return keys.mapInArrow(one_by_one, _DDL)

    def checksums() -> tuple[Checksum, Checksum]:
        warming = stream(6 * scale.seen_keys)  # three caches full for each worker
        run_to_nowhere(enriched(warming))
        run_to_nowhere(mapped(warming))
        keys = stream(scale.half_hits)
        ours = summed(enriched(keys))
        first = read_checksum(ours)
        details["srj_hit_ratio"] = _hit_ratio(ours)
        theirs = mapped(keys)
        second = read_checksum(summed(theirs.drop("hit")))
        details["other_hit_ratio"] = mapped(stream(scale.half_hits)).agg(F.avg(F.col("hit").cast("int"))).collect()[0][0]
        return first, second

    now: list[DataFrame] = []

    def srj() -> float:
        now[:] = [stream(scale.half_hits)]
        ours = enriched(now[0])
        return timed(lambda: run_to_nowhere(ours))

    def other() -> float:
        theirs = mapped(now[0])
        return timed(lambda: run_to_nowhere(theirs))

    against = "one lookup per missing row"
    yield Contest(GROUP, "half hits, two workers", against, scale.half_hits, srj, other, checksums, 8.0, details)


def _hit_ratio(executed: DataFrame) -> float:
    """From srj's own metrics of a DataFrame that has run: Python has no other way to observations that it did not name itself."""
    observed = executed._jdf.queryExecution().observedMetrics()  # noqa: SLF001
    counted = observed.values().iterator().next().getStruct(0)
    hits, rows = (int(counted.getLong(counted.fieldIndex(name))) for name in ("hits", "rows"))
    return hits / rows


def map_one_by_one(url: str, entries: int) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A function for mapInArrow over a column ``key``."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        worker = _Worker.of_process(url, entries)
        for batch in batches:
            yield worker.rows(batch.column("key").to_pylist())

    return run


@dataclass
class _Worker:
    """One worker's cache and connection, kept between tasks."""

    cache: cachetools.LRUCache[int, Any]
    loop: asyncio.AbstractEventLoop
    connection: asyncpg.Connection
    statement: asyncpg.prepared_stmt.PreparedStatement = field(repr=False)

    @classmethod
    def of_process(cls, url: str, entries: int) -> _Worker:
        if not _workers:
            loop = asyncio.new_event_loop()
            connection = loop.run_until_complete(asyncpg.connect(url))
            statement = loop.run_until_complete(connection.prepare(_SQL))
            _workers.append(cls(cachetools.LRUCache(entries), loop, connection, statement))
        return _workers[0]

    def rows(self, keys: list[int]) -> pa.RecordBatch:
        # One coroutine for the whole batch: entering the event loop once a row would only add to the other's time.
        return self.loop.run_until_complete(self._rows(keys))

    async def _rows(self, keys: list[int]) -> pa.RecordBatch:
        found, hits = [], []
        for key in keys:
            row = self.cache.get(key)
            hits.append(row is not None)
            if row is None:
                row = self.cache[key] = await self.statement.fetchrow(key)
            found.append(row)
        names, prices, quantities = zip(*found, strict=True)
        return pa.RecordBatch.from_pydict(
            {"key": keys, "name": names, "price": prices, "quantity": quantities, "hit": hits}, schema=_SCHEMA
        )


_workers: list[_Worker] = []
