"""What PostgreSQL's and asyncpg's errors mean to srj."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import asyncpg

from srj.databases import failures
from srj.errors import ConnectionFailedError, LookupFailedError, RequestError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from srj.errors import SrjError
    from srj.table import DatabaseUrl

_CANCELLED = "57014"
_REFUSED_LOGIN = "28"
_NO_DATABASE = "3D000"
_NO_PERMISSION = "42501"
# Connection trouble, shutdowns, too many connections or too little memory; what a replica does to queries that conflict with its
# recovery (40001, 40P01); a lock that others hold (55P03): all of them pass.
_TRANSIENT = ("08", "53", "57P", "40001", "40P01", "25P03", "55P03")
_NO_STATEMENT = "26000"
# What PgBouncer says for good, by the code of errors that pass.
_NO_TRANSACTION = "statement pooling"
_NO_PARAMETER = "unsupported startup parameter"


def _said(error: BaseException) -> str:
    """The server's words as part of a sentence."""
    message = getattr(error, "message", None) or str(error) or type(error).__name__
    detail = getattr(error, "detail", None)
    text = f"{message} ({detail})" if detail else str(message)
    return " ".join(text.split()).rstrip(".")


@contextmanager
def connecting(url: DatabaseUrl, timeout: float) -> Iterator[None]:
    """Translate what goes wrong while a connection is made."""
    place = failures.place_of(url)
    try:
        yield
    except TimeoutError as error:
        raise failures.unanswered(place, timeout) from error
    except asyncpg.PostgresError as error:
        raise _login_error(error, url) from error
    except asyncpg.ClientConfigurationError as error:
        raise RequestError(
            f"expected options that PostgreSQL knows in the URL of {place}, got: {_said(error)}; correct it"
        ) from error
    except (OSError, asyncpg.InterfaceError) as error:
        raise ConnectionFailedError(
            f"expected a PostgreSQL server at {place}, got: {_said(error)}; check host and port and that it is running"
        ) from error


def _login_error(error: asyncpg.PostgresError, url: DatabaseUrl) -> SrjError:
    code, place = error.sqlstate or "", failures.place_of(url)
    if code.startswith(_REFUSED_LOGIN):
        return failures.not_accepted(url, _said(error), "correct user, password or the server's pg_hba.conf")
    if code == _NO_DATABASE:
        return LookupFailedError(
            f"expected a database at {url.host}:{url.port}, got: {_said(error)}; correct the name after the host in the URL"
        )
    if _NO_PARAMETER in _said(error):
        return RequestError(
            f"expected options that the pooler at {place} passes on, got: {_said(error)}; leave it out of the URL and set it "
            "for the user with ALTER ROLE … SET"
        )
    if code.startswith(_TRANSIENT):
        return ConnectionFailedError(f"expected a connection to {place}, got: {_said(error)}; try again later")
    return failures.not_connected(place, _said(error))


@contextmanager
def asking(url: DatabaseUrl, table: str, timeout: float) -> Iterator[None]:
    """Translate what goes wrong while a table is asked."""
    place = failures.place_of(url)
    try:
        yield
    except (TimeoutError, asyncpg.QueryCanceledError) as error:
        raise failures.too_slow(place, table, timeout) from error
    except asyncpg.PostgresError as error:
        if _NO_TRANSACTION in _said(error):
            raise LookupFailedError(
                f"expected a pooler at {place} that keeps a transaction on one connection, got: {_said(error)}; let it pool "
                "transactions or sessions"
            ) from error
        if (error.sqlstate or "").startswith(_TRANSIENT):
            raise failures.not_now(place, table, _said(error)) from error
        if error.sqlstate == _NO_STATEMENT:
            raise LookupFailedError(
                f"expected the server at {place} to keep a prepared statement, got: {_said(error)}; let the pooler before it pool "
                "sessions"
            ) from error
        raise failures.not_answered(place, table, _said(error)) from error
    except asyncpg.InternalClientError as error:
        # So the driver puts it when the server has ended an idle connection, and the end itself has not arrived yet.
        raise failures.cut(place, table, _said(error)) from error
    except (asyncpg.UnsupportedClientFeatureError, asyncpg.DataError, UnicodeDecodeError) as error:
        raise LookupFailedError(
            f"expected values of table {table} at {place} that the driver can read, got: {_said(error)}; cast the column to text"
        ) from error
    except (OSError, asyncpg.InterfaceError) as error:
        raise failures.cut(place, table, _said(error)) from error


@contextmanager
def checking(table: str, part: str) -> Iterator[None]:
    """Translate the server's objection to a part of the user's request, such as ``where "price >> 3"``."""
    try:
        yield
    except asyncpg.PostgresError as error:
        code = error.sqlstate or ""
        if code == _CANCELLED or code.startswith(_TRANSIENT):
            raise
        if code == _NO_PERMISSION:
            raise failures.not_permitted(table, _said(error), "GRANT SELECT (and GRANT USAGE on its schema)") from error
        raise failures.not_valid(table, part, _said(error)) from error
