"""What runs in Spark's Python workers for the ways to join that are written by hand: caches, connections, single-row lookups."""

from __future__ import annotations

import asyncio
import os
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import cachetools
import pyarrow as pa

from srj.experiments.joins import Ask, OneByOne
from srj.experiments.relation import SCHEMA, plain_url
from srj.table import DatabaseUrl

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    import numpy as np
    import numpy.typing as npt

    I64 = npt.NDArray[np.int64]
    InWorker = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]

URL = "SRJ_PEERS_URL"  # environment variable: a closure, which Spark writes down in places, holds no login
_ABSENT = (None, None, None)
_T = TypeVar("_T")


def one_by_one(table: str, entries: int, counts: Path) -> InWorker:
    """An LRU cache in each worker, one lookup at a time for each row whose key it lacks.

    Args:
        table: the relation's name.
        entries: of the cache.
        counts: folder where each worker writes how many lookups it has sent.
    """

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        join = _kept(lambda: OneByOne(Ask(os.environ[URL], table, indexed=True), cachetools.LRUCache(entries)))
        for batch in batches:
            (joined,) = join.carry(_Batch(batch))  # type: ignore[arg-type]  # all that it uses of a source
            _note(counts, join.lookups)
            yield from joined.to_batches()

    return run


def one_by_one_async(table: str, entries: int, in_flight: int, counts: Path) -> InWorker:
    """The same cache, with up to `in_flight` lookups of one key each at a time, each over a connection of its own."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        join = _kept(lambda: _Concurrent(os.environ[URL], table, entries, in_flight))
        for batch in batches:
            joined = join.joined(batch)
            _note(counts, join.lookups)
            yield joined

    return run


def query_per_row(table: str, counts: Path) -> InWorker:
    """A connection for each partition, a query for each row, nothing remembered."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with closing(Ask(os.environ[URL], table, indexed=True)) as ask:
            for batch in batches:
                keys = batch.column("id").to_pylist()
                _note(counts, _kept(_Counter).add(len(keys)))
                yield _rows(keys, ask.loop.run_until_complete(_each(ask, keys)))

    return run


def noted(counts: Path) -> int:
    """The lookups that all workers have sent so far."""
    return sum(int(path.read_text() or 0) for path in counts.iterdir() if not path.suffix)


def _note(counts: Path, lookups: int) -> None:
    path = counts / f"{os.getpid()}"
    path.with_suffix(".new").write_text(f"{lookups}")
    path.with_suffix(".new").replace(path)


async def _each(ask: Ask, keys: Iterable[int]) -> list[tuple[Any, ...]]:
    return [await ask(key) or _ABSENT for key in keys]


def _rows(keys: list[int], found: list[tuple[Any, ...]]) -> pa.RecordBatch:
    columns = [list(column) for column in zip(*found, strict=True)] if found else [[], [], []]
    return pa.RecordBatch.from_pydict(dict(zip(SCHEMA.names, [keys, *columns], strict=True)), schema=SCHEMA)


class _Batch:
    """A source of one batch that has no time to tell."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self._keys = batch.column("id").to_numpy()

    def __iter__(self) -> Iterator[I64]:
        yield self._keys

    def leave(self, rows: int) -> None:
        """Nothing to do."""


@dataclass
class _Counter:
    """A number that outlives a task."""

    count: int = 0

    def add(self, more: int) -> int:
        self.count += more
        return self.count


@dataclass
class _Concurrent:
    """A cache and connections, each of which takes the next missing key when it has an answer."""

    url: str
    table: str
    entries: int
    in_flight: int
    lookups: int = 0
    _asks: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._cache: cachetools.LRUCache[int, Any] = cachetools.LRUCache(self.entries)
        self._loop = asyncio.new_event_loop()

    def joined(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        keys = batch.column("id").to_pylist()
        return _rows(keys, self._loop.run_until_complete(self._found(keys)))

    async def _found(self, keys: list[int]) -> list[tuple[Any, ...]]:
        cache, known, missing = self._cache, {}, []
        for key in dict.fromkeys(keys):
            try:
                known[key] = cache[key]
            except KeyError:
                missing.append(key)
        if missing:
            await self._connect()
            self.lookups += len(missing)
            left = iter(missing)
            await asyncio.gather(*(self._take(ask, left, known) for ask in self._asks))
        return [known[key] or _ABSENT for key in keys]

    async def _take(self, ask: Any, left: Iterator[int], known: dict[int, Any]) -> None:
        for key in left:
            known[key] = self._cache[key] = await ask(key)

    async def _connect(self) -> None:
        if self._asks:
            return
        columns = ", ".join(SCHEMA.names[1:])
        sql = f"SELECT {columns} FROM {self.table} WHERE id = "
        if DatabaseUrl.parse(self.url).dialect == "postgresql":
            import asyncpg  # noqa: PLC0415  only where there is such a server

            for _ in range(self.in_flight):
                connection = await asyncpg.connect(plain_url(self.url))
                statement = await connection.prepare(sql + "$1")
                self._asks.append(statement.fetchrow)
                _connections.append(connection)
            return
        import aiomysql  # noqa: PLC0415  only where there is such a server

        known = DatabaseUrl.parse(self.url).resolve()
        login = {"host": known.host, "port": known.port, "user": known.user, "password": known.password or "", "db": known.database}
        for _ in range(self.in_flight):
            connection = await aiomysql.connect(autocommit=True, **login)
            self._asks.append(_by_cursor(connection, sql + "%s"))


def _by_cursor(connection: Any, sql: str) -> Callable[[int], Any]:
    async def ask(key: int) -> tuple[Any, ...] | None:
        async with connection.cursor() as cursor:
            await cursor.execute(sql, (key,))
            return await cursor.fetchone()  # type: ignore[no-any-return]

    return ask


def _kept(make: Callable[[], _T]) -> _T:
    """What this worker made in an earlier task: a worker of a cell's session knows one way to join."""
    if not _state:
        _state.append(make())
    return _state[0]  # type: ignore[no-any-return]


_state: list[Any] = []
_connections: list[Any] = []  # a prepared statement does not keep its connection
