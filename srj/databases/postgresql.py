"""PostgreSQL through asyncpg."""

from __future__ import annotations

import asyncio
import math
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import urlencode

import asyncpg
import numpy as np
import pyarrow as pa

from srj.databases.base import Answer
from srj.databases.failures import too_large_row
from srj.databases.lists import shown
from srj.databases.postgresql_characters import REFUSED, Characters
from srj.databases.postgresql_describe import describe
from srj.databases.postgresql_errors import asking, connecting
from srj.databases.postgresql_sql import CHANGED, own_name
from srj.databases.postgresql_types import parameter, register_codecs
from srj.databases.postgresql_wire import joined_rows, numbers, read_columns
from srj.errors import LookupFailedError, LookupTimeoutError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import numpy.typing as npt

    from srj.databases.base import Column, Description, KeyColumn, Question
    from srj.table import DatabaseUrl

_CLOSE_SECONDS = 2.0
_TOO_LARGE, _NO_MEMORY = "54000", "53200"
# What would be ignored beside the URL's own parts.
_ELSEWHERE = {"host", "port", "user", "password", "dbname", "database", "service", "servicefile"}
_MAX_STATEMENT_TIMEOUT = 2**31 - 1  # milliseconds, the server's limit
# A large batch looks dear to the planner, but compiling its statement takes longer than running it.
_SETTINGS = ("jit = off",)
# What other clients of a pooler may have left on its connections, and what would change which rows are found, how they read or how
# long that takes. Not what each pooler keeps by itself for every client: encoding, time zone and the like.
_FOREIGN_SETTINGS = (
    *("role", "row_security", "search_path", "transform_null_equals", "array_nulls"),
    *("bytea_output", "extra_float_digits", "intervalstyle", "lc_monetary", "lc_numeric", "lc_time"),
    *("xmlbinary", "xmloption", "default_text_search_config", "quote_all_identifiers"),
    *("enable_indexscan", "enable_indexonlyscan", "enable_bitmapscan", "enable_nestloop", "statement_timeout", "lock_timeout"),
)
# A table of this name that another client has made for itself is not the one that is meant.
_NOT_TEMPORARY = (
    "SELECT pg_catalog.set_config('search_path', pg_catalog.concat_ws(', ', "
    "nullif(pg_catalog.current_setting('search_path'), ''), 'pg_temp'), true)"
)
# Where an index serves, one plan is right for any number of keys; planning anew costs 135 µs a batch, and overrates large ones.
INDEX_SETTINGS = (*_SETTINGS, "plan_cache_mode = force_generic_plan")


class PostgreSQL:
    """PostgreSQL, version 12 or later; see `srj.databases.base.Database`."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    async def describe(self, question: Question, timeout: float) -> Description:
        """Describe the question's table; see `Database.describe`."""
        async with _preparing(question, timeout) as connection:
            # A pooler tells its clients a number of its own, for it alone knows which server is to hear that they cancel.
            pooled = await connection.fetchval("SELECT pg_catalog.pg_backend_pid()") != connection.get_server_pid()
            async with _in_one_place(connection, question, pooled=pooled):
                description = replace(await describe(connection, question), pooled=pooled)
        await close_connection(connection)
        return description

    async def connect(self, question: Question, description: Description, timeout: float) -> PostgreSQLConnection:
        """Open a connection with the lookup prepared; see `Database.connect`."""
        async with _preparing(question, timeout) as connection:
            async with _in_one_place(connection, question, pooled=description.pooled):
                await register_codecs(connection, [part.type for part in description.key])
                if description.pooled:  # not kept, but its types are known from now on
                    await connection.prepare(description.sql, name="")
            statement = None
            if not description.pooled:
                statement = await connection.prepare(description.sql, name=own_name())
                # After it, for it alone leaves a transaction open, whose lock on the table would keep others from altering that.
                await connection.execute("; ".join(f"SET {setting}" for setting in _settings(description)))
        return PostgreSQLConnection(connection, statement, question, description)


def _settings(description: Description) -> tuple[str, ...]:
    return INDEX_SETTINGS if description.index else _SETTINGS


@asynccontextmanager
async def _in_one_place(connection: asyncpg.Connection, question: Question, *, pooled: bool) -> AsyncIterator[None]:
    """A transaction behind a pooler: the driver changes a setting while it learns of types, and takes that back afterwards."""
    if not pooled:
        yield
        return
    async with connection.transaction():
        await connection.execute(_own_settings(question.url))
        yield


def _own_settings(url: DatabaseUrl) -> str:
    """Statements that give a transaction, and it alone, the settings of a new connection, whoever had the pooler's before."""
    given = {name.lower() for name, _ in url.resolve().options}  # these a pooler keeps for each client, or refuses
    settings = [f"SET LOCAL {name} TO DEFAULT" for name in _FOREIGN_SETTINGS if name not in given]
    return "; ".join([*settings, _NOT_TEMPORARY])


@asynccontextmanager
async def _preparing(question: Question, timeout: float) -> AsyncIterator[asyncpg.Connection]:
    """A connection, which is closed if what is done with it fails, or takes longer than connecting left of the timeout."""
    started = asyncio.get_running_loop().time()
    connection = await open_connection(question.url, timeout)
    left = max(0.0, timeout - (asyncio.get_running_loop().time() - started))
    try:
        with asking(question.url, question.table, timeout):
            async with asyncio.timeout(left):
                yield connection
    except BaseException:
        await close_connection(connection)
        raise


class PostgreSQLConnection:
    """One connection with one lookup, prepared unless a pooler would forget it; see `srj.databases.base.Connection`."""

    def __init__(
        self,
        connection: asyncpg.Connection,
        statement: asyncpg.prepared_stmt.PreparedStatement | None,
        question: Question,
        description: Description,
    ) -> None:
        self._connection = connection
        self._statement = statement
        self._sql, self._settings = description.sql, _settings(description)
        self._own_settings = _own_settings(question.url)
        self._question = question
        self._watched: tuple[Column | KeyColumn, ...] = (*description.key, *description.columns)
        self._columns = description.columns
        self._schema = pa.schema([(part.name, part.stored) for part in description.columns])
        self._characters = Characters(connection)
        self._server_timeout, self._milliseconds = 0.0, 0

    async def lookup(self, keys: tuple[pa.Array, ...], timeout: float) -> Answer:
        """Answer a batch of keys; see `Connection.lookup`."""
        with asking(self._question.url, self._question.table, timeout):
            async with asyncio.timeout(timeout):
                await self._limit_server(timeout)
                return await self._ask(keys)

    async def _ask(self, keys: tuple[pa.Array, ...]) -> Answer:
        try:
            # Cancelled by the time-out, the driver asks the server to cancel the statement as well.
            (row,) = await self._fetch([parameter(part) for part in keys])
        except (asyncpg.ProgramLimitExceededError, asyncpg.OutOfMemoryError, asyncpg.InternalServerError) as error:
            if not _is_too_large(error) or (len(keys[0]) == 1 and error.sqlstate == _NO_MEMORY):  # which may pass
                raise
            if len(keys[0]) == 1:
                raise too_large_row(self._question.table, keys, str(error)) from error
            return await self._ask_halves(keys)
        except REFUSED:
            storable = await self._characters.storable(keys)
            if storable is None:  # a value can't be sent: that is no absence
                raise
            return await self._ask_some(keys, np.flatnonzero(storable))
        self._refuse_changes(row[CHANGED])
        return self._answer(row["srj_sent"])

    async def _fetch(self, parameters: list[object]) -> list[asyncpg.Record]:
        if self._statement is not None:
            rows: list[asyncpg.Record] = await self._statement.fetch(*parameters)
            return rows
        # Behind a pooler a statement and settings last for a transaction: other clients are next on the same connection.
        settings = "; ".join(f"SET LOCAL {setting}" for setting in (*self._settings, f"statement_timeout = {self._milliseconds}"))
        await self._connection.execute(f"BEGIN; {self._own_settings}; {settings}")
        try:
            rows = await self._connection.fetch(self._sql, *parameters)
        except asyncpg.PostgresError:
            await self._connection.execute("ROLLBACK")
            raise
        await self._connection.execute("COMMIT")
        return rows

    async def _ask_halves(self, keys: tuple[pa.Array, ...]) -> Answer:
        """The server builds no row of more than 1 GB, in which it sends its answer."""
        half = len(keys[0]) // 2
        first = await self._ask(tuple(part.slice(0, half) for part in keys))
        second = await self._ask(tuple(part.slice(half) for part in keys))
        rows = joined_rows([first.rows, second.rows], self._question.table)
        return Answer(np.concatenate([first.ordinals, second.ordinals + half]), rows)

    async def _ask_some(self, keys: tuple[pa.Array, ...], positions: npt.NDArray[np.int64]) -> Answer:
        answer = await self._ask(tuple(part.take(pa.array(positions)) for part in keys))
        return Answer(positions[answer.ordinals], answer.rows)

    def is_usable(self) -> bool:
        """Whether another lookup may be sent through it."""
        return not self._connection.is_closed()

    async def close(self) -> None:
        """Close it, without waiting long and without raising."""
        await close_connection(self._connection)

    async def _limit_server(self, timeout: float) -> None:
        """Let the server give up by itself where this process no longer can; set anew only when it would be far off."""
        if not timeout <= self._server_timeout <= 2 * timeout:
            self._milliseconds = math.ceil(min(timeout * 1000, _MAX_STATEMENT_TIMEOUT))
            if self._statement is not None:
                await self._connection.execute(f"SET statement_timeout = {self._milliseconds}")
            self._server_timeout = timeout

    def _refuse_changes(self, changed: list[str | None]) -> None:
        """Refuse a table whose columns are no longer of the types that were described."""
        for part, kind in zip(self._watched, changed, strict=True):
            if kind is not None:
                raise LookupFailedError(
                    f"expected column {part.name} of table {self._question.table} to stay of type {part.db_type}, got one of type "
                    f"{kind}; start the query again"
                )

    def _answer(self, sent: list[bytes | None]) -> Answer:
        ordinals = numbers(sent[0]) - 1
        if not self._columns:
            return Answer(np.sort(ordinals), _empty_columns(len(ordinals)))
        arrays = read_columns(sent[1:], [(part.name, part.stored, part.sql) for part in self._columns])
        rows = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        shown(rows, self._columns)  # what can't be unpacked is an error of this lookup, before anything of it is kept
        if np.any(ordinals[1:] < ordinals[:-1]):
            order = np.argsort(ordinals, kind="stable")
            return Answer(ordinals[order], rows.take(pa.array(order)))
        return Answer(ordinals, rows)


def _is_too_large(error: asyncpg.PostgresError) -> bool:
    """Within a few bytes of the limit not the text is refused but the memory for it."""
    return error.sqlstate in {_TOO_LARGE, _NO_MEMORY} or "invalid memory alloc request size" in str(error)


def _empty_columns(length: int) -> pa.RecordBatch:
    """A record batch of rows without columns."""
    return pa.RecordBatch.from_struct_array(pa.array([{}], pa.struct([])).take(pa.array(np.zeros(length, np.int64))))


async def open_connection(url: DatabaseUrl, timeout: float) -> asyncpg.Connection:
    """A connection to the URL's database; the URL's options go to the driver."""
    url = url.resolve()
    options = {"application_name": "srj", **dict(url.options)}
    with connecting(url, timeout):
        # Text comes as the bytes that the server sends, which are read as UTF-8 whatever other clients may want.
        options.pop("client_encoding", None)
        wanted = options.pop("connect_timeout", "0")
        if not wanted.isdecimal():
            raise asyncpg.ClientConfigurationError(f"connect_timeout={wanted!r} is no number of seconds")
        placed = sorted(_ELSEWHERE & options.keys())
        if placed:
            raise asyncpg.ClientConfigurationError(f"{placed[0]} among the options, though the URL has a place for it before them")
        return await asyncpg.connect(
            # In the form of a DSN the options mean what they mean to every PostgreSQL client; the others become settings.
            dsn=f"postgresql:///?{urlencode(options)}",
            host=url.host,
            port=url.port,
            user=url.user,
            password=url.password,
            database=url.database,
            timeout=min(timeout, int(wanted) or timeout),
            # Statements of the driver's own would be named alike in all processes too.
            statement_cache_size=0,
        )


async def close_connection(connection: asyncpg.Connection) -> None:
    """Close it within a moment, whatever state it is in."""
    try:
        with suppress(OSError, asyncpg.PostgresError, asyncpg.InterfaceError, LookupTimeoutError):
            await connection.close(timeout=_CLOSE_SECONDS)
    finally:
        if not connection.is_closed():
            connection.terminate()
