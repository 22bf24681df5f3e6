"""The one SQL statement that looks keys up in PostgreSQL, whatever their number."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from srj.databases.postgresql_types import travels_as_text
from srj.databases.postgresql_wire import Sent, send

if TYPE_CHECKING:
    from collections.abc import Sequence

    from srj.databases.postgresql_types import KeyType


# The name of a result that has the type of a column begins so; its position and its type when it was described follow.
OWN_TYPE = "srj_type_"


def quote(name: str) -> str:
    """An identifier exactly as it is.

    >>> quote('say "hi" twice')
    '"say ""hi"" twice"'
    """
    return '"' + name.replace('"', '""') + '"'


@dataclass(frozen=True)
class Returned:
    """A column that comes back.

    Attributes:
        sql: its quoted name, or the user's expression.
        wire: the SQL type in which it is sent.
        is_own: that is its own type. Should it change later, a cast to it would round values, and hide that it did: so the
            statement has its type in its result as well.
    """

    sql: str
    wire: str
    is_own: bool


@dataclass(frozen=True)
class Lookup:
    """The parts of the statement.

    Its result is one row: the keys' ordinals and the columns as `send` sends them; then NULLs of the types of those columns that
    are sent as they are.

    Attributes:
        relation: the table's quoted name, with its schema if one was given.
        table: the table's bare name, by which the user's SQL may refer to its columns.
        keys: a quoted column and how its keys travel, each.
        columns: what comes back.
        where: the user's condition, or None.
    """

    relation: str
    table: str
    keys: Sequence[tuple[str, KeyType]]
    columns: Sequence[Returned]
    where: str | None

    @property
    def alias(self) -> str:
        """What the statement calls the keys: not the table's name, which the user's SQL may use."""
        return "srj_keys" if self.table != "srj_keys" else "srj_keys_"

    def join(self) -> str:
        """All rows of each key. The database says by `ord` which key a row answers, so equality is its own."""
        inner = [f"{column} AS k{i}" for i, (column, _) in enumerate(self.keys)]
        inner += self._inner_columns()
        on = " AND ".join(key.condition(f"t.k{i}", f"{self.alias}.k{i}") for i, (_, key) in enumerate(self.keys))
        return self._sent(f"{self._select()} JOIN (SELECT {', '.join(inner)} FROM {self.relation}{self._filter()}) AS t ON {on}")

    def first(self, order_by: str) -> str:
        """The first row of each key."""
        inner = self._inner_columns() or ["1"]
        return self._sent(
            f"{self._select()} CROSS JOIN LATERAL (SELECT {', '.join(inner)} FROM {self.relation}"
            f"{self._filter(self._own_condition())} ORDER BY {order_by}\n LIMIT 1) AS t"
        )

    def exists(self) -> str:
        """The keys that have a row."""
        return self._sent(
            f"SELECT {self.alias}.ord FROM {self._unnest()} WHERE EXISTS "
            f"(SELECT 1 FROM {self.relation}{self._filter(self._own_condition())})"
        )

    def _sent(self, rows: str) -> str:
        sent = send([Sent(f"srj_c{i}", column.wire) for i, column in enumerate(self.columns)], rows, ordinal="ord")
        own = [f"srj_types.srj_c{i} AS {OWN_TYPE}{i}_{column.wire}" for i, column in enumerate(self.columns) if column.is_own]
        if not own:
            return sent
        types = f"SELECT {', '.join(self._inner_columns())} FROM {self.relation} WHERE false"
        return f"SELECT srj_answer.*, {', '.join(own)} FROM ({sent}) AS srj_answer LEFT JOIN ({types}) AS srj_types ON true"

    def _select(self) -> str:
        outer = [f"{self.alias}.ord"] + [f"t.srj_c{i}" for i in range(len(self.columns))]
        return f"SELECT {', '.join(outer)} FROM {self._unnest()}"

    def _inner_columns(self) -> list[str]:
        """Under names that no table has: to ORDER BY, they come before the table's own."""
        return [f"{_own_lines(column.sql)} AS srj_c{i}" for i, column in enumerate(self.columns)]

    def _unnest(self) -> str:
        texts = ["::text" if travels_as_text(key.arrow) else "" for _, key in self.keys]
        arrays = ", ".join(f"${i + 1}{text}::{key.wire}[]" for i, (text, (_, key)) in enumerate(zip(texts, self.keys, strict=True)))
        names = ", ".join(f"k{i}" for i in range(len(self.keys)))
        return f"unnest({arrays}) WITH ORDINALITY AS {self.alias}({names}, ord)"

    def _own_condition(self) -> str:
        """The table's columns are named without the table here: inside, they come before all others."""
        return " AND ".join(key.condition(column, f"{self.alias}.k{i}") for i, (column, key) in enumerate(self.keys))

    def _filter(self, condition: str = "") -> str:
        conditions = ([_own_lines(self.where)] if self.where else []) + ([condition] if condition else [])
        return f" WHERE {' AND '.join(conditions)}" if conditions else ""


def _own_lines(sql: str) -> str:
    """The user's SQL in brackets; it may end in a comment, so the bracket closes on a line of its own."""
    return f"({sql}\n)" if "--" in sql else f"({sql})"
