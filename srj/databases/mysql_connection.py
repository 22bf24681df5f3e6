"""A connection that answers batches of keys from one table of MySQL or MariaDB."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from srj.databases.base import Answer
from srj.databases.mysql_errors import asking
from srj.databases.mysql_sql import ORDINAL, limited
from srj.databases.mysql_types import decode, encode, keeps, keeps_key, result_name
from srj.errors import LookupFailedError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence

    from srj.databases.base import Column, Description, KeyColumn, Question
    from srj.databases.mysql_session import Session

    _Part = tuple[int, Sequence[tuple[bytes | None, ...]]]  # the position of its first key, its rows

# The server ends a statement at the timeout, and the connection lives on; only if nothing comes back for this much longer is the
# connection given up and its statement killed.
_GRACE = 0.5
_OVERHEAD = 256  # bytes of a packet that are neither the statement nor its keys: its head, the limit of time


class MySQLConnection:
    """An open connection, as a `srj.databases.base.Connection`."""

    def __init__(self, session: Session, question: Question, description: Description) -> None:
        self._session = session
        self._question = question
        self._description = description
        self._schema = pa.schema([(column.name, column.type) for column in description.columns])
        self._numbered = self._schema.insert(0, pa.field(ORDINAL, pa.int64()))

    async def lookup(self, keys: tuple[pa.Array, ...], timeout: float) -> Answer:
        """Answer a batch of keys; the errors are those of `srj.databases.base.Connection.lookup`."""
        with asking(self._question.url, self._question.table, timeout):
            try:
                async with asyncio.timeout(timeout + _GRACE):
                    parts = [part async for part in self._parts(keys, timeout)]
            except TimeoutError:
                await self._session.kill()
                raise
            return self._answer(parts)

    def is_usable(self) -> bool:
        """Whether another lookup may be sent through it."""
        return self._session.is_open()

    async def close(self) -> None:
        """Close it, without waiting long and without raising."""
        await self._session.close()

    async def _parts(self, keys: tuple[pa.Array, ...], timeout: float) -> AsyncIterator[_Part]:
        """The rows of each statement that the batch takes: one, unless it is too long for the server."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        columns = [encode(array) for array in keys]
        for offset, literal in self._literals(list(zip(*columns, strict=True)), 0):
            left = max(deadline - loop.time(), 0.001)
            sql = limited(self._description.sql, left, is_mariadb=self._session.is_mariadb)
            result = await self._session.query(sql % literal)
            self._compare_types(result.fields[1:])
            yield offset, result.rows

    def _compare_types(self, fields: Sequence[Any]) -> None:
        """Refuse columns that are no longer of the types that were described: values might be rounded or misread, keys missed."""
        columns, key = self._description.columns, self._description.key
        watched: tuple[Column | KeyColumn, ...] = (*columns, *key)
        kept = [keeps(column.type, field) for column, field in zip(columns, fields, strict=False)]
        kept += [keeps_key(one, field) for one, field in zip(key, fields[len(columns) :], strict=True)]
        for column, field, is_kept in zip(watched, fields, kept, strict=True):
            if not is_kept:
                raise LookupFailedError(
                    f"expected column {column.name} of table {self._question.table} to stay of type {column.db_type}, got one of "
                    f"type {result_name(field)}; start the query again"
                )

    def _literals(self, keys: list[tuple[Any, ...]], offset: int) -> Iterator[tuple[int, str]]:
        """The keys as an SQL literal, cut in halves as long as the server would refuse it as too long."""
        literal = self._session.literal(json.dumps(keys, ensure_ascii=False, separators=(",", ":")))
        room = self._session.max_packet - len(self._description.sql.encode()) - _OVERHEAD
        if 4 * len(literal) <= room or len(literal.encode()) <= room:
            yield offset, literal
        elif len(keys) > 1:
            middle = len(keys) // 2
            yield from self._literals(keys[:middle], offset)
            yield from self._literals(keys[middle:], offset + middle)
        # else: a single key longer than the server takes in is longer than any value that it holds, so it matches nothing

    def _answer(self, parts: list[_Part]) -> Answer:
        offsets = np.repeat([offset for offset, _ in parts], [len(rows) for _, rows in parts])
        rows = [row for _, part in parts for row in part]
        numbers, *values = zip(*rows, strict=True) if rows else [()] * (1 + len(self._schema))
        values = values[: len(self._schema)]
        # Counted from 1 by the server, in each statement anew.
        ordinals = decode(numbers, pa.int64(), ORDINAL).to_numpy() - 1 + offsets
        columns = [decode(column, field.type, field.name) for column, field in zip(values, self._schema, strict=True)]
        # With the ordinals as a column of its own, since a batch without columns would have no rows.
        batch = pa.RecordBatch.from_arrays([pa.array(ordinals), *columns], schema=self._numbered)
        if np.any(np.diff(ordinals) < 0):
            batch = batch.take(pa.array(np.argsort(ordinals, kind="stable")))
        return Answer(batch.column(0).to_numpy(), batch.select(range(1, batch.num_columns)))
