"""A database in a few lines, for tests of what happens between batches: answers come when the test says, and may fail.

It stands in for a server only where a real one can't be made to answer in a chosen order; what databases really answer is
tested against real ones.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from srj.databases.base import Answer, Column, Description, KeyColumn, Question
from srj.errors import ConnectionFailedError
from srj.lookup.engine import Engine
from srj.lookup.spec import LookupSpec
from srj.options import Options, parse_options
from srj.table import DatabaseUrl

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy.typing as npt


@dataclass
class Scripted:
    """Rows of ``(id, value)`` by id, and what happens to each lookup.

    Attributes:
        rows: the values of each id.
        delay: seconds that the n-th lookup takes.
        fault: the error that the n-th lookup raises, or None.
        asked: the keys of every lookup that was sent, failed ones included.
        bare: whether rows come without columns, as where only existence is asked.
        refuses, attempts: whether no connection is accepted; how often one was asked for.
        open, most_open: connections now, and at most at a time.
    """

    rows: dict[Any, list[str]]
    delay: Callable[[int], float] = lambda _: 0.0
    fault: Callable[[int], Exception | None] = lambda _: None
    asked: list[list[Any]] = field(default_factory=list)
    open: int = 0
    bare: bool = False
    refuses: bool = False
    attempts: int = 0
    most_open: int = 0

    def rows_at(self, number: int) -> dict[Any, list[str]]:  # noqa: ARG002  for those whose rows change
        """The rows that the n-th lookup finds."""
        return self.rows

    async def connect(self, _timeout: float) -> ScriptedConnection:
        """Open a connection, at once, unless it refuses all."""
        self.attempts += 1
        if self.refuses:
            await asyncio.sleep(0.01)  # long enough for several to try at the same time
            raise ConnectionFailedError("refused")
        self.open += 1
        self.most_open = max(self.most_open, self.open)
        return ScriptedConnection(self)


@dataclass
class ScriptedConnection:
    """One connection to it."""

    database: Scripted

    async def lookup(self, keys: tuple[pa.Array, ...], timeout: float) -> Answer:  # noqa: ARG002  the Protocol's
        """Answer from the rows, after the delay, unless this lookup is to fail."""
        values = keys[0].to_pylist()
        number = len(self.database.asked)
        self.database.asked.append(values)
        await asyncio.sleep(self.database.delay(number))
        fault = self.database.fault(number)
        if fault is not None:
            raise fault
        rows = self.database.rows_at(number)
        found = [(ordinal, text) for ordinal, value in enumerate(values) for text in rows.get(value, [])]
        ordinals = np.array([ordinal for ordinal, _ in found], np.int64)
        found_rows = pa.record_batch({"value": pa.array([text for _, text in found], pa.string())})
        return Answer(ordinals, found_rows.select([]) if self.database.bare else found_rows)

    def is_usable(self) -> bool:
        """Always."""
        return True

    async def close(self) -> None:
        """Close it."""
        self.database.open -= 1


def scripted_engine(
    database: Scripted,
    *,
    unique: bool = False,
    clock: Callable[[], float] = time.monotonic,
    key_type: pa.DataType = pa.int64(),  # noqa: B008  types are immutable
    shared_as: str | None = None,
    **options: Any,
) -> Engine:
    """An engine over a scripted database with an integer key, or one of another type."""
    question = Question(DatabaseUrl.parse("postgresql://localhost/scripted"), ("scripted",), ("id",))
    key = (KeyColumn("id", '"id"', str(key_type), key_type, "int8"),)
    columns = () if database.bare else (Column("value", '"value"', "text", pa.string(), 16),)
    description = Description("scripted", key, columns, "SELECT", unique, "index", rows_per_key=2.0)
    typed: Options = {"cache": "1 MB", **options}  # type: ignore[typeddict-item]  # a test's free choice of options
    settings = parse_options(typed)
    spec = LookupSpec(question, description, settings.lookup, at_most_one=settings.on_multiple == "error")
    return Engine(spec, database.connect, clock, shared_as)


class ArrowRows:
    """Record batches as the operator's rows."""

    def take(self, rows: pa.RecordBatch, positions: Sequence[int]) -> pa.RecordBatch:
        """Some of them."""
        return rows.take(pa.array(positions))

    def concat(self, parts: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
        """Several, one after the other."""
        return pa.concat_batches(parts)

    def nbytes(self, rows: pa.RecordBatch) -> int:
        """Their memory."""
        return int(rows.nbytes)

    def positions(self, rows: pa.RecordBatch) -> npt.NDArray[np.int64]:
        """A column of that name."""
        return np.asarray(rows["position"])

    def times(self, rows: pa.RecordBatch) -> npt.NDArray[np.int64] | None:
        """A column of that name, if there is one."""
        return np.asarray(rows["time"]) if "time" in rows.schema.names else None
