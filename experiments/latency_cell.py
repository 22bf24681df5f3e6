"""Where the time of a lookup goes, by the clocks of both sides: what figure 4.3 consists of."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import asdict, dataclass
from statistics import median
from typing import TYPE_CHECKING, Any, Literal

import asyncpg
import numpy as np
import pyarrow as pa

from srj import Batch, Cache
from srj.databases.mysql_session import Session
from srj.databases.postgresql import INDEX_SETTINGS
from srj.databases.postgresql_types import parameter
from srj.experiments.delay_proxy import apart
from srj.experiments.experiment import Measurement
from srj.experiments.joins import Ask, Core, OneByOne, lru_cache, relation_spec
from srj.experiments.plain_join import checksum, plain_join
from srj.experiments.rate_cell import far_away
from srj.experiments.relation import SCHEMA, ensure_relation, plain_url, read_relation
from srj.experiments.server_usage import ServerUsage
from srj.experiments.source import GIVEN_PIECE, GivenSource
from srj.lookup.engine import Engine
from srj.table import DatabaseUrl

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import numpy.typing as npt

    from srj.experiments.experiment import Cell, Checksum, Scale
    from srj.lookup.spec import LookupSpec

    I64 = npt.NDArray[np.int64]

PARTS = ("network", "server", "client", "engine")
_WARM = 5  # lookups before the first that counts: servers plan a statement anew in its first five runs
_PINGS = 9
_OPENINGS = 3
_CACHED = 16  # keys; every lookup asks for other ones
_WAITS = 10.0  # seconds


@dataclass(frozen=True)
class LatencyCell:
    """A lookup, and where the server is.

    Attributes:
        way: ``"one by one"``: the row of one key; ``"srj"``: a batch through srj's core.
        keys: of a lookup; of one by one just 1.
        delay: milliseconds of the network, each way.
        indexed: whether the relation's key has an index. relation: rows.
        lookups: that are measured. seed: of their keys.
    """

    way: Literal["one by one", "srj"]
    keys: int = 1
    delay: float = 0.0
    indexed: bool = False
    relation: int = 1_000_000
    lookups: int = 40
    seed: int = 1


def cells_of(scale: Scale, *points: Mapping[str, Any]) -> list[Cell]:
    """Cells for these points, with the sizes of the scale."""
    sizes: dict[Scale, dict[str, Any]] = {
        "smoke": {"relation": 20_000, "lookups": 5},
        "small": {},
        "paper": {"relation": 10_000_000, "lookups": 100},
    }
    return [asdict(LatencyCell(**{**sizes[scale], **point})) for point in points]


def run(cell: Cell, url: str) -> Measurement:
    """Medians of what each part takes; every row that comes out is compared with a plain join."""
    one = LatencyCell(**cell)
    keys = np.random.default_rng(one.seed).permutation(one.relation)
    table = ensure_relation(url, one.relation, indexed=one.indexed)
    relation = read_relation(url, table).sort_by("id")
    known = DatabaseUrl.parse(url).resolve()
    # The least: whatever is above it is this machine's.
    network = min(_connecting(known.host, known.port)) + min(_through_proxy(one.delay / 1000))
    with ExitStack() as stack:
        usage = stack.enter_context(ServerUsage(url, table))  # before connections are made whose statements it shall count
        place = stack.enter_context(far_away(url, one.delay / 1000))
        connection = median(_opening(place, table, one.indexed))
        bench = _core(place, table, one) if one.way == "srj" else _one_by_one(place, table, one, relation)
        lookups = _Lookups(stack.enter_context(bench), one.keys, keys, relation, usage)
        totals, asked, executed = lookups.measured(one.lookups)
    # Where the server counts no time, it is asked again, and says what it takes then.
    server = median(executed or _at_server(url, table, one, keys)[_WARM:])
    figures = {
        "total": median(totals),
        "network": network,
        "server": server,
        "client": median(asked) - network - server,
        "engine": median(total - within for total, within in zip(totals, asked, strict=True)),
        "connection": connection,
    }
    milliseconds = {name: round(1000 * seconds, 4) for name, seconds in figures.items()}
    return Measurement(milliseconds, *lookups.compared())


def label(cell: Cell) -> str:
    """A cell in a few words."""
    one = LatencyCell(**cell)
    place = f"{one.delay:g} ms away" if one.delay else "local"
    return f"{one.way}, {one.keys} key{'s' * (one.keys > 1)} ({place}{'' if one.indexed else ', no index'})"


def headline(figures: Mapping[str, Any]) -> str:
    """Its figures in a few words."""
    return f"{figures['total']:.2f} ms: " + ", ".join(f"{part} {figures[part]:.2f}" for part in PARTS)


class _Bench:
    """A join, and the seconds that its lookups have taken so far."""

    def __init__(self, join: Core | OneByOne, asked: Callable[[], float]) -> None:
        self.join, self.asked = join, asked


@contextmanager
def _core(url: str, table: str, cell: LatencyCell) -> Iterator[_Bench]:
    spec = _spec(url, table, cell.keys)
    with closing(Core(Engine(spec), "input")) as core:
        yield _Bench(core, lambda: core.database_seconds)


@contextmanager
def _one_by_one(url: str, table: str, cell: LatencyCell, relation: pa.Table) -> Iterator[_Bench]:
    ask = _Timed(url, table, indexed=cell.indexed)
    with closing(OneByOne(ask, lru_cache(_CACHED, np.zeros(0, np.int64), relation))) as join:
        yield _Bench(join, lambda: ask.seconds)


class _Timed(Ask):
    """It knows how long it has been asked in all."""

    seconds = 0.0

    async def __call__(self, key: int) -> tuple[Any, ...] | None:
        """As `Ask`."""
        begun = time.perf_counter()
        try:
            return await super().__call__(key)
        finally:
            self.seconds += time.perf_counter() - begun


class _Lookups:
    """Lookups of keys that were never asked before, one after the other."""

    def __init__(self, bench: _Bench, keys: int, stream: I64, relation: pa.Table, usage: ServerUsage) -> None:
        if not 0 < keys <= GIVEN_PIECE:
            raise ValueError(f"expected 1 to {GIVEN_PIECE} keys of a lookup, got {keys}")
        self._bench, self._keys, self._stream, self._relation, self._usage = bench, keys, stream, relation, usage
        self._taken = 0
        self._outputs: list[pa.Table] = []

    def measured(self, count: int) -> tuple[list[float], list[float], list[float]]:
        """Seconds that each took in all, within it the lookup itself, and the server by its own count; none where it has none."""
        found = [self._one() for _ in range(_WARM + count)][_WARM:]
        totals, asked, executed = zip(*found, strict=True)
        return list(totals), list(asked), [seconds for seconds in executed if seconds is not None]

    def compared(self) -> tuple[Checksum, Checksum]:
        """Of what came out, and of a plain join; after all that is measured, as these take longer than a lookup."""
        given = self._stream.take(np.arange(self._taken), mode="wrap")
        return checksum(pa.concat_tables(self._outputs).combine_chunks()), checksum(plain_join(given, self._relation))

    def _one(self) -> tuple[float, float, float | None]:
        source = GivenSource(self._stream, self._taken, self._keys)
        executing = self._usage().executing
        before, begun = self._bench.asked(), time.perf_counter()
        output = self._bench.join.carry(source)
        total = time.perf_counter() - begun
        self._taken += self._keys
        self._outputs += output
        asked, after = self._bench.asked() - before, self._usage().executing
        return total, asked, None if executing is None or after is None else after - executing


def _spec(url: str, table: str, keys: int) -> LookupSpec:
    # A cache of the usual size: one that is full with a single answer does nothing but make room.
    return relation_spec(url, table, Batch(size=keys, in_flight=1), Cache(ttl=None, shared=False))


def _opening(url: str, table: str, indexed: bool) -> Iterator[float]:
    """Seconds that a connection of its own would add to each lookup, as in the thesis's figure."""
    for _ in range(_OPENINGS):
        begun = time.perf_counter()
        ask = Ask(url, table, indexed=indexed)
        yield time.perf_counter() - begun
        ask.close()


def _connecting(host: str, port: int) -> Iterator[float]:
    """Seconds of a round trip: what the server's kernel takes to accept a connection."""
    for _ in range(_PINGS):
        begun = time.perf_counter()
        with socket.create_connection((host, port), _WAITS):
            yield time.perf_counter() - begun


def _through_proxy(seconds: float) -> Iterator[float]:
    """Seconds of a round trip through a proxy of that delay, whose other end sends back what it gets; 0 for none."""
    if not seconds:
        yield 0.0
        return
    with (
        _echo() as port,
        apart("127.0.0.1", port, seconds) as proxy,
        socket.create_connection(("127.0.0.1", proxy), _WAITS) as there,
    ):
        for _ in range(_PINGS):
            begun = time.perf_counter()
            there.sendall(b"?")
            there.recv(1)
            yield time.perf_counter() - begun


@contextmanager
def _echo() -> Iterator[int]:
    """The port of one connection's echo."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with suppress(OSError):
                connection, _ = server.accept()
                with connection:
                    while data := connection.recv(64):
                        connection.sendall(data)

        thread = threading.Thread(target=serve, name="echo", daemon=True)
        thread.start()
        yield server.getsockname()[1]


def _at_server(url: str, table: str, cell: LatencyCell, keys: I64) -> list[float]:
    """Seconds that the server itself says that it executes for, with the statement and the settings of the way."""
    sql = _spec(url, table, cell.keys).description.sql if cell.way == "srj" else None
    # The keys of the lookups that are measured: without an index it is their places in the table that decide how long a scan takes.
    asked = [keys[number * cell.keys :][: cell.keys] for number in range(_WARM + cell.lookups)]
    if DatabaseUrl.parse(url).dialect == "postgresql":
        return asyncio.run(_explained(url, sql or _one_row(table, "$1"), cell, asked))
    return asyncio.run(_profiled(url, sql or _one_row(table, "%s"), cell, asked))


def _one_row(table: str, place: str) -> str:
    return f"SELECT {', '.join(SCHEMA.names[1:])} FROM {table} WHERE id = {place}"


async def _explained(url: str, sql: str, cell: LatencyCell, asked: list[I64]) -> list[float]:
    """By EXPLAIN ANALYZE, which counts rows at each step and so takes longer than the statement."""
    connection = await _connected(url, cell)
    try:
        found = []
        for keys in asked:
            explained = await connection.fetchval(
                f"EXPLAIN (ANALYZE, TIMING OFF, BUFFERS OFF, FORMAT JSON) {sql}", _value(cell, keys)
            )
            found.append(json.loads(explained)[0]["Execution Time"] / 1000)
        return found
    finally:
        await connection.close()


async def _connected(url: str, cell: LatencyCell) -> asyncpg.Connection:
    """With the settings of the ways' own connections."""
    connection = await asyncpg.connect(plain_url(url))
    await connection.execute("; ".join(f"SET {one}" for one in (INDEX_SETTINGS if cell.indexed else INDEX_SETTINGS[:1])))
    return connection


def _value(cell: LatencyCell, keys: I64) -> Any:
    return parameter(pa.array(keys)) if cell.way == "srj" else int(keys[0])


async def _profiled(url: str, sql: str, cell: LatencyCell, asked: list[I64]) -> list[float]:
    session = await Session.open(DatabaseUrl.parse(url), _WAITS)
    try:
        if cell.way == "srj" and not cell.indexed:
            await session.prefer_hash_joins()  # as srj's own connections do
        await session.query("SET profiling = 1")
        found = []
        for keys in asked:
            value = json.dumps([[key] for key in keys.tolist()]) if cell.way == "srj" else int(keys[0])
            await session.query(sql % session.literal(value))
            profiles = (await session.query("SHOW PROFILES")).rows
            found.append(float(profiles[-1][1] or 0))
        return found
    finally:
        await session.close()
