"""What every database offers to srj: one Protocol, and the plain data that passes through it.

A `Database` knows how to describe a table and how to open connections; a `Connection` answers batches of
keys. Nothing here knows a driver, Spark or the cache.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from srj.table import DatabaseUrl


@dataclass(frozen=True)
class Column:
    """A column that a lookup returns.

    Attributes:
        name: the name in the result, before any prefix.
        sql: what stands in the SELECT list: a quoted identifier, or the user's own expression.
        db_type: the type as the database spells it, for people: ``numeric(10,2)``.
        type: the Arrow type in which values arrive.
        width: estimated mean bytes of a value, used to divide the cache's memory; 0 for fixed-width types.
    """

    name: str
    sql: str
    db_type: str
    type: pa.DataType
    width: int = 0

    @property
    def stored(self) -> pa.DataType:
        """The Arrow type of values in an `Answer` and in the cache: lists are packed into bytes, see `srj.databases.lists`.

        >>> Column("tags", '"tags"', "text[]", pa.list_(pa.string())).stored
        DataType(binary)
        """
        return pa.binary() if pa.types.is_list(self.type) else self.type


@dataclass(frozen=True)
class KeyLimits:
    """Values that a key column can never hold though its Arrow type can: they match nothing and are not asked.

    Attributes:
        uuid: the column holds uuids, which travel as text; other text is impossible.
        no_nul: text with a NUL character is impossible (PostgreSQL refuses a whole statement for one).
        bmp_only: text with characters beyond U+FFFF is impossible (MySQL's utf8mb3).
        encoding: the database's encoding, as Python calls it; text that it can't express is impossible. None for UTF-8, and
            where only the database can say.
        lowest, highest: bounds of integers, and of dates (days) and timestamps (microseconds) since 1970, both inclusive.
        finite: floating-point numbers that are NaN or infinite are impossible.
        any_precision: the column holds decimals that its Arrow type can't; a stream's decimals must fit the Arrow type.
    """

    uuid: bool = False
    no_nul: bool = False
    bmp_only: bool = False
    encoding: str | None = None
    lowest: int | None = None
    highest: int | None = None
    finite: bool = False
    any_precision: bool = False


@dataclass(frozen=True)
class KeyColumn:
    """A column of the table that the stream's keys are compared with.

    Attributes:
        name: the column's name in the table.
        sql: its quoted identifier.
        db_type: its type as the database spells it, for people.
        type: the Arrow type to which stream keys are converted before they are asked.
        cast: the SQL type in which keys are compared, so that the table's index serves: ``int4``, ``text``, …
        limits: what the column can never hold.
    """

    name: str
    sql: str
    db_type: str
    type: pa.DataType
    cast: str
    limits: KeyLimits = KeyLimits()


@dataclass(frozen=True)
class Question:
    """What a lookup asks of one table, in the user's words; the same for every batch.

    Attributes:
        url: where the database is; secrets stay references until a connection is made.
        name: the identifiers that name the table: ``("public", "products")`` or ``("products",)``.
        key: the table's key columns, in the order in which keys are given.
        columns: names or SQL expressions (``"upper(name) AS title"``); None means all but the key's.
        where: an SQL condition on the table, or None.
        exists_only: only ask whether a row exists (semi and anti joins): no columns come back.
        first: keep one row a key, the first by `order_by`.
        order_by: an SQL ORDER BY list for `first`; None means the primary key.
    """

    url: DatabaseUrl
    name: tuple[str, ...]
    key: tuple[str, ...]
    columns: tuple[str, ...] | None = None
    where: str | None = None
    exists_only: bool = False
    first: bool = False
    order_by: str | None = None

    @property
    def table(self) -> str:
        """The table's name for people: ``public.products``."""
        return ".".join(self.name)


@dataclass(frozen=True)
class Description:
    """What the database says about a `Question`'s table.

    Attributes:
        server: product and version, for people: ``PostgreSQL 18.1``.
        key: the key's columns, in the question's order.
        columns: the columns that come back (none when only existence is asked).
        sql: the one lookup statement, the same text for every batch size.
        unique: no key has more than one row (a unique index or primary key within the key's columns, or `first`).
        index: the name of an index that serves the lookup, or None.
        rows: the database's estimate of the table's rows, or None when it has none.
        rows_per_key: estimated rows of a key that has any, at least 1.
        warnings: one sentence each, for the user.
        pooled: a pooler stands before the server, and may send each transaction through another of its connections.
    """

    server: str
    key: tuple[KeyColumn, ...]
    columns: tuple[Column, ...]
    sql: str
    unique: bool
    index: str | None
    rows: int | None = None
    rows_per_key: float = 1.0
    warnings: tuple[str, ...] = ()
    pooled: bool = False


@dataclass(frozen=True)
class Answer:
    """The rows that a batch of keys has.

    Attributes:
        ordinals: int64, never falling: row i answers the key at position ``ordinals[i]`` of the batch.
        rows: the table's columns of the `Description`, with their stored types. Has rows even when it has no columns
            (``ordinals`` alone then says what exists).
    """

    ordinals: npt.NDArray[np.int64]
    rows: pa.RecordBatch


class Connection(Protocol):
    """One open connection, for one lookup at a time."""

    async def lookup(self, keys: tuple[pa.Array, ...], timeout: float) -> Answer:
        """Answer a batch of keys.

        Args:
            keys: an array a key column, of the description's key types, of one length, without NULLs and without doubles.
            timeout: seconds until the statement is cancelled, in the database too.

        Raises:
            ConnectionFailedError: the connection broke.
            LookupTimeoutError: no answer in time.
            LookupFailedError: the database refused.
        """
        ...

    def is_usable(self) -> bool:
        """Whether another lookup may be sent through it."""
        ...

    async def close(self) -> None:
        """Close it, without waiting long and without raising."""
        ...


class Database(Protocol):
    """One database management system."""

    async def describe(self, question: Question, timeout: float) -> Description:
        """Describe the question's table; every mistake in the question is found here.

        Raises:
            TableError: with one sentence that names table and column and says what to do.
            LookupFailedError: the database refuses the login.
            ConnectionFailedError, LookupTimeoutError: it can't be reached, or did not answer in time.
        """
        ...

    async def connect(self, question: Question, description: Description, timeout: float) -> Connection:
        """Open a connection, ready for lookups.

        Raises:
            ConnectionFailedError: it can't be reached, or is not accepting connections now.
            LookupFailedError: it refuses the login (another try would fail as well).
        """
        ...
