"""A database of a test module's own on either server, and the real engine over it, without Spark."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from srj.databases.base import Question
from srj.lookup.describe import describe
from srj.lookup.engine import Engine
from srj.lookup.operator import Operator
from srj.lookup.spec import LookupSpec
from srj.options import parse_options
from srj.table import DatabaseUrl

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.servers import Server


@dataclass(frozen=True)
class Ground:
    """A database of these tests' own."""

    server: Server
    name: str

    @property
    def is_postgres(self) -> bool:
        """PostgreSQL rather than MariaDB."""
        return self.server.kind == "postgresql"

    @property
    def url(self) -> str:
        """Its address."""
        return self.server.url_for(database=self.name)

    def sql(self, text: str) -> list[tuple[Any, ...]]:
        """Run statements as the administrator."""
        return self.server.execute(text, database=self.name)

    def table(self, name: str, columns: str, *values: str) -> str:
        """Make a table anew, with these rows."""
        statements = [f"DROP TABLE IF EXISTS {name}{' CASCADE' if self.is_postgres else ''}", f"CREATE TABLE {name} ({columns})"]
        statements += [f"INSERT INTO {name} VALUES {', '.join(values)}"] if values else []
        self.sql("; ".join(statements))  # at once, for most of the time goes into the login
        return name

    @contextmanager
    def engine(self, table: str, key: str | tuple[str, ...] = "id", url: str | None = None, **options: Any) -> Iterator[Engine]:
        """An engine for a table, closed afterwards."""
        engine = Engine(spec_of(url or self.url, table, key, **options))
        try:
            yield engine
        finally:
            engine.close()

    def join(self, table: str, keys: Any, key: str | tuple[str, ...] = "id", **options: Any) -> list[tuple[Any, ...]]:
        """Look keys up twice, so that the second answer comes from the cache where it can; both must be the same."""
        with self.engine(table, key, **options) as engine:
            first, second = join(engine, keys), join(engine, keys)
        assert first == second
        return first


def spec_of(url: str, table: str, key: str | tuple[str, ...], **options: Any) -> LookupSpec:
    """The lookup, as the driver would describe it."""
    settings = parse_options({"cache": "4 MB", **options})  # type: ignore[typeddict-item]  # a test's free choice
    question = Question(
        DatabaseUrl.parse(url),
        (table,),
        (key,) if isinstance(key, str) else key,
        columns=settings.columns,
        where=settings.where,
        exists_only=settings.how in ("semi", "anti"),
        first=settings.on_multiple == "first",
        order_by=settings.order_by,
    )
    return LookupSpec(question, describe(question, 10.0), settings.lookup, at_most_one=settings.on_multiple == "error")


def join(engine: Engine, *batches: Any) -> list[tuple[Any, ...]]:
    """(number of the stream's row, value, …) of every match."""
    found, start = [], 0
    keys = (batch if isinstance(batch, tuple) else (batch,) for batch in batches)
    for joined in Operator(engine).in_order(keys):
        positions, rows = joined.inner()
        columns = [column.to_pylist() for column in rows.columns]
        found += [(start + int(position), *values) for position, *values in zip(positions, *columns, strict=True)]
        start += len(joined.counts)
    return found


def open_ground(server: Server, name: str) -> Iterator[Ground]:
    """For a fixture: with three numbers in a table, gone afterwards."""
    server.execute(f"CREATE DATABASE {name}")
    ground = Ground(server, name)
    ground.table("numbers", "id int PRIMARY KEY, v varchar(20)", "(1, 'one')", "(2, 'two')", "(3, 'three')")
    yield ground
    server.execute(f"DROP DATABASE {name}{' WITH (FORCE)' if ground.is_postgres else ''}")
