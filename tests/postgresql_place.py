"""A PostgreSQL database of a test module's own, and what the modules on PostgreSQL ask of it."""

from __future__ import annotations

import asyncio
import secrets
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from srj.databases import database
from srj.databases.base import Question
from srj.errors import SrjError, TableError
from srj.table import DatabaseUrl

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from srj.databases.base import Answer, Connection, Description
    from tests.servers import Server

TIMEOUT = 20.0


@dataclass(frozen=True)
class Place:
    """A database of these tests' own."""

    server: Server
    name: str

    def sql(self, text: str) -> list[tuple[Any, ...]]:
        """Run statements as the administrator; the rows of the last."""
        return self.server.execute(text, database=self.name)

    def question(self, table: str | tuple[str, ...], key: str | tuple[str, ...] = "id", **settings: Any) -> Question:
        """A question of the administrator's, or of another `url`'s user."""
        url = settings.pop("url", None) or self.server.url_for(database=self.name)
        names = (table,) if isinstance(table, str) else table
        return Question(DatabaseUrl.parse(url), names, (key,) if isinstance(key, str) else key, **settings)

    def describe(self, *args: Any, **settings: Any) -> Description:
        """Describe a table as a stream's driver would."""
        return asyncio.run(database("postgresql").describe(self.question(*args, **settings), TIMEOUT))

    def lookup(self, keys: tuple[list[Any], ...] | list[Any], *args: Any, **settings: Any) -> list[tuple[Any, ...]]:
        """Describe, connect and look these keys up: (ordinal, value, …) a row."""

        async def run() -> Answer:
            async with self.connection(*args, **settings) as (connection, description):
                columns = keys if isinstance(keys, tuple) else (keys,)
                arrays = tuple(pa.array(values, part.type) for values, part in zip(columns, description.key, strict=True))
                return await connection.lookup(arrays, TIMEOUT)

        answer = asyncio.run(run())
        assert answer.rows.num_rows == len(answer.ordinals)
        assert np.all(np.diff(answer.ordinals) >= 0)
        return list(zip(answer.ordinals.tolist(), *(column.to_pylist() for column in answer.rows.columns), strict=True))

    @asynccontextmanager
    async def connection(self, *args: Any, **settings: Any) -> AsyncIterator[tuple[Connection, Description]]:
        """An open connection for lookups in a table, closed afterwards."""
        question = self.question(*args, **settings)
        description = await database("postgresql").describe(question, TIMEOUT)
        connection = await database("postgresql").connect(question, description, TIMEOUT)
        try:
            yield connection, description
        finally:
            await connection.close()


@contextmanager
def own_database(postgres: Server) -> Iterator[Place]:
    """A database with the table products in it, gone afterwards."""
    name = f"test_{secrets.token_hex(4)}"
    postgres.execute(f"CREATE DATABASE {name} TEMPLATE template0 ENCODING 'UTF8' LC_COLLATE 'C' LC_CTYPE 'C'")
    place = Place(postgres, name)
    place.sql("CREATE SCHEMA extras")
    place.sql("CREATE EXTENSION citext SCHEMA extras")
    place.sql("CREATE TABLE products (id bigint PRIMARY KEY, name text, price float8, category int)")
    place.sql("INSERT INTO products SELECT i, 'product ' || i, i / 2.0, i % 100 FROM generate_series(1, 20000) i")
    place.sql("ANALYZE products")
    yield place
    postgres.execute(f"DROP DATABASE {name} WITH (FORCE)")


def refusal(call: Any, kind: type[SrjError] = TableError) -> str:
    """The message of the error that this raises, one sentence without a password."""
    with pytest.raises(kind) as caught:
        call()
    assert type(caught.value) is kind
    message = str(caught.value)
    assert message.startswith("expected ")
    assert "\n" not in message
    assert "; " in message
    return message
