"""What goes wrong with any database, in the words that all of them share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from srj.errors import ConnectionFailedError, LookupFailedError, LookupTimeoutError, TableError

if TYPE_CHECKING:
    from srj.table import DatabaseUrl


def place_of(url: DatabaseUrl) -> str:
    """Where a database is, for people."""
    return f"{url.host}:{url.port}/{url.database}"


def unanswered(place: str, timeout: float) -> ConnectionFailedError:
    """Nobody answered while a connection was made."""
    return ConnectionFailedError(
        f"expected a connection to {place} within {timeout:g} s, got no answer; check the host, the port and firewalls"
    )


def not_accepted(place: str, said: str, remedy: str) -> LookupFailedError:
    """The server knows who asks, and does not let this user in."""
    return LookupFailedError(f"expected a login that {place} accepts, got: {said}; {remedy}")


def not_connected(place: str, said: str) -> LookupFailedError:
    """The server answers, but allows no connection, for a reason that stays."""
    return LookupFailedError(f"expected a connection to {place}, got: {said}; correct the URL or the server's permissions")


def not_now(place: str, table: str, said: str) -> ConnectionFailedError:
    """The server could not answer a lookup, for a reason that passes."""
    return ConnectionFailedError(f"expected an answer of table {table} at {place}, got: {said}; try again later")


def not_answered(place: str, table: str, said: str) -> LookupFailedError:
    """The server did not answer a lookup, for a reason that stays."""
    return LookupFailedError(
        f"expected an answer of table {table} at {place}, got: {said}; correct the table, the expressions or the permissions"
    )


def too_slow(place: str, table: str, timeout: float) -> LookupTimeoutError:
    """A statement was given up."""
    return LookupTimeoutError(
        f"expected an answer of table {table} at {place} within {timeout:g} s, got none; look for locks and for a missing index, "
        "or allow more time"
    )


def cut(place: str, table: str, said: str) -> ConnectionFailedError:
    """A connection broke."""
    return ConnectionFailedError(f"expected an open connection to {place} for table {table}, got: {said}; try again later")


def not_permitted(table: str, said: str, grant: str) -> TableError:
    """The user may not read the table."""
    return TableError(f"expected permission to read table {table}, got: {said}; run {grant} for this user")


def not_valid(table: str, part: str, said: str) -> TableError:
    """The server objects to a part of the user's request."""
    return TableError(f"expected SQL that is valid for table {table} in {part}, got: {said}; correct it")
