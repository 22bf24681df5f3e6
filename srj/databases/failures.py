"""What goes wrong with any database, in the words that all of them share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from srj.errors import ConnectionFailedError, LookupFailedError, LookupTimeoutError, TableError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from srj.table import DatabaseUrl


def place_of(url: DatabaseUrl) -> str:
    """Where a database is, for people."""
    return f"{url.host}:{url.port}/{url.database}"


def unanswered(place: str, timeout: float) -> ConnectionFailedError:
    """Nobody answered while a connection was made."""
    return ConnectionFailedError(
        f"expected a connection to {place} within {timeout:g} s, got no answer; check the host, the port and firewalls"
    )


def not_accepted(url: DatabaseUrl, said: str, remedy: str) -> LookupFailedError:
    """The server knows who asks, and does not let this user in.

    Args:
        url: with its references resolved.
        said: by the server.
        remedy: what to do if the password is not empty.
    """
    if url.password == "":
        remedy = "the password is empty; write one as ${NAME} in the URL and set that environment variable for driver and executors"
    return LookupFailedError(f"expected a login that {place_of(url)} accepts, got: {said}; {remedy}")


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


def too_large_row(table: str, keys: Sequence[pa.Array], said: str) -> LookupFailedError:
    """A single key has more than the server can send."""
    return LookupFailedError(
        f"expected rows of at most 1 GB for each key of table {table}, got more for {shown(keys, 0)} ({said}); leave large columns "
        "out, or shorten them by an expression"
    )


def shown(keys: Sequence[pa.Array], position: int) -> str:
    """A key for people.

    >>> import pyarrow as pa
    >>> shown([pa.array(["a"]), pa.array([5_000_000], pa.date32())], 0)
    'a, 5000000 days since 1970'
    """
    return ", ".join(_shown(part, position) for part in keys)


def _shown(part: pa.Array, position: int) -> str:
    try:
        return str(part[position])
    except (OverflowError, ValueError):  # beyond Python's year 9999
        unit = {"date32[day]": "days"}.get(str(part.type), "microseconds")
        return f"{part.view('int32' if unit == 'days' else 'int64')[position]} {unit} since 1970"
