"""`srj check`: can this table be joined, and how fast does it answer."""

from __future__ import annotations

import asyncio
import statistics
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from rich.markup import escape
from rich.table import Table as Grid

from srj.databases import database
from srj.databases.base import Question
from srj.databases.sampling import sample_keys
from srj.lookup.batching import Batching, Limits
from srj.lookup.engine import FLIGHT_BYTES, expected_bytes
from srj.options import Batch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa
    from rich.console import Console

    from srj.databases.base import Connection
    from srj.table import Table

BATCH_SIZES = (1, 10, 100, 1000)
_ROUNDS = 9  # an odd number has a median that was measured
_SECONDS_PER_SIZE = 2.0  # a slow table answers fewer rounds


@dataclass(frozen=True)
class ColumnReport:
    """A column as the database and as Spark spell its type."""

    name: str
    database_type: str
    spark_type: str


@dataclass(frozen=True)
class RoundTrip:
    """How long one lookup takes, from sending the keys to having the rows as Arrow columns.

    Attributes:
        keys: keys in the lookup, all of them in the table.
        rows: rows that came back in the last of the rounds.
        milliseconds: the median of the rounds.
        rounds: how often it was measured.
    """

    keys: int
    rows: int
    milliseconds: float
    rounds: int

    @property
    def keys_per_second(self) -> float:
        """What one connection with one lookup at a time reaches."""
        return self.keys / self.milliseconds * 1e3


@dataclass(frozen=True)
class Cost:
    """The straight line through the round trips, and the batch size that srj would find by it.

    Attributes:
        milliseconds: that a lookup takes whatever its size.
        microseconds_per_key: that each key adds.
        batch_size: keys in a lookup with ``batch="auto"``; fewer where rows are large.
    """

    milliseconds: float
    microseconds_per_key: float
    batch_size: int


@dataclass(frozen=True)
class Report:
    """What `srj check` found.

    Attributes:
        table: the table's address, without the password.
        server: product and version.
        key: the key's columns.
        columns: the columns that a join would add.
        unique: no key has more than one row.
        index: the index that serves the lookup, or None.
        rows: the database's estimate of the table's rows, or None.
        rows_per_key: estimated rows of a key.
        round_trips: one for each batch size for which the table has enough keys.
        cost: what lookups cost by their size, or None where there were fewer than two sizes.
        warnings: one sentence each.
        sql: the lookup statement.
    """

    table: str
    server: str
    key: tuple[ColumnReport, ...]
    columns: tuple[ColumnReport, ...]
    unique: bool
    index: str | None
    rows: int | None
    rows_per_key: float
    round_trips: tuple[RoundTrip, ...]
    cost: Cost | None
    warnings: tuple[str, ...]
    sql: str

    def as_json(self) -> dict[str, Any]:
        """The same as plain data, for `json.dumps`."""
        return asdict(self)


def check(
    table: Table, key: Sequence[str], *, timeout: float = 30.0, progress: Callable[[str], None] = lambda _step: None
) -> Report:
    """Describe a table and measure its lookups.

    Args:
        table: the table, with the columns and the condition of the join.
        key: names of the table's key columns.
        timeout: seconds that each question to the database may take.
        progress: called with what is done next.

    Raises:
        SrjError: the table can't be used, or the database not reached; one sentence.
    """
    return asyncio.run(_check(table, tuple(key), timeout, progress))


async def _check(table: Table, key: tuple[str, ...], timeout: float, progress: Callable[[str], None]) -> Report:
    question = Question(table.url, table.name, key, table.columns, table.where)
    engine = database(table.url.dialect)
    progress("describing the table")
    description = await engine.describe(question, timeout)
    progress("sampling keys")
    keys = await sample_keys(question, description, _ROUNDS * BATCH_SIZES[-1], timeout)
    connection = await engine.connect(question, description, timeout)
    try:
        round_trips = await _round_trips(connection, keys, timeout, progress)
    finally:
        await connection.close()
    return Report(
        table=f"{table.url}#{question.table}",
        server=description.server,
        key=tuple(_column(column.name, column.db_type, column.type) for column in description.key),
        columns=tuple(_column(column.name, column.db_type, column.type) for column in description.columns),
        unique=description.unique,
        index=description.index,
        rows=description.rows,
        rows_per_key=description.rows_per_key,
        round_trips=round_trips,
        cost=_cost(round_trips, timeout, expected_bytes(description)),
        warnings=(*description.warnings, *_sampling_warnings(len(keys[0]))),
        sql=description.sql,
    )


async def _round_trips(
    connection: Connection, keys: tuple[pa.Array, ...], timeout: float, progress: Callable[[str], None]
) -> tuple[RoundTrip, ...]:
    available = len(keys[0])
    sizes = [size for size in BATCH_SIZES if size <= available]
    found = []
    for size in sizes:
        progress(f"looking up {size:,} keys at a time")
        await connection.lookup(_window(keys, 0, size), timeout)  # the first one plans the statement
        found.append(await _round_trip(connection, keys, size, timeout))
    return tuple(found)


async def _round_trip(connection: Connection, keys: tuple[pa.Array, ...], size: int, timeout: float) -> RoundTrip:
    seconds: list[float] = []
    rows = 0
    windows = len(keys[0]) // size
    while len(seconds) < _ROUNDS and sum(seconds) < _SECONDS_PER_SIZE:
        batch = _window(keys, len(seconds) % windows, size)
        start = time.perf_counter()
        answer = await connection.lookup(batch, timeout)
        seconds.append(time.perf_counter() - start)
        rows = len(answer.ordinals)
    return RoundTrip(size, rows, round(statistics.median(seconds) * 1e3, 3), len(seconds))


def _cost(round_trips: tuple[RoundTrip, ...], timeout: float, bytes_of_a_key: float) -> Cost | None:
    if len(round_trips) < 2:
        return None
    batching = Batching(Limits.of(Batch(), timeout))
    for trip in round_trips:
        for _ in range(trip.rounds):
            batching.model.observe(trip.keys, trip.milliseconds / 1e3, is_steady=False)
    line = batching.model.line()
    if line is None:
        return None
    most = max(1, int(FLIGHT_BYTES / max(1.0, bytes_of_a_key)))
    return Cost(round(line.fixed * 1e3, 3), round(line.each * 1e6, 3), min(batching.best_size, most))


def _window(keys: tuple[pa.Array, ...], number: int, size: int) -> tuple[pa.Array, ...]:
    return tuple(column.slice(number * size, size) for column in keys)


def _sampling_warnings(available: int) -> tuple[str, ...]:
    if available == 0:
        return ("no row with a key was found, so no lookup was measured",)
    if available < BATCH_SIZES[-1]:
        return (f"only {available:,} different keys were found, so larger lookups were not measured",)
    return ()


def _column(name: str, database_type: str, arrow: pa.DataType) -> ColumnReport:
    from pyspark.sql.pandas.types import from_arrow_type  # noqa: PLC0415 - a second, and the database may refuse before

    return ColumnReport(name, database_type, from_arrow_type(arrow, prefer_timestamp_ntz=True).simpleString())


def show(report: Report, console: Console) -> None:
    """Print a report for people."""
    facts = Grid.grid(padding=(0, 2))
    facts.add_column(no_wrap=True)
    facts.add_column(overflow="fold")
    rows = "unknown" if report.rows is None else f"about {report.rows:,}"
    if report.rows is None:
        several = "not promised; how many rows a key has the database can't say before ANALYZE"
    else:
        several = f"not promised, for no unique index says so; about {report.rows_per_key:,.1f} rows a key"
    for label, value in (
        ("table", report.table),
        ("server", report.server),
        ("rows", rows),
        ("key is unique", "yes" if report.unique else several),
        ("index", report.index or _no_index(report)),
    ):
        facts.add_row(f"[bold]{label}", escape(value))
    console.print(facts)
    console.print(_columns_grid(report))
    if report.round_trips:
        console.print(_round_trips_grid(report))
    if report.cost is not None:
        console.print(
            f"By these a lookup takes {report.cost.milliseconds:,.2f} ms and {report.cost.microseconds_per_key:,.1f} µs a key: "
            f'with batch="auto" srj would ask {report.cost.batch_size:,} keys at a time.',
            soft_wrap=True,
        )
    for warning in report.warnings:
        console.print(f"[yellow]warning:[/] {escape(warning)}", soft_wrap=True)


def _no_index(report: Report) -> str:
    # On an empty table a database may plan with no index though there is one.
    return "none" if report.round_trips else "none seen, which says little as long as the table has no key"


def _columns_grid(report: Report) -> Grid:
    grid = Grid("column", "in the database", "in Spark", "", title="Columns", title_justify="left")
    for columns, role in ((report.key, "key"), (report.columns, "")):
        for column in columns:
            grid.add_row(escape(column.name), escape(column.database_type), escape(column.spark_type), role)
    return grid


def _round_trips_grid(report: Report) -> Grid:
    grid = Grid(title="Lookups, one at a time", title_justify="left")
    for heading in ("keys", "rows", "median ms", "keys/s"):
        grid.add_column(heading, justify="right")
    for trip in report.round_trips:
        grid.add_row(f"{trip.keys:,}", f"{trip.rows:,}", f"{trip.milliseconds:,.2f}", f"{trip.keys_per_second:,.0f}")
    return grid
