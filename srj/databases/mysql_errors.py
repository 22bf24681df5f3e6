"""What MySQL's, MariaDB's and their driver's errors mean to srj."""

from __future__ import annotations

import ssl
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyarrow as pa
from pymysql import err

from srj.databases import failures
from srj.errors import ConnectionFailedError, DatabaseError, LookupFailedError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from srj.table import DatabaseUrl

DriverError = err.Error

# 1040, 1203, 1226: too many connections. 1053, 1927, 3169, 4031: shut down, killed, idle too long. 1158-1161: the network.
# 2002, 2003, 2006, 2013, 2055: the driver's own. 1205, 1213, 1412: a lock or a changing table definition; the connection is still
# good then, but what helps is the same: another try a moment later.
_CONNECTION = {1040, 1042, 1053, 1077, 1079, 1158, 1159, 1160, 1161, 1203, 1226, 1927, 2002, 2003, 2006, 2013, 2055, 3169, 4031}
_TRANSIENT = _CONNECTION | {1205, 1213, 1412}
# 1317: interrupted (killed by somebody); 1969: MariaDB's limit; 3024: MySQL's.
_TIMEOUT = {1317, 1969, 3024}
# 1253: a collation of another character set; 1267: two that don't go together.
_CHARACTERS = {1253, 1267}
_LOGIN = {1045, 1130, 1251, 1698, 1820, 1862, 2059, 2061, 3118, 4151}
_NO_DATABASE = {1044, 1049}
_PERMISSION = {1142, 1143, 1227, 1345, 1370}
# AssertionError and IndexError: the driver's, when an answer breaks off inside a packet.
_BROKEN = (OSError, EOFError, AssertionError, IndexError)


@contextmanager
def connecting(url: DatabaseUrl, timeout: float) -> Iterator[None]:
    """Translate what goes wrong while a connection is made."""
    place = failures.place_of(url)
    try:
        yield
    except TimeoutError as error:
        raise failures.unanswered(place, timeout) from error
    except err.Error as error:
        if isinstance(error.__cause__, TimeoutError):
            raise failures.unanswered(place, timeout) from error
        if isinstance(error.__cause__, ssl.SSLCertVerificationError):
            raise LookupFailedError(
                f"expected a certificate of {place} that can be verified, got: {_said(error)}; name its issuer by "
                "ssl_ca=/path/to/ca.pem"
            ) from error
        raise _connection_error(error, url) from error
    except _BROKEN as error:
        raise ConnectionFailedError(
            f"expected a MySQL or MariaDB server at {place}, got: {_said(error)}; check host and port and that it is running"
        ) from error
    except RuntimeError as error:  # the driver lacks what the server's login method needs
        raise LookupFailedError(
            f"expected to log in at {place}, but the driver said: {_said(error)}; install it, or encrypt with ?ssl=true in the URL"
        ) from error


@contextmanager
def asking(url: DatabaseUrl, table: str, timeout: float) -> Iterator[None]:
    """Translate what goes wrong while a table is asked."""
    place = failures.place_of(url)
    try:
        yield
    except TimeoutError as error:
        raise failures.too_slow(place, table, timeout) from error
    except err.Error as error:
        code = _number(error)
        if code in _TIMEOUT:
            raise failures.too_slow(place, table, timeout) from error
        if code in _CHARACTERS:
            raise LookupFailedError(
                f"expected the key columns of table {table} at {place} to keep their character sets, got: {_said(error)}; start "
                "the query again"
            ) from error
        if code is None or code in _TRANSIENT:
            raise failures.not_now(place, table, _said(error)) from error
        raise failures.not_answered(place, table, _said(error)) from error
    except _BROKEN as error:
        raise failures.cut(place, table, _said(error)) from error
    except pa.ArrowException as error:
        raise LookupFailedError(
            f"expected values of table {table} at {place} of the types that it had at the start, got: {_said(error)}; start again"
        ) from error


@contextmanager
def checking(table: str, part: str) -> Iterator[None]:
    """Translate the server's objection to a part of the user's request, such as ``where 'price >> 3'``."""
    try:
        yield
    except err.Error as error:
        code = _number(error)
        if code is None or code in _TRANSIENT or code in _TIMEOUT:
            raise
        if code in _PERMISSION:
            raise failures.not_permitted(table, _said(error), "GRANT SELECT") from error
        raise failures.not_valid(table, part, _said(error)) from error


def _connection_error(error: err.Error, url: DatabaseUrl) -> DatabaseError:
    code, place = _number(error), failures.place_of(url)
    if code in _LOGIN:
        return failures.not_accepted(url, _said(error), "correct the user or the password in the URL")
    if code in _NO_DATABASE:
        return LookupFailedError(
            f"expected a database at {url.host}:{url.port} that this user may read, got: {_said(error)}; correct the name after "
            "the host in the URL, or grant it"
        )
    if code is None or code in _TRANSIENT:
        return ConnectionFailedError(
            f"expected a connection to {place}, got: {_said(error)}; check the host, the port and that it is running"
        )
    return failures.not_connected(place, _said(error))


def _number(error: err.Error) -> int | None:
    """The server's or driver's error number, if it gave one."""
    first = error.args[0] if error.args else None
    return first if isinstance(first, int) and first else None


def _said(error: BaseException) -> str:
    """The server's words as part of a sentence."""
    cause = error.__cause__
    if isinstance(cause, OSError) and str(cause):  # the driver's own words leave out why: refused, unknown host
        return " ".join(str(cause).split())
    text = error.args[1] if len(error.args) > 1 else str(error) or type(error).__name__
    return " ".join(str(text).split()).rstrip(".")
