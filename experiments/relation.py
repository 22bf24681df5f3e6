"""The thesis's relations R1, with an index, and R2, without: made where they are missing, and read whole for plain joins."""

from __future__ import annotations

import asyncio
import io
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

import asyncpg
import pyarrow as pa
from pyarrow import csv

from srj.errors import ConnectionFailedError, RequestError
from srj.table import DatabaseUrl

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    import numpy as np
    import numpy.typing as npt

PREFIX = "srj_experiment_"
_MARK = "made by srj experiment"  # comment of each table, by which what is ours is known
SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("price", pa.float64()), ("quantity", pa.int32())])
_GREETING = 10  # seconds that a server may take to let us in
_PATIENCE = 10  # seconds for which others may hold a table that is to be dropped
_COLUMNS = ", ".join(SCHEMA.names)
_DIGIT = "(SELECT 0 AS d " + " ".join(f"UNION ALL SELECT {digit}" for digit in range(1, 10)) + ")"


def relation_name(rows: int, *, indexed: bool) -> str:
    """The table's name.

    >>> relation_name(1000, indexed=True)
    'srj_experiment_r1_1000'
    """
    return f"{PREFIX}{'r1' if indexed else 'r2'}_{rows}"


def ensure_relation(url: str, rows: int, *, indexed: bool) -> str:
    """Make the table if it is not there: id from 0, a name of 16 characters, a price, a quantity. Its name.

    Raises:
        RequestError: there is a table of that name that was not made here.
        ConnectionFailedError: the server can't be reached.
    """
    name = relation_name(rows, indexed=indexed)
    if DatabaseUrl.parse(url).dialect == "postgresql":
        _with_postgresql(url, lambda connection: _ensure_postgresql(connection, name, rows, indexed=indexed))
    else:
        _ensure_mysql(url, name, rows, indexed=indexed)
    return name


def derived_columns() -> list[str]:
    """The columns of a row as Spark's SQL makes them from an id that the table has, with no table."""
    return [
        "id",
        "'item-' || lpad(CAST(id AS string), 11, '0') AS name",
        "id * 0.25D AS price",
        "CAST(id % 1000 AS int) AS quantity",
    ]


def read_relation(url: str, name: str) -> pa.Table:
    """All its rows, in any order, past srj."""
    if DatabaseUrl.parse(url).dialect == "postgresql":
        content = io.BytesIO()
        query = f"SELECT {_COLUMNS} FROM {name}"
        _with_postgresql(url, lambda connection: connection.copy_from_query(query, output=content, format="csv"))
        options = csv.ConvertOptions(column_types=SCHEMA)
        return csv.read_csv(
            pa.BufferReader(content.getvalue()), csv.ReadOptions(column_names=SCHEMA.names), convert_options=options
        )
    columns = zip(*_mysql(url, f"SELECT {_COLUMNS} FROM {name}"), strict=True)
    return pa.table([list(column) for column in columns], schema=SCHEMA)


def read_rows(url: str, name: str, keys: npt.NDArray[np.int64]) -> pa.Table:
    """Its rows with these ids, in any order, past srj."""
    if DatabaseUrl.parse(url).dialect == "postgresql":
        rows: list[Any] = []

        async def read(connection: asyncpg.Connection) -> None:
            rows.extend(await connection.fetch(f"SELECT {_COLUMNS} FROM {name} WHERE id = ANY($1::bigint[])", keys.tolist()))

        _with_postgresql(url, read)
    else:
        parts = (keys[begin : begin + 10_000].tolist() for begin in range(0, len(keys), 10_000))
        rows = [row for part in parts for row in _mysql(url, f"SELECT {_COLUMNS} FROM {name} WHERE id IN %s", part)]
    columns = zip(*rows, strict=True) if rows else ([] for _ in SCHEMA)
    return pa.table([list(column) for column in columns], schema=SCHEMA)


def drop_relations(url: str) -> list[str]:
    """Drop all tables that `ensure_relation` made in this database and schema; those that stay, each with the reason.

    Raises:
        ConnectionFailedError: the server can't be reached.
    """
    left: list[str] = []
    pattern = PREFIX.replace("_", "\\_") + "%"
    if DatabaseUrl.parse(url).dialect == "postgresql":

        async def drop(connection: asyncpg.Connection) -> None:
            await connection.execute(f"SET lock_timeout = '{_PATIENCE}s'")
            names = await connection.fetch(
                "SELECT oid::regclass::text FROM pg_class WHERE relkind = 'r' AND relname LIKE $1 "
                "AND relnamespace = to_regnamespace(quote_ident(current_schema())) AND obj_description(oid, 'pg_class') = $2",
                pattern,
                _MARK,
            )
            for (name,) in names:
                try:
                    await connection.execute(f"DROP TABLE {name}")
                except asyncpg.PostgresError as error:
                    left.append(f"{name} ({_first_line(error)})")

        _with_postgresql(url, drop)
    else:
        left += _drop_mysql(url, pattern)
    return left


def _drop_mysql(url: str, pattern: str) -> list[str]:
    from pymysql.err import MySQLError  # noqa: PLC0415  only where there is such a server

    left = []
    listed = "SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name LIKE %s"
    with mysql_connection(url) as connection, connection.cursor() as cursor:
        cursor.execute(f"SET SESSION lock_wait_timeout = {_PATIENCE}")
        cursor.execute(f"{listed} AND table_type = 'BASE TABLE' AND table_comment = %s", (pattern, _MARK))
        for (name,) in cursor.fetchall():
            try:
                cursor.execute(f"DROP TABLE `{name}`")
            except MySQLError as error:
                left.append(f"{name} ({_first_line(error)})")
    return left


def _first_line(error: Exception) -> str:
    return f"{error}".partition("\n")[0]  # PostgreSQL's hint would be to drop what is the user's


async def _ensure_postgresql(connection: asyncpg.Connection, name: str, rows: int, *, indexed: bool) -> None:
    if await connection.fetchval("SELECT to_regclass($1)", name):
        _check_mark(name, await connection.fetchval("SELECT obj_description(to_regclass($1), 'pg_class')", name))
        return
    # In one transaction: who is stopped in the middle leaves no table that looks whole.
    async with connection.transaction():
        await connection.execute(
            f"CREATE TABLE {name} AS SELECT id, 'item-' || lpad(id::text, 11, '0') AS name, id * 0.25::float8 AS price, "
            f"(id % 1000)::int AS quantity FROM generate_series(0::bigint, {rows - 1}) AS id"
        )
        if indexed:
            await connection.execute(f"ALTER TABLE {name} ADD PRIMARY KEY (id)")
        await connection.execute(f"COMMENT ON TABLE {name} IS '{_MARK}'")
    await connection.execute(f"VACUUM ANALYZE {name}")


def _ensure_mysql(url: str, name: str, rows: int, *, indexed: bool) -> None:
    comment = "SELECT table_comment FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = %s"
    for (found,) in _mysql(url, comment, name):
        _check_mark(name, found)
        return
    key = ", PRIMARY KEY (id)" if indexed else ""
    digits = len(f"{rows - 1}")
    number = " + ".join(f"d{place}.d * {10**place}" for place in range(digits))
    product = " CROSS JOIN ".join(f"{_DIGIT} d{place}" for place in range(digits))
    _mysql(url, f"DROP TABLE IF EXISTS {name}_part")
    _mysql(
        url, f"CREATE TABLE {name}_part (id BIGINT NOT NULL, name VARCHAR(16), price DOUBLE, quantity INT{key}) COMMENT '{_MARK}'"
    )
    _mysql(
        url,
        f"INSERT INTO {name}_part SELECT id, CONCAT('item-', LPAD(id, 11, '0')), id * 0.25, id % 1000 "
        f"FROM (SELECT {number} AS id FROM {product}) numbers WHERE id < {rows} ORDER BY id",
    )
    _mysql(url, f"ANALYZE TABLE {name}_part")
    _mysql(url, f"RENAME TABLE {name}_part TO {name}")  # only now does it look whole


def _check_mark(name: str, comment: str | None) -> None:
    if comment != _MARK:
        raise RequestError(f"expected the table {name} as srj's experiments make it, got another of that name; rename or drop it")


def _with_postgresql(url: str, work: Callable[[asyncpg.Connection], Awaitable[Any]]) -> None:
    async def run() -> None:
        connection = await postgresql_connection(url)
        try:
            await work(connection)
        finally:
            await connection.close()

    asyncio.run(run())


async def postgresql_connection(url: str) -> asyncpg.Connection:
    """A connection of asyncpg.

    Raises:
        ConnectionFailedError: there is none to be had.
    """
    # An option that is none of PostgreSQL's, a certificate that is not there, no IP address: asyncpg has no error for all.
    try:
        return await asyncpg.connect(plain_url(url), timeout=10)
    except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError, ValueError) as error:
        raise ConnectionFailedError(f"expected PostgreSQL at {DatabaseUrl.parse(url)}, got: {type(error).__name__}") from None


def server_version(url: str) -> str:
    """What the server says that it is.

    Raises:
        ConnectionFailedError: it can't be reached.
    """
    if DatabaseUrl.parse(url).dialect != "postgresql":
        return f"{_mysql(url, 'SELECT VERSION()')[0][0]}"
    found: list[str] = []

    async def ask(connection: asyncpg.Connection) -> None:
        found.append(await connection.fetchval("SHOW server_version"))

    _with_postgresql(url, ask)
    return found[0]


def plain_url(url: str, host: str | None = None, port: int | None = None) -> str:
    """For drivers that read URLs themselves: each ``${NAME}`` replaced; with another host and port, if any are given.

    >>> plain_url("postgres://reader@db/shop")
    'postgresql://reader@db:5432/shop'
    """
    known = DatabaseUrl.parse(url).resolve()
    login = ":".join(quote(part, safe="") for part in (known.user, known.password) if part is not None)
    query = f"?{urlencode(known.options)}" if known.options else ""
    host = known.host if host is None else host
    place = f"{f'[{host}]' if ':' in host else host}:{known.port if port is None else port}"
    return f"{known.dialect}://{login}{'@' if login else ''}{place}/{quote(known.database, safe='')}{query}"


def mysql_connection(url: str) -> Any:
    """A connection of `pymysql`, committing at once.

    Raises:
        ConnectionFailedError: there is none to be had.
    """
    import pymysql  # noqa: PLC0415  only where there is such a server

    known = DatabaseUrl.parse(url).resolve()
    login: dict[str, Any] = {"user": known.user, "password": known.password or "", "database": known.database}
    try:
        limits: dict[str, Any] = {"connect_timeout": _GREETING, "read_timeout": _GREETING, "write_timeout": _GREETING}
        made = pymysql.connect(host=known.host, port=known.port, charset="utf8mb4", autocommit=True, **login, **limits)
    except (pymysql.err.MySQLError, OSError, RuntimeError, ValueError) as error:
        code = f" {error.args[0]}" if error.args and isinstance(error.args[0], int) else ""  # its text may have the login
        raise ConnectionFailedError(f"expected MySQL at {DatabaseUrl.parse(url)}, got: {type(error).__name__}{code}") from None
    made._read_timeout = made._write_timeout = None  # noqa: SLF001  a statement may take long; it has no public name
    return made


def _mysql(url: str, sql: str, *values: object) -> list[tuple[Any, ...]]:
    with mysql_connection(url) as connection, connection.cursor() as cursor:
        cursor.execute(sql, values or None)
        return list(cursor.fetchall())
