"""The exceptions of srj, one small tree.

::

    SrjError
    ├── RequestError (ValueError)     the call itself can't be right: an option, a type, a name; found on the driver
    │   └── TableError                the table can't be used: missing, not permitted, an unsupported type
    ├── MultipleMatchesError          on_multiple="error" and a key has several rows
    └── DatabaseError                 the database did not answer a question that was right
        ├── ConnectionFailedError     no connection, or it broke: worth another try
        ├── LookupTimeoutError        no answer in time
        └── LookupFailedError         refused by the database: another try would fail as well

Every message is one sentence: what was expected, what came, what to do. None holds a password.
"""

from __future__ import annotations


class SrjError(Exception):
    """The root: ``except SrjError`` catches whatever srj raises on purpose."""


class RequestError(SrjError, ValueError):
    """The call can't be right as written; raised on the driver, before any stream starts."""


class TableError(RequestError):
    """The table can't be used as asked: no such table or column, no permission, an unsupported type."""


class MultipleMatchesError(SrjError):
    """A key has several rows in the table though ``on_multiple="error"`` forbids it."""


class DatabaseError(SrjError):
    """The database did not answer a question that was right."""


class ConnectionFailedError(DatabaseError):
    """No connection could be made, or it broke. Worth another try."""


class LookupTimeoutError(DatabaseError):
    """The database did not answer within the time allowed."""


class LookupFailedError(DatabaseError):
    """The database refused the lookup; another try would fail as well."""
