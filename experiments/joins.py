"""Two ways to join a stream with a relation, driven by a source: srj's core, and one lookup for each missing row."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

import asyncpg
import cachetools
import numpy as np
import pyarrow as pa

from srj import Batch, Cache, Table
from srj.databases.base import Question
from srj.databases.postgresql import INDEX_SETTINGS
from srj.experiments.relation import SCHEMA, mysql_connection, plain_url
from srj.lookup.describe import describe
from srj.lookup.keys import Keys
from srj.lookup.make_cache import make_cache
from srj.lookup.operator import Operator
from srj.lookup.order import Disorder
from srj.lookup.spec import LookupSpec
from srj.options import LookupSettings
from srj.table import DatabaseUrl

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from srj.experiments.source import PacedSource
    from srj.lookup.engine import Engine
    from srj.lookup.interface import Cache as StoredRows
    from srj.lookup.order import Order

    I64 = npt.NDArray[np.int64]


class Join(Protocol):
    """A join of keys with the relation whose cache and connections outlive a trial."""

    rows: int
    hits: int
    lookups: int
    keys: int

    @property
    def lookup_seconds(self) -> float:
        """What a lookup has taken on average; 0 where that is not known."""
        ...

    def carry(self, source: PacedSource) -> list[pa.Table]:
        """Join all rows of the source, telling it which have left; what came out, with the columns of the relation."""
        ...

    def close(self) -> None:
        """Close its connections."""
        ...


class Core:
    """srj's core without Spark.

    Args:
        engine: cache and connections; closed with this.
        order: ``"input"``, or how far rows may leave out of order; a number: so many seconds of the stream, as the thesis has it.
        waiting_bytes: what may wait; None: as srj has it.

    Attributes:
        rows, hits, lookups, keys: so far; the distinct keys of the lookups.
        database_seconds: from sending each lookup to its answer, added up.
        distance, predicted_distance: the largest scrambling distance of the last source, and what the thesis predicts for it.
    """

    def __init__(self, engine: Engine, order: Order | float, waiting_bytes: int | None = None) -> None:
        self._engine, self._order = engine, order
        self._waiting = {} if waiting_bytes is None else {"waiting_bytes": waiting_bytes}
        self.rows = self.hits = self.lookups = self.keys = 0
        self.distance = self.predicted_distance = 0
        self._microseconds = 0

    def carry(self, source: PacedSource) -> list[pa.Table]:
        """As `Join.carry`."""
        operator = Operator(self._engine, **self._waiting)
        carry = self._in_order if self._order == "input" else self._out_of_order
        output = []
        for keys, rows in carry(operator, source):
            source.leave(len(keys))
            output.append(pa.Table.from_arrays([pa.array(keys), *rows.columns], schema=SCHEMA))
        self.rows += operator.metrics.rows
        self.hits += operator.metrics.hits
        self.lookups += operator.metrics.batches
        self.keys += operator.metrics.keys
        self.distance, self.predicted_distance = operator.metrics.distance, operator.metrics.predicted_distance
        self._microseconds += operator.metrics.database_us
        return output

    @property
    def database_seconds(self) -> float:
        """See the class."""
        return self._microseconds / 1e6

    @property
    def lookup_seconds(self) -> float:
        """As `Join.lookup_seconds`."""
        return self.database_seconds / max(self.lookups, 1)

    def close(self) -> None:
        """As `Join.close`."""
        self._engine.close()

    def _out_of_order(self, operator: Operator, source: PacedSource) -> Iterator[tuple[I64, pa.RecordBatch]]:
        batches = ((keys, (pa.array(keys),)) for keys in source)
        order = self._order if not isinstance(self._order, (int, float)) else Disorder(round(self._order * source.trial.rate))
        for leaving in operator.out_of_order(batches, _KeysAlone(), order):
            positions, rows = leaving.joined.outer()
            yield (leaving.rows if positions is None else leaving.rows[positions]), rows

    @staticmethod
    def _in_order(operator: Operator, source: PacedSource) -> Iterator[tuple[I64, pa.RecordBatch]]:
        taken: deque[I64] = deque()

        def batches() -> Iterator[tuple[pa.Array]]:
            for keys in source:
                taken.append(keys)
                yield (pa.array(keys),)

        for joined in operator.in_order(batches()):
            keys, count = taken.popleft(), len(joined.counts)
            if count < len(keys):
                taken.appendleft(keys[count:])
            positions, rows = joined.outer()
            yield (keys[:count] if positions is None else keys[:count][positions]), rows


class OneByOne:
    """The thesis's baseline: one thread, one lookup for each row that the cache does not know, waited for before the next row.

    Its cache is that of `cachetools`, of the same capacity and policy: for single rows it is many times faster than srj's own,
    which is made for batches.

    Args:
        ask: the lookup.
        cache: by key the row's columns without the key, None for a key that the relation lacks.

    Attributes:
        rows, hits, lookups, keys: so far; each lookup has one key.
    """

    def __init__(self, ask: Ask, cache: cachetools.Cache[int, Any]) -> None:
        self._ask, self._cache = ask, cache
        self.rows = self.hits = self.lookups = self.keys = 0
        self.lookup_seconds = 0.0

    def carry(self, source: PacedSource) -> list[pa.Table]:
        """As `Join.carry`."""
        return self._ask.loop.run_until_complete(self._carry(source))

    def close(self) -> None:
        """As `Join.close`."""
        self._ask.close()

    async def _carry(self, source: PacedSource) -> list[pa.Table]:
        output = []
        cache, ask, absent = self._cache, self._ask, (None, None, None)
        for keys in source:
            found, missed = [], 0
            for key in keys.tolist():
                try:
                    row = cache[key]
                except KeyError:
                    missed += 1
                    row = cache[key] = await ask(key)
                found.append(row or absent)
            columns = zip(*found, strict=True)
            output.append(pa.table([keys, *(list(column) for column in columns)], schema=SCHEMA))
            self.rows += len(keys)
            self.hits += len(keys) - missed
            self.lookups += missed
            self.keys += missed
            source.leave(len(keys))
        return output


class Ask:
    """One lookup at a time over one connection, by a prepared statement where the driver has them.

    Args:
        url: of the server.
        table: the relation's name.
        indexed: whether its key has an index.

    Attributes:
        loop: where it is to be awaited.
    """

    def __init__(self, url: str, table: str, *, indexed: bool) -> None:
        self.loop = asyncio.new_event_loop()
        sql = f"SELECT {', '.join(SCHEMA.names[1:])} FROM {table} WHERE id = "
        self._connection: Any = None
        if DatabaseUrl.parse(url).dialect == "postgresql":
            self._statement = self.loop.run_until_complete(self._prepared(url, sql + "$1", indexed))
        else:
            self._sql, self._connection = sql + "%s", mysql_connection(url)
            self._statement = None

    async def __call__(self, key: int) -> tuple[Any, ...] | None:
        """The row's columns, or None."""
        if self._statement is not None:
            return await self._statement.fetchrow(key)  # type: ignore[no-any-return]
        with self._connection.cursor() as cursor:
            cursor.execute(self._sql, (key,))
            return cursor.fetchone()  # type: ignore[no-any-return]

    def close(self) -> None:
        """Close the connection."""
        if self._statement is not None:
            self.loop.run_until_complete(self._connection.close())
        else:
            self._connection.close()
        self.loop.close()

    async def _prepared(self, url: str, sql: str, indexed: bool) -> asyncpg.prepared_stmt.PreparedStatement:
        self._connection = await asyncpg.connect(plain_url(url))
        # As srj's own connections have it.
        await self._connection.execute("; ".join(f"SET {one}" for one in (INDEX_SETTINGS if indexed else INDEX_SETTINGS[:1])))
        return await self._connection.prepare(sql)


def relation_spec(url: str, table: str, batch: Batch, cache: Cache) -> LookupSpec:
    """A lookup of the relation's rows by their id, in which nothing expires and a scan may take its time."""
    looked_up = Table(url, (table,))
    question = Question(looked_up.url, looked_up.name, ("id",))
    settings = replace(LookupSettings(), batch=batch, cache=cache, ttl=None, missing_ttl=None, lookup_timeout=300.0)
    return LookupSpec(question, describe(question, 60.0), settings)


def columnar_cache(spec: LookupSpec, keys: I64, relation: pa.Table) -> StoredRows:
    """The cache that the spec asks for, with these keys in it, the last the newest; each is a position in the relation."""
    cache = make_cache(spec)
    rows = relation.select(SCHEMA.names[1:]).take(pa.array(keys)).combine_chunks()
    # In parts, as lookups store them: a part that is as large as the cache leaves its own keys no room.
    for begin in range(0, len(keys), 1000):
        part = rows.slice(begin, 1000).to_batches()[0].cast(spec.columns)
        cache.insert(Keys((pa.array(keys[begin : begin + 1000]),)), np.ones(part.num_rows, np.int32), part, 0.0)
    return cache


def lru_cache(capacity: int, keys: I64, relation: pa.Table) -> cachetools.LRUCache[int, Any]:
    """The same for one row at a time."""
    cache: cachetools.LRUCache[int, Any] = cachetools.LRUCache(capacity)
    columns = relation.select(SCHEMA.names[1:]).take(pa.array(keys)).to_pydict().values()
    cache.update(zip(keys.tolist(), zip(*columns, strict=True), strict=True))
    return cache


class _KeysAlone:
    """How the operator handles a stream that is nothing but keys."""

    def take(self, rows: I64, positions: I64) -> I64:
        """Some of them."""
        return rows[positions]

    def concat(self, parts: Sequence[I64]) -> I64:
        """One after the other."""
        return np.concatenate(parts)

    def nbytes(self, rows: I64) -> int:
        """Their memory."""
        return rows.nbytes

    def positions(self, rows: I64) -> I64:
        """As no order here goes by a column, none."""
        return np.zeros(len(rows), np.int64)

    def times(self, rows: I64) -> None:
        """None."""
