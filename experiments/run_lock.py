"""One run at a time in a database: two would share tables that the first to end drops. And who knows of another on the machine."""

from __future__ import annotations

import asyncio
import fcntl
import os
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import asyncpg

from srj.errors import RequestError
from srj.experiments.relation import mysql_connection, postgresql_connection
from srj.table import DatabaseUrl

if TYPE_CHECKING:
    from collections.abc import Iterator

_NUMBER = 0x73726A5F65787072  # any that others hardly take
_NAME = "CONCAT('srj_experiment.', MD5(DATABASE()))"  # locks of MySQL are the whole server's
_YEAR = 31_536_000  # seconds


@contextmanager
def only_run(url: str) -> Iterator[None]:
    """Hold the database while this is open.

    Raises:
        RequestError: another run holds it.
        ConnectionFailedError: the server can't be reached.
    """
    holding = _postgresql(url) if DatabaseUrl.parse(url).dialect == "postgresql" else _mysql(url)
    with holding as is_ours:
        if not is_ours:
            raise RequestError(
                f"expected no other run at {DatabaseUrl.parse(url)}, got one that has not ended; wait for its end, or name another "
                "database"
            )
        yield


@contextmanager
def alone_here() -> Iterator[bool]:
    """Whether no other run of this user's measures on this machine while this is open; where that can't be known, True."""
    path = Path(tempfile.gettempdir()) / f"srj-experiments-{os.getuid()}.lock"
    try:
        file = os.open(path, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError:
        yield True
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        is_alone = True
    except OSError:
        is_alone = False
    try:
        yield is_alone
    finally:
        os.close(file)


@contextmanager
def _postgresql(url: str) -> Iterator[bool]:
    with asyncio.Runner() as runner:
        connection = runner.run(postgresql_connection(url))
        try:
            with suppress(asyncpg.PostgresError):  # servers before 14 end nobody who is idle
                runner.run(connection.execute("SET idle_session_timeout = 0"))
            yield runner.run(connection.fetchval("SELECT pg_try_advisory_lock($1)", _NUMBER))
        finally:
            connection.terminate()


@contextmanager
def _mysql(url: str) -> Iterator[bool]:
    connection = mysql_connection(url)
    try:
        with connection.cursor() as cursor:
            cursor.execute(f"SET SESSION wait_timeout = {_YEAR}")
            cursor.execute(f"SELECT GET_LOCK({_NAME}, 0)")
            is_ours = cursor.fetchone() == (1,)
        yield is_ours
    finally:
        connection.close()
