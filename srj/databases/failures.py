"""What goes wrong with any database, in the words that all of them share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from srj.errors import ConnectionFailedError, LookupTimeoutError, TableError

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


def too_slow(place: str, table: str, timeout: float) -> LookupTimeoutError:
    """A statement was given up."""
    return LookupTimeoutError(
        f"expected an answer of table {table} at {place} within {timeout:g} s, got none; look for locks and for a missing index, "
        "or allow more time"
    )


def cut(place: str, table: str, said: str) -> ConnectionFailedError:
    """A connection broke."""
    return ConnectionFailedError(f"expected an open connection to {place} for table {table}, got: {said}; connect again")


def not_permitted(table: str, said: str, grant: str) -> TableError:
    """The user may not read the table."""
    return TableError(f"expected permission to read table {table}, got: {said}; run {grant} for this user")


def not_valid(table: str, part: str, said: str) -> TableError:
    """The server objects to a part of the user's request."""
    return TableError(f"expected SQL that is valid for table {table} in {part}, got: {said}; correct it")
