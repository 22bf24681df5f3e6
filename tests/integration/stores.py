"""A database of its own on a server, and what that server was asked."""

from __future__ import annotations

import asyncio
import json
import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import asyncpg
import pymysql

from srj.table import Table
from tests import servers

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.servers import Server


class Store:
    """A database made for a test module.

    Attributes:
        server: where it is.
        name: what it is called.
        url: its address, the administrator's password written out.
    """

    def __init__(self, server: Server, name: str) -> None:
        self.server = server
        self.name = name
        self.url = server.url_for(database=name)

    @property
    def is_postgres(self) -> bool:
        """PostgreSQL rather than MariaDB."""
        return self.server.kind == "postgresql"

    @property
    def place(self) -> str:
        """How messages name it."""
        return f"{self.server.host}:{self.server.port}/{self.name}"

    def table(self, name: str, **more: Any) -> Table:
        """One of its tables."""
        return Table(self.url, name, **more)

    def run(self, sql: str) -> list[tuple[Any, ...]]:
        """Run statements as the administrator; the rows of the last."""
        return self.server.execute(sql, database=self.name)

    def insert(self, table: str, rows: Sequence[tuple[Any, ...]]) -> None:
        """Fill a table with bound values, and let the planner know."""
        if rows and self.is_postgres:
            asyncio.run(self._copy(table, rows))
        elif rows:
            login = {"host": self.server.host, "port": self.server.port, "user": self.server.user, "password": self.server.password}
            with pymysql.connect(**login, ssl_disabled=True, database=self.name, charset="utf8mb4", autocommit=True) as connection:
                marks = ", ".join(["%s"] * len(rows[0]))
                connection.cursor().executemany(f"INSERT INTO {table} VALUES ({marks})", rows)
        self.run(f"ANALYZE {'' if self.is_postgres else 'TABLE '}{table}")

    async def _copy(self, table: str, rows: Sequence[tuple[Any, ...]]) -> None:
        connection = await asyncpg.connect(self.url)
        try:
            await connection.copy_records_to_table(table, records=rows)
        finally:
            await connection.close()

    @contextmanager
    def listening(self, table: str) -> Iterator[list[int]]:
        """The whole-number keys that the server's own log says were looked up in a table meanwhile; complete after the block."""
        asked: list[int] = []
        if self.is_postgres:
            log = self.server._owned()._folder / "server.log"
            before = log.stat().st_size
            yield asked
            text = log.read_bytes()[before:].decode(errors="replace")
            lookup = rf'execute [^:\n]*: SELECT [^\n]*srj_keys\.ord[^\n]* FROM "{table}"[^\n]*\n'
            parameter = r"[^\n]*DETAIL: +[Pp]arameters: \$1 = '\{([^}]*)\}'"
            asked += [int(key) for keys in re.findall(lookup + parameter, text) for key in keys.split(",")]
        else:
            self.run("SET GLOBAL log_output = 'TABLE'; SET GLOBAL general_log = ON; TRUNCATE mysql.general_log")
            try:
                yield asked
                rows = self.run(
                    f"SELECT argument FROM mysql.general_log WHERE argument LIKE '%JSON_TABLE(%`{self.name}`.`{table}`%'"
                )
            finally:
                self.run("SET GLOBAL general_log = OFF")
            for (argument,) in rows:
                text = argument.decode() if isinstance(argument, bytes) else argument
                literals = re.findall(r"JSON_TABLE\('(\[[^']*\])', '\$", text)
                asked += [key for literal in literals for (key,) in json.loads(literal)]


def open_store(server: Server, name: str) -> Iterator[Store]:
    """A store for a fixture, dropped after it. On PostgreSQL every statement in it is logged."""
    if server.kind == "postgresql":
        if server.control is None:  # one named by the environment, whose log can't be read
            server = servers.start_postgres()
        server.execute(f"CREATE DATABASE {name}")
        server.execute(f"ALTER DATABASE {name} SET log_statement = 'all'")
        yield Store(server, name)
        server.execute(f"DROP DATABASE {name} WITH (FORCE)")
    else:
        server.execute(f"CREATE DATABASE {name} CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin")
        yield Store(server, name)
        server.execute(f"DROP DATABASE {name}")
