"""No key is in the cache: srj, through Spark and alone, against a loop that does nothing but ask.

The loop sends as many keys at a time over as many connections, in the statement that anybody would write, and drops the driver's
records when it has them. Both answer the same new keys in each pair, srj first: whatever the database then has at hand helps the
loop.
"""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import replace
from typing import TYPE_CHECKING

import asyncpg
import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812  Spark's own convention

from benchmarks.pairs import Checksum, Contest, timed
from benchmarks.setting import SCHEMA, checksum, run_to_nowhere
from srj import Batch, srj_enrich
from srj.databases.base import Question
from srj.databases.postgresql import INDEX_SETTINGS
from srj.lookup.describe import describe
from srj.lookup.engine import Engine
from srj.lookup.operator import Operator
from srj.lookup.spec import LookupSpec
from srj.options import LookupSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyspark.sql import DataFrame

    from benchmarks.setting import Setting

GROUP = "misses"
_SIZE, _IN_FLIGHT = 1000, 4
_BATCH = Batch(size=_SIZE, in_flight=_IN_FLIGHT)
_SPARK_BATCH = 10_000  # rows in Spark's Arrow batches, and so in those of the core alone
_COLUMNS = ("name", "price", "quantity")
_SQL = (
    "SELECT k.ord, t.name, t.price, t.quantity FROM unnest($1::bigint[]) WITH ORDINALITY AS k(id, ord) "
    f"JOIN {SCHEMA}.many_items AS t ON t.id = k.id"
)


def contests(setting: Setting) -> Iterator[Contest]:
    """Through Spark, one partition and so one worker, which has the bar; then without Spark."""
    duel = Duel(setting)
    try:
        yield duel.contest("all misses, one worker", through_spark=True, bar=0.65)
        yield duel.contest("all misses, srj's core without Spark", through_spark=False)
    finally:
        duel.close()


class BareLoop:
    """The least that asking takes.

    Args:
        url: the database.
        sql: the lookup.
        in_flight: connections.
    """

    def __init__(self, url: str, sql: str, in_flight: int) -> None:
        self._loop = asyncio.new_event_loop()
        self._url, self._sql = url, sql
        self._connections: list[asyncpg.Connection] = []
        self._statements = [self._loop.run_until_complete(self._prepare()) for _ in range(in_flight)]

    def run(self, batches: Sequence[list[int]], take: Callable[[list[asyncpg.Record]], object]) -> None:
        """Hand over the records of each batch when they have arrived."""
        waiting = iter(batches)

        async def ask(statement: asyncpg.prepared_stmt.PreparedStatement) -> None:
            for batch in waiting:
                take(await statement.fetch(batch))

        async def ask_all() -> None:
            await asyncio.gather(*map(ask, self._statements))

        self._loop.run_until_complete(ask_all())

    def close(self) -> None:
        """Close its connections."""
        for connection in self._connections:
            self._loop.run_until_complete(connection.close())
        self._loop.close()

    async def _prepare(self) -> asyncpg.prepared_stmt.PreparedStatement:
        connection = await asyncpg.connect(self._url)
        self._connections.append(connection)
        await connection.execute("; ".join(f"SET {setting}" for setting in INDEX_SETTINGS))  # as srj's own connections
        return await connection.prepare(self._sql)


class Duel:
    """Both sides over the same keys, new ones in each pair."""

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        table = setting.table("many_items")
        question = Question(table.url, table.name, ("id",))
        description = describe(question, 10.0)
        self._bare = BareLoop(setting.server.url, _SQL, _IN_FLIGHT)
        self._spec = LookupSpec(question, description, replace(LookupSettings(), batch=_BATCH))
        self._engine = Engine(self._spec)

    def close(self) -> None:
        """Close all connections."""
        self._engine.close()
        self._bare.close()

    def contest(self, name: str, *, through_spark: bool, bar: float | None = None) -> Contest:
        """One of srj's forms against the loop."""
        count = self._setting.scale.misses
        rounds = itertools.count()
        now: list[DataFrame] = []  # the present pair's keys

        def next_keys() -> DataFrame:
            now[:] = [self._setting.scattered_keys(next(rounds) * count, count, 1)]
            return now[0]

        def checksums() -> tuple[Checksum, Checksum]:
            keys = next_keys()
            return self._srj_checksum(keys, through_spark), self._bare_checksum(keys)

        def srj() -> float:
            keys = next_keys()
            if through_spark:
                enriched = self._enriched(keys)
                return timed(lambda: run_to_nowhere(enriched))
            batches = [(array,) for array in _arrays(keys, _SPARK_BATCH)]
            return timed(lambda: self._run_core(batches))

        def bare() -> float:
            batches = [array.to_pylist() for array in _arrays(now[0], _SIZE)]
            return timed(lambda: self._bare.run(batches, len))

        return Contest(GROUP, name, "bare asyncpg loop", count, srj, bare, checksums, bar)

    def _enriched(self, keys: DataFrame) -> DataFrame:
        return srj_enrich(keys, self._setting.table("many_items"), key={"key": "id"}, batch=_BATCH)

    def _run_core(self, batches: Sequence[tuple[pa.Array]]) -> list[pa.RecordBatch]:
        return [joined.outer()[1] for joined in Operator(self._engine).in_order(batches)]

    def _srj_checksum(self, keys: DataFrame, through_spark: bool) -> Checksum:
        """Of the table's columns: the key is in the name."""
        if through_spark:
            return checksum(self._enriched(keys).select(*_COLUMNS))
        rows = self._run_core([(array,) for array in _arrays(keys, _SPARK_BATCH)])
        return checksum(self._setting.spark.createDataFrame(pa.Table.from_batches(rows)))

    def _bare_checksum(self, keys: DataFrame) -> Checksum:
        records: list[asyncpg.Record] = []
        self._bare.run([array.to_pylist() for array in _arrays(keys, _SIZE)], records.extend)
        columns = zip(*records, strict=True)
        _, *values = (list(column) for column in columns)
        return checksum(self._setting.spark.createDataFrame(pa.table(values, schema=self._spec.columns)))


def _arrays(keys: DataFrame, length: int) -> list[pa.Array]:
    """A key column as arrays of at most this length."""
    column = keys.select(F.col("key")).toArrow()["key"].combine_chunks()
    return [column.slice(start, length) for start in range(0, len(column), length)]
