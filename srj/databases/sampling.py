"""Keys that a table holds, for measuring its lookups."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Sequence

    from srj.databases.base import Description, Question


async def sample_keys(question: Question, description: Description, count: int, timeout: float) -> tuple[pa.Array, ...]:
    """Up to `count` different keys from the table's first rows, in random order, without NULLs.

    Args:
        question: the table, its key and its condition.
        description: what the database says of it.
        count: rows to read; fewer keys come back where rows share a key.
        timeout: seconds for connecting, and again for reading.

    Returns:
        An array a key column, of the description's key types.

    Raises:
        ConnectionFailedError, LookupTimeoutError, LookupFailedError: as for a lookup.
    """
    sample = _sample_mysql if question.url.dialect == "mysql" else _sample_postgresql
    columns = await sample(question, description, count, timeout)
    names = [f"key{position}" for position in range(len(columns))]
    distinct = pa.table(list(columns), names=names).group_by(names).aggregate([])
    # Neighbours in the table lie on the same pages; a stream's keys do not come in that order.
    order = np.random.default_rng(0).permutation(distinct.num_rows)
    shuffled = distinct.take(pa.array(order))
    return tuple(shuffled.column(name).combine_chunks() for name in names)


def _select(question: Question, table: str, key: Sequence[tuple[str, str]], count: int) -> str:
    """The statement; a condition stands on lines of its own, so that a comment in it ends."""
    conditions = [f"{column} IS NOT NULL" for column, _ in key]
    conditions += [] if question.where is None else [f"({question.where}\n)"]
    return f"SELECT {', '.join(value for _, value in key)} FROM {table} WHERE {' AND '.join(conditions)} LIMIT {count:d}"


async def _sample_postgresql(question: Question, description: Description, count: int, timeout: float) -> list[pa.Array]:
    from srj.databases.postgresql import close_connection, open_connection  # noqa: PLC0415 - each driver is imported only for its own URLs
    from srj.databases.postgresql_errors import asking  # noqa: PLC0415
    from srj.databases.postgresql_sql import quote  # noqa: PLC0415
    from srj.databases.postgresql_table import wire  # noqa: PLC0415
    from srj.databases.postgresql_wire import Sent, read_columns, send  # noqa: PLC0415

    names = [f"k{i}" for i in range(len(description.key))]
    key = [(one.sql, f"{one.sql} AS {name}") for one, name in zip(description.key, names, strict=True)]
    rows = _select(question, ".".join(quote(part) for part in question.name), key, count)
    sql = send([Sent(name, wire(one.type)) for one, name in zip(description.key, names, strict=True)], rows)
    connection = await open_connection(question.url, timeout)
    try:
        with asking(question.url, question.table, timeout):
            async with asyncio.timeout(timeout):
                sent = await connection.fetchval(sql)
    finally:
        await close_connection(connection)
    return read_columns(sent, [(one.name, one.type, one.sql) for one in description.key])


async def _sample_mysql(question: Question, description: Description, count: int, timeout: float) -> list[pa.Array]:
    from srj.databases.mysql_errors import asking  # noqa: PLC0415 - each driver is imported only for its own URLs
    from srj.databases.mysql_session import Session  # noqa: PLC0415
    from srj.databases.mysql_sql import quote  # noqa: PLC0415
    from srj.databases.mysql_types import decode, exact  # noqa: PLC0415

    key = [(one.sql, exact(one.sql, one.type)) for one in description.key]
    session = await Session.open(question.url, timeout)
    try:
        with asking(question.url, question.table, timeout):
            async with asyncio.timeout(timeout):
                result = await session.query(_select(question, quote(*question.name), key, count))
                return [decode([row[i] for row in result.rows], one.type, one.name) for i, one in enumerate(description.key)]
    finally:
        await session.close()
