"""What a miss and a gigabyte of cache cost, given or measured."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, inf
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from srj.errors import RequestError
from srj.quantities import number_from, parse_size, shown, whole_number

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from srj.table import Table

ROW_BYTES = 100
"""What a row is taken to need in the cache where nobody says: a key and a few short columns."""
MISS_COST = 0.001
"""Seconds for a missed key where nobody says; a guess, which only matters where memory has a price too."""
LEAST_ROWS = 16
"""Of the smallest cache that is simulated: two sets of the columnar cache."""
_MOST = 1e15  # of bytes or seconds
_KEYS = 100_000  # of a cache by which the bytes of a key's rows are measured
GB = 1e9


@dataclass(frozen=True, kw_only=True)
class Prices:
    """What the tuner weighs.

    Attributes:
        miss_cost: seconds that the database works for a missed key.
        row_bytes: of a key's rows in the cache, with the key and what the cache adds.
        rows_per_key: of the table: a cache's size in rows counts rows, a trace keys.
        memory: most memory (``"512 MB"``, ``"100_000 rows"``, bytes as an int); None: no limit.
        memory_cost: what a gigabyte of cache has to save during the trace to be worth it, in seconds of the database's work; 0:
            memory is free up to its limit.
        batch_size: keys in a lookup that the measured cost suggests; None: not measured.
        origin: where the miss's cost and the row's bytes come from, for people.

    Raises:
        RequestError: a number or a size that is none.

    Example:
        >>> Prices(memory="1 MB", row_bytes=100).most_rows, Prices(memory="500 rows").most_rows
        (10000, 500)
    """

    miss_cost: float = MISS_COST
    row_bytes: float = ROW_BYTES
    memory: str | int | None = None
    memory_cost: float = 0.0
    batch_size: int | None = None
    rows_per_key: float = 1.0
    origin: str = f"{MISS_COST * 1e3:g} ms a missed key and {ROW_BYTES} bytes a key are assumed"

    def __post_init__(self) -> None:
        number_from("miss_cost", self.miss_cost, 0, above=True)
        number_from("row_bytes", self.row_bytes, 1)
        number_from("memory_cost", self.memory_cost, 0)
        for name in ("miss_cost", "row_bytes", "memory_cost"):
            if getattr(self, name) > _MOST:
                raise RequestError(
                    f"expected {name} as a number of at most {_MOST:g}, got {getattr(self, name):g}; give a smaller one"
                )
        if self.memory is not None:
            amount, unit = parse_size(self.memory)
            if unit == "bytes" and amount < LEAST_ROWS * self.row_bytes:
                raise RequestError(
                    f"expected memory for at least {LEAST_ROWS} keys of {self.row_bytes:,.4g} bytes, got {shown(self.memory)}; "
                    "give more"
                )
        if self.batch_size is not None:
            whole_number("batch_size", self.batch_size, 1, 100_000)

    @property
    def most_rows(self) -> float:
        """Keys that the memory holds, with their rows; infinite without a limit."""
        if self.memory is None:
            return inf
        amount, unit = parse_size(self.memory)
        return max(int(amount / (self.rows_per_key if unit == "rows" else self.row_bytes)), 1)

    def bytes_of(self, rows: float) -> float:
        """Memory for so many rows."""
        return rows * self.row_bytes

    def cost(self, misses: Any, rows: Any) -> Any:
        """Seconds for so many misses, and what the memory is worth; numbers or arrays.

        >>> Prices(miss_cost=0.5, row_bytes=1000, memory_cost=2.0).cost(10, 1_000_000)
        7.0
        """
        return misses * self.miss_cost + rows * (self.row_bytes * self.memory_cost / GB)


def priced(
    *,
    miss_cost: float | None = None,
    row_bytes: float | None = None,
    memory: str | int | None = None,
    memory_cost: float = 0.0,
    table: Table | None = None,
    key: Sequence[str] = (),
    timeout: float = 30.0,
    progress: Callable[[str], None] = lambda _step: None,
) -> Prices:
    """Prices as given, and measured at the table where they are not.

    Args:
        miss_cost, row_bytes, memory, memory_cost: as in `Prices`; None for the first two: measured if there is a table.
        table: whose lookups are measured, as by `srj check`.
        key: its key columns.
        timeout: seconds that a question to the database may take.
        progress: called with what is done next.

    Raises:
        SrjError: the table can't be used or reached.
    """
    batch, parts = None, []
    cost = MISS_COST if miss_cost is None else miss_cost
    width, rows_per_key = ROW_BYTES if row_bytes is None else row_bytes, 1.0
    if table is not None:
        measured, batch = _measured_cost(table, key, timeout, progress)
        if miss_cost is None and measured is not None:
            cost = measured
            together = "" if batch is None else f" with {batch:,} asked together"
            parts.append(f"{_time(cost)} a missed key measured at the table{together}")
        needed, rows_per_key = _measured_bytes(table, key, timeout)
        if row_bytes is None:
            width = needed
            parts.append(f"{width:,.0f} bytes a key by the table's columns")
    if miss_cost is not None:
        parts.append(f"{_time(cost)} a missed key as given")
    elif not any("missed key" in part for part in parts):
        parts.append(f"{_time(cost)} a missed key assumed")
    if row_bytes is not None:
        parts.append(f"{width:,.0f} bytes a key as given")
    elif table is None:
        parts.append(f"{width:,.0f} bytes a key assumed")
    return Prices(
        miss_cost=cost,
        row_bytes=width,
        memory=memory,
        memory_cost=memory_cost,
        batch_size=batch,
        rows_per_key=rows_per_key,
        origin="; ".join(parts),
    )


def _time(seconds: float) -> str:
    """For people.

    >>> _time(0.002), _time(0.00034), _time(1.5)
    ('2 ms', '340 µs', '1.5 s')
    """
    for unit, factor in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= 0.9995 * factor:
            return f"{seconds / factor:,.3g} {unit}"
    return f"{seconds * 1e6:,.3g} µs"


def _measured_cost(
    table: Table, key: Sequence[str], timeout: float, progress: Callable[[str], None]
) -> tuple[float | None, int | None]:
    """Seconds a key in lookups of the best size, and that size; None where the table has too few keys."""
    from srj.check import check  # noqa: PLC0415  only where a table is given

    report = check(table, key, timeout=timeout, progress=progress)
    if report.cost is None:
        trips = report.round_trips
        return (trips[-1].milliseconds / trips[-1].keys / 1e3, None) if trips else (None, None)
    line = report.cost
    return line.milliseconds / line.batch_size / 1e3 + line.microseconds_per_key / 1e6, line.batch_size


def _measured_bytes(table: Table, key: Sequence[str], timeout: float) -> tuple[float, float]:
    """Of a key's rows in the columnar cache, by the types and mean widths that the database tells; and how many these are."""
    from srj.databases.base import Question  # noqa: PLC0415  only where a table is given
    from srj.lookup.describe import describe  # noqa: PLC0415
    from srj.lookup.layout import Contents  # noqa: PLC0415
    from srj.lookup.make_cache import KEY_WIDTH  # noqa: PLC0415

    description = describe(Question(table.url, table.name, tuple(key), table.columns, table.where), timeout)
    columns = pa.schema([(column.name, column.stored) for column in description.columns])
    widths = [KEY_WIDTH] * len(description.key) + [column.width for column in description.columns]
    contents = Contents.of(
        [column.type for column in description.key],
        columns,
        unique=description.unique,
        rows_per_key=description.rows_per_key,
        widths=widths,
    )
    return contents.nbytes(None, ceil(_KEYS * contents.rows_of_a_key)) / _KEYS, contents.rows_of_a_key
