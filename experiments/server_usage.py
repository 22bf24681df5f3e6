"""What a way to join costs beside its time: queries counted at the server, its processor time, and memory."""

from __future__ import annotations

import asyncio
import os
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

import asyncpg

from srj.experiments.processes import descendants
from srj.experiments.relation import mysql_connection, plain_url
from srj.table import DatabaseUrl

if TYPE_CHECKING:
    from types import TracebackType

_TICKS = os.sysconf("SC_CLK_TCK")
_EXTENSION = "pg_stat_statements"
_IS_COUNTING = f"SELECT to_regclass('{_EXTENSION}') IS NOT NULL AND current_setting('{_EXTENSION}.track', true) IN ('top', 'all')"
_HERE = ("localhost", "127.0.0.1", "::1")
OWN = "srj.experiments"  # a setting that only the experiments' own server has, whose counting may be switched


@dataclass(frozen=True)
class Usage:
    """Counts of a server since it started; None: they can't be had.

    Attributes:
        queries: SELECTs that name the table, on PostgreSQL as pg_stat_statements has them; on MySQL and MariaDB all SELECTs.
        cpu: seconds of all its processes, of those that have ended too.
        executing: seconds for which PostgreSQL executed these queries.
    """

    queries: int | None
    cpu: float | None
    executing: float | None = None


class ServerUsage:
    """Reads a server's counts; a context manager, which has an own PostgreSQL count queries only while it is open.

    A server of the user's is left as it is: its queries are known where it counts them anyway and lets this user see them.

    Args:
        url: of the server.
        table: in the queries that are counted.
    """

    def __init__(self, url: str, table: str) -> None:
        self._url, self._table = url, table
        parsed = DatabaseUrl.parse(url).resolve()
        self._is_postgresql = parsed.dialect == "postgresql"
        # On another machine a process's number means another process, or nothing.
        self._is_here = parsed.host in _HERE
        self._counts = self._is_own = False
        self._process: int | None = None

    def __enter__(self) -> Self:
        if self._is_postgresql:
            asyncio.run(self._open())
        else:
            with mysql_connection(self._url) as connection, connection.cursor() as cursor:
                cursor.execute("SELECT @@datadir, @@pid_file")
                folder, name = cursor.fetchone()
            with suppress(OSError, ValueError):
                self._process = self._if_here(int((Path(folder) / name).read_text()))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._is_own:
            asyncio.run(self._switch(on=False))

    def __call__(self) -> Usage:
        """The counts now."""
        queries, executing = asyncio.run(self._postgresql_counts()) if self._is_postgresql else (self._mysql_queries(), None)
        return Usage(queries, None if self._process is None else _cpu(self._process), executing)

    async def _open(self) -> None:
        connection = await asyncpg.connect(plain_url(self._url))
        try:
            backend = await connection.fetchval("SELECT pg_backend_pid()")
            process = self._if_here(backend)
            self._process = None if process is None else _parent(process)
            self._is_own = await connection.fetchval(f"SELECT current_setting('{OWN}', true)") == "on"
            if self._is_own:
                await connection.execute(f"CREATE EXTENSION IF NOT EXISTS {_EXTENSION}")
            self._counts = self._is_own or bool(await connection.fetchval(_IS_COUNTING))
        finally:
            await connection.close()
        if self._is_own:
            await self._switch(on=True)

    async def _switch(self, *, on: bool) -> None:
        # For connections of this database that are made from now on: other experiments shall not pay for it.
        connection = await asyncpg.connect(plain_url(self._url))
        try:
            name = await connection.fetchval("SELECT quote_ident(current_database())")
            await connection.execute(f"ALTER DATABASE {name} SET {_EXTENSION}.track = '{'top' if on else 'none'}'")
        finally:
            await connection.close()

    async def _postgresql_counts(self) -> tuple[int | None, float | None]:
        if not self._counts:
            return None, None
        # An own server shall not count this; elsewhere an ordinary user may not say so, and the query does not name the table.
        settings = {f"{_EXTENSION}.track": "none"} if self._is_own else {}
        connection = await asyncpg.connect(plain_url(self._url), server_settings=settings)
        try:
            named = "query LIKE '%' || $1 || '%' AND query ILIKE '%SELECT%'"
            sums = "coalesce(sum(calls), 0)::bigint, coalesce(sum(total_exec_time), 0)::float8 / 1000"
            calls, seconds = await connection.fetchrow(f"SELECT {sums} FROM {_EXTENSION} WHERE {named}", self._table)
            return calls, seconds
        finally:
            await connection.close()

    def _if_here(self, process: int) -> int | None:
        return _of_a_server(process) if self._is_here else None

    def _mysql_queries(self) -> int:
        with mysql_connection(self._url) as connection, connection.cursor() as cursor:
            cursor.execute("SHOW GLOBAL STATUS LIKE 'Com_select'")
            return int(cursor.fetchone()[1])


class MemoryPeak:
    """The most memory at a time that this process and its descendants have more than when it was entered.

    So much a way to join takes: the JVM, Spark's Python workers, and what the driver's Python needs beside. What several processes
    share counts once for all of them (PSS). A context manager that looks every half second.

    Attributes:
        bytes: the peak; 0 where the system does not tell.
    """

    def __init__(self, every: float = 0.5) -> None:
        self.bytes = self._before = 0
        self._every, self._ended = every, threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._before = _pss_of_all()
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._ended.set()
        self._thread.join()

    def look(self) -> None:
        """Take what there is now into account."""
        self.bytes = max(self.bytes, _pss_of_all() - self._before)

    def _watch(self) -> None:
        while not self._ended.wait(self._every):
            self.look()


def _stat(process: int) -> list[str]:
    """What follows the name, which may hold spaces."""
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()


def _parent(process: int) -> int:
    return int(_stat(process)[1])


def _cpu(process: int) -> float:
    """Of the process and its children; what ended ones took, their parent knows."""
    ticks = sum(int(value) for value in _stat(process)[11:15])
    for child in descendants(process):
        with suppress(OSError):
            ticks += sum(int(value) for value in _stat(child)[11:13])
    return ticks / _TICKS


def _of_a_server(process: int) -> int | None:
    """A process by its number, if it is a server's."""
    with suppress(OSError):
        name = Path(f"/proc/{process}/comm").read_text()
        if any(server in name for server in ("postgres", "mysqld", "mariadbd")):
            return process
    return None


def _pss_of_all() -> int:
    return sum(_pss(process) for process in [os.getpid(), *descendants(os.getpid())])


def _pss(process: int) -> int:
    """0 of one that has ended, and where the system does not tell."""
    with suppress(OSError, ValueError, IndexError):
        for line in Path(f"/proc/{process}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return 1024 * int(line.split()[1])
    return 0
