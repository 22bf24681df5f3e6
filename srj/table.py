"""Where the relation lives: `Table`, and the URL it is named by.

Secrets stay references for as long as possible: ``${NAME}`` in a URL is replaced by the environment variable of that
name only where a connection is made. A password written out in the URL is kept out of `repr`, errors and pickles.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, quote, unquote

from srj.errors import LookupFailedError, RequestError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_DIALECTS = {
    "postgresql": "postgresql",
    "postgres": "postgresql",
    "mysql": "mysql",
    "mariadb": "mysql",
}
_PORTS = {"postgresql": 5432, "mysql": 3306}
# Not urlsplit: it lowers the host, drops tabs and line ends, and takes what follows a raw / or ? in a password for the rest.
_URL = re.compile(
    r"(?P<scheme>[A-Za-z]+)://"
    r"(?:(?P<user>[^:@/?]*)(?::(?P<password>[^@/?]*))?@)?"
    r"(?:\[(?P<address>[0-9A-Fa-f:.%]+)\]|(?P<host>[^:@/?\[\]]*))(?::(?P<port>\d{1,5}))?"
    r"(?:/(?P<database>[^/?@]*))?(?:\?(?P<query>.*))?"
)
_SPACE = re.compile(r"[\x00-\x20\x7f]")
_SECRET_OPTION = re.compile(r"(?!passfile$).*(pass|pwd|secret)", re.IGNORECASE)
_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_SHAPE = "postgresql://user@host:port/database#schema.table"


@dataclass(frozen=True)
class DatabaseUrl:
    """A parsed database URL: ``postgresql://user:${DB_PASSWORD}@host:5432/database?option=value``.

    Attributes:
        dialect: ``postgresql`` or ``mysql`` (MariaDB speaks it).
        host, port, user, password, database: as written; ``${NAME}`` is not yet replaced.
        options: the query part, in its order.
    """

    dialect: str
    host: str
    port: int
    user: str | None
    password: str | None = field(repr=False)
    database: str
    options: tuple[tuple[str, str], ...] = ()

    @classmethod
    def parse(cls, text: str) -> DatabaseUrl:
        """Read a URL without its ``#table``.

        >>> DatabaseUrl.parse("mysql://reader:secret@db/shop")
        DatabaseUrl('mysql://reader:***@db:3306/shop')
        """
        if text.lower().startswith("jdbc:"):
            raise RequestError(f"expected a URL of the form {_SHAPE}, got {mask(text)!r}, which is JDBC's; leave out jdbc:")
        match = _URL.fullmatch(text)
        if match is None or _SPACE.search(text) or "#" in text:
            raise RequestError(
                f"expected a URL of the form {_SHAPE}, got {mask(text)!r}, which can't be read as one; write special characters "
                "of user and password as %XX"
            )
        dialect = _DIALECTS.get(match["scheme"].lower())
        if dialect is None:
            raise RequestError(
                f"expected a URL of the form {_SHAPE} (or mysql://, mariadb://), got {mask(text)!r}; "
                "start it with the name of the database system"
            )
        host, database = match["address"] or match["host"], unquote(match["database"] or "")
        if not host or not database:
            missing = "database" if host else "host"
            raise RequestError(f"expected a URL of the form {_SHAPE}, got {mask(text)!r}, which names no {missing}; add it")
        port = int(match["port"] or _PORTS[dialect])
        if not 0 < port < 65536:
            raise RequestError(f"expected a port from 1 to 65535 in the URL, got {port}; correct it")
        options = tuple(parse_qsl(match["query"] or "", keep_blank_values=True))
        for name, value in options:
            if _SECRET_OPTION.match(name) and not _REFERENCE.fullmatch(value):
                raise RequestError(
                    f"expected a reference such as ${{NAME}} for {name} in the URL, got a secret written out; set an environment "
                    "variable of your choice and name it there"
                )
        return cls(
            dialect=dialect,
            host=unquote(host),
            port=port,
            user=None if match["user"] is None else unquote(match["user"]),
            password=None if match["password"] is None else unquote(match["password"]),
            database=database,
            options=options,
        )

    @property
    def has_literal_password(self) -> bool:
        """Whether the password is written out rather than referred to as ``${NAME}``."""
        return bool(self.password) and not _REFERENCE.fullmatch(self.password or "")

    def with_password(self, password: str) -> DatabaseUrl:
        """The same URL with another password, usually a reference."""
        return replace(self, password=password)

    def resolve(self, environ: Mapping[str, str] | None = None) -> DatabaseUrl:
        """Replace each ``${NAME}`` by the environment's value, where a connection is about to be made.

        Raises:
            LookupFailedError: a variable is not set in this process.
        """
        environ = os.environ if environ is None else environ

        def value(match: re.Match[str]) -> str:
            if match[1] not in environ:
                raise LookupFailedError(
                    f"expected the environment variable {match[1]} that the URL of {self.host} refers to, found none in this "
                    f"process; set it for the driver and for executors (spark.executorEnv.{match[1]})"
                )
            return environ[match[1]]

        def fill(text: str | None) -> str | None:
            return None if text is None else _REFERENCE.sub(value, text)

        return replace(
            self,
            host=fill(self.host) or "",
            user=fill(self.user),
            password=fill(self.password),
            database=fill(self.database) or "",
            options=tuple((name, fill(value) or "") for name, value in self.options),
        )

    def __str__(self) -> str:
        """The URL for people: the password is masked, a reference is shown."""
        login = ""
        if self.user is not None:
            shown = "" if self.password is None else f":{'***' if self.has_literal_password else self.password}"
            login = f"{quote(self.user, safe='${}')}{shown}@"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.dialect}://{login}{host}:{self.port}/{quote(self.database)}"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"

    def __getstate__(self) -> dict[str, Any]:
        if self.has_literal_password:
            raise RequestError(
                f"expected no password inside what is pickled, got the URL {self} with one written out; write ${{NAME}} in its "
                "place and set that environment variable where Spark's workers run"
            )
        return dict(self.__dict__)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)


@dataclass(frozen=True, init=False)
class Table:
    """A relation in an external database: what `srj_enrich` joins a stream with.

    Args:
        url: ``postgresql://user:${DB_PASSWORD}@host:port/database`` (also ``mysql://``, ``mariadb://``), with ``#schema.table``
            unless `name` says it. ``${NAME}`` is replaced by that environment variable where a connection is made. Special
            characters are written ``%XX``.
        name: the table, when the URL has no ``#``: ``"public.products"`` or ``("public", "products")``. Names are taken exactly
            as written, upper and lower case included; a name with a dot is given as a tuple or in double quotes.
        columns: column names or SQL expressions (``"upper(name) AS title"``); default all columns but the key's.
        where: an SQL condition that rows must fulfil to be found.

    Raises:
        RequestError: the URL or the name can't be read.

    Example:
        >>> Table("postgresql://reader@db/shop#public.products")
        Table('postgresql://reader@db:5432/shop#public.products')
        >>> Table("mysql://reader:s3cret@db/shop", "products", columns=["name", "price"])
        Table('mysql://reader:***@db:3306/shop#products', columns=('name', 'price'))
    """

    url: DatabaseUrl
    name: tuple[str, ...]
    columns: tuple[str, ...] | None
    where: str | None

    def __init__(
        self,
        url: str | DatabaseUrl,
        name: str | Sequence[str] | None = None,
        *,
        columns: Sequence[str] | None = None,
        where: str | None = None,
    ) -> None:
        fragment = ""
        if isinstance(url, str):
            url, mark, fragment = url.rpartition("#") if "#" in url else (url, "", "")
            if "@" in fragment:  # the mark stands inside the password: nothing after it may be shown
                url, fragment = f"{url}{mark}{fragment}", ""
            url = DatabaseUrl.parse(url)
        if name is None and not fragment:
            raise RequestError(f"expected a table name after '#' in the URL, got {url} without one; append '#schema.table'")
        if name is not None and fragment:
            raise RequestError(f"expected one table name, got {unquote(fragment)!r} in the URL and {name!r} beside it; drop one")
        name = unquote(fragment) if name is None else name
        parts = _split_name(name) if isinstance(name, str) else tuple(name)
        if not 1 <= len(parts) <= 2 or not all(isinstance(part, str) and part for part in parts):
            raise RequestError(f"expected a table name of the form 'table' or 'schema.table', got {name!r}; quote names with dots")
        object.__setattr__(self, "url", url)
        object.__setattr__(self, "name", parts)
        object.__setattr__(self, "columns", None if columns is None else column_names(columns))
        object.__setattr__(self, "where", where)

    def __repr__(self) -> str:
        shown = [repr(f"{self.url}#{'.'.join(self.name)}")]
        shown += [] if self.columns is None else [f"columns={self.columns!r}"]
        shown += [] if self.where is None else [f"where={self.where!r}"]
        return f"Table({', '.join(shown)})"


def column_names(columns: Sequence[str]) -> tuple[str, ...]:
    """Check a list of column names or expressions."""
    if isinstance(columns, str) or not all(isinstance(column, str) and column.strip() for column in columns):
        raise RequestError(f"expected columns as a list of names or SQL expressions, got {columns!r}; write ['name', …]")
    return tuple(columns)


def mask(text: str) -> str:
    """A URL that could not be read, for a message: nothing of it that may be a password.

    >>> mask("pg://reader:secret@db/shop"), mask("postgresql://db:5432/"), mask("postgresql:reader:secret")
    ('pg://***@db/shop', 'postgresql://db:5432/', 'postgresql:***')
    """
    scheme, colon, rest = text.partition(":")
    if not re.fullmatch(r"\w+", scheme):
        return "***"
    if "@" in rest:
        return f"{scheme}://***@{rest.rpartition('@')[2]}"
    return text if re.fullmatch(r"//[^:/]*(:\d+)?(/\w*)?", rest) else f"{scheme}{colon}***"


def _split_name(text: str) -> tuple[str, ...]:
    """Split ``schema."odd.table"`` at the dots outside double quotes."""
    parts = re.findall(r'"((?:[^"]|"")*)"|([^."]+)|(\.)', text)
    if "".join(dot or plain or f'"{quoted}"' for quoted, plain, dot in parts) != text or len(parts) % 2 == 0:
        return ()
    if any(bool(dot) != bool(position % 2) for position, (_, _, dot) in enumerate(parts)):
        return ()
    return tuple(plain or quoted.replace('""', '"') for quoted, plain, _ in parts[::2])
