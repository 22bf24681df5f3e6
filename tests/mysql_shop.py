"""A database of its own on the MariaDB server, for the tests of MySQL's module."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from srj.databases.base import Question
from srj.databases.mysql import MySQL
from srj.table import DatabaseUrl

if TYPE_CHECKING:
    from collections.abc import Iterator

    from srj.databases.base import Answer, Connection, Description
    from tests.servers import Server

SECONDS = 20.0


class Shop:
    """A database of its own on the server, and questions to its tables."""

    def __init__(self, server: Server, name: str) -> None:
        self.server = server
        self.name = name
        self.url = DatabaseUrl.parse(server.url_for(database=name))

    def run(self, sql: str) -> list[tuple[Any, ...]]:
        """Run statements as the administrator; the rows of the last."""
        return self.server.execute(sql, database=self.name)

    def question(self, table: str, *key: str, **more: Any) -> Question:
        """A question to a table by its key columns."""
        return Question(self.url, (table,), key, **more)

    def describe(self, table: str, *key: str, **more: Any) -> Description:
        """What the database says of the question's table."""
        return asyncio.run(MySQL().describe(self.question(table, *key, **more), SECONDS))

    def ask(self, table: str, keys: dict[str, pa.Array | list[Any]], **more: Any) -> tuple[Description, Answer]:
        """Describe the table and look these keys up, Python lists converted to the key's type."""

        async def run() -> tuple[Description, Answer]:
            question = self.question(table, *keys, **more)
            description = await MySQL().describe(question, SECONDS)
            connection = await MySQL().connect(question, description, SECONDS)
            try:
                return description, await connection.lookup(arrays(description, *keys.values()), SECONDS)
            finally:
                await connection.close()

        return asyncio.run(run())

    def matches(self, table: str, keys: list[Any], column: str = "v", key: str = "k") -> list[tuple[int, Any]]:
        """(ordinal, value) of each row found."""
        _, answer = self.ask(table, {key: keys}, columns=(column,))
        return list(zip(answer.ordinals.tolist(), answer.rows.column(0).to_pylist(), strict=True))

    def plan(self, table: str, keys: str, *key: str, **more: Any) -> list[tuple[Any, ...]]:
        """EXPLAIN of the lookup: the rows for the table itself."""
        description = self.describe(table, *key, **more)
        settings = "SET time_zone = '+00:00'; "
        sql = description.sql % ("'" + keys.replace("\\", "\\\\").replace("'", "''") + "'")
        return [row for row in self.run(settings + "EXPLAIN " + sql) if row[2] == table]


def arrays(description: Description, *keys: pa.Array | list[Any]) -> tuple[pa.Array, ...]:
    return tuple(
        values if isinstance(values, pa.Array) else pa.array(values, column.type)
        for values, column in zip(keys, description.key, strict=True)
    )


async def opened(shop: Shop, table: str, key: str, **more: Any) -> Connection:
    """A connection ready for lookups in a table."""
    question = shop.question(table, key, **more)
    return await MySQL().connect(question, await MySQL().describe(question, SECONDS), SECONDS)


def open_shop(server: Server, name: str) -> Iterator[Shop]:
    """A shop for a fixture, dropped after it."""
    server.execute(f"CREATE DATABASE {name} CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci")
    yield Shop(server, name)
    server.execute(f"DROP DATABASE {name}")
