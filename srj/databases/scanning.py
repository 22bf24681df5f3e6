"""A table's column from top to bottom, piece by piece: for a table that holds a stream's past."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from srj.databases import database

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from srj.databases.base import Description, KeyColumn, Question

PIECE = 65_536
"""Rows of a piece."""


async def scan(question: Question, timeout: float) -> AsyncGenerator[tuple[int | None, tuple[pa.Array, ...]], None]:
    """The key columns of all rows, NULLs included, in the order of `order_by`, else as the server reads them.

    Args:
        question: the table, its key columns, its condition and its order.
        timeout: seconds for connecting, and for each piece; where the server has to sort first, for that too.

    Yields:
        The database's estimate of the table's rows, and a piece: an array a key column, integers as such and others as text.

    Raises:
        ConnectionFailedError, LookupTimeoutError, LookupFailedError, TableError: as for a lookup.
    """
    description = await database(question.url.dialect).describe(question, timeout)
    pieces = _of_mysql if question.url.dialect == "mysql" else _of_postgresql
    # Closed by name: an iterator that is only dropped closes its connection at some later time.
    async with aclosing(pieces(question, description, timeout)) as found:
        async for rows in found:
            columns = zip(*rows, strict=True)
            arrays = tuple(_array(list(values), key) for values, key in zip(columns, description.key, strict=True))
            yield description.rows, arrays


def _array(values: list[Any], key: KeyColumn) -> pa.Array:
    if not pa.types.is_integer(key.type):
        # MySQL sends text as bytes in the column's character set: which bytes is all that matters here.
        return pa.array([value.decode("latin-1") if isinstance(value, bytes) else value for value in values], pa.string())
    if values and any(isinstance(value, bytes) for value in values):
        return pa.array(values, pa.binary()).cast(pa.string()).cast(key.type)
    return pa.array(values, key.type)


def _statement(question: Question, table: str, values: Sequence[str]) -> str:
    """A condition or an order stands on lines of its own, so that a comment in it ends."""
    where = "" if question.where is None else f" WHERE ({question.where}\n)"
    order = "" if question.order_by is None else f" ORDER BY {question.order_by}\n"
    return f"SELECT {', '.join(values)} FROM {table}{where}{order}"


async def _of_postgresql(question: Question, description: Description, timeout: float) -> AsyncGenerator[Sequence[Any], None]:
    from srj.databases.postgresql import close_connection, open_connection  # noqa: PLC0415 - each driver is imported only for its own URLs
    from srj.databases.postgresql_errors import asking  # noqa: PLC0415
    from srj.databases.postgresql_sql import quote  # noqa: PLC0415

    values = [key.sql if pa.types.is_integer(key.type) else f"({key.sql})::pg_catalog.text" for key in description.key]
    sql = _statement(question, ".".join(quote(part) for part in question.name), values)
    connection = await open_connection(question.url, timeout)
    try:
        with asking(question.url, question.table, timeout):
            async with connection.transaction(readonly=True):
                cursor = await connection.cursor(sql)
                while rows := await asyncio.wait_for(cursor.fetch(PIECE), timeout):
                    yield rows
    finally:
        await close_connection(connection)


async def _of_mysql(question: Question, description: Description, timeout: float) -> AsyncGenerator[Sequence[Any], None]:
    import aiomysql  # noqa: PLC0415 - each driver is imported only for its own URLs

    from srj.databases.mysql_errors import asking  # noqa: PLC0415
    from srj.databases.mysql_session import Session  # noqa: PLC0415
    from srj.databases.mysql_sql import quote  # noqa: PLC0415
    from srj.databases.mysql_types import exact  # noqa: PLC0415

    sql = _statement(question, quote(*question.name), [exact(key.sql, key.type) for key in description.key])
    session = await Session.open(question.url, timeout)
    try:
        with asking(question.url, question.table, timeout):
            # The session's own `query` keeps all rows; a past of millions would not fit.
            cursor = await session.streaming(aiomysql.SSCursor)
            await asyncio.wait_for(cursor.execute(sql), timeout)
            while rows := await asyncio.wait_for(cursor.fetchmany(PIECE), timeout):
                yield rows
    finally:
        await session.close()
