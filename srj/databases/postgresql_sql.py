"""The one SQL statement that looks keys up in PostgreSQL, whatever their number."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING

from srj.databases.lists import packed
from srj.databases.postgresql_types import travels_as_text
from srj.databases.postgresql_wire import Sent, send

if TYPE_CHECKING:
    from collections.abc import Sequence

    from srj.databases.postgresql_types import KeyType


# What a statement's result calls the columns that have another type than when the statement was written.
CHANGED = "srj_changed"
# Types of one equality, whose values are sent alike: one may become the other unnoticed.
_TEXTS = (25, 1043)  # text, varchar
_FIRST_OF_USERS = 16384  # pg_type.oid of types that do not come with PostgreSQL


def quote(name: str) -> str:
    """An identifier exactly as it is.

    >>> quote('say "hi" twice')
    '"say ""hi"" twice"'
    """
    return '"' + name.replace('"', '""') + '"'


def own_name() -> str:
    """A name for a prepared statement that no other process uses.

    The driver's own names are alike in all processes: a pooler that hands a server connection from one to another would let each
    run the other's statement, and so answer from another table.
    """
    return f"srj_{secrets.token_hex(8)}"


@dataclass(frozen=True)
class Returned:
    """A column that comes back.

    Attributes:
        sql: its quoted name, or the user's expression.
        wire: the SQL type in which it is sent; of a column of arrays, in which their elements are.
        is_array: whether it is one.
    """

    sql: str
    wire: str
    is_array: bool = False

    def sent(self, name: str) -> Sent:
        """The column as it is sent, from a subquery that calls it `name`."""
        return Sent(name, self.wire, packed(name, self.wire) if self.is_array else "")


@dataclass(frozen=True)
class Lookup:
    """The parts of the statement.

    Its result is one row: the keys' ordinals and the columns as `send` sends them; then `CHANGED`, for each key column and then
    each column NULL, or its type's name if that is no longer the one in `types`. Where a column's type has changed, a cast to
    the old one would round values, and hide that it did; and keys would be compared by another equality.

    Attributes:
        relation: the table's quoted name, with its schema if one was given.
        table: the table's bare name, by which the user's SQL may refer to its columns.
        keys: a quoted column and how its keys travel, each.
        columns: what comes back.
        where: the user's condition, or None.
        types: the types of the key columns and the columns, as `own_types` finds them; none: nothing is watched.
        declared: of each key column that is a numeric, its name and its type with its digits, which say what can't be a key; of
            others None.
    """

    relation: str
    table: str
    keys: Sequence[tuple[str, KeyType]]
    columns: Sequence[Returned]
    where: str | None
    types: Sequence[tuple[int, str]] = ()
    declared: Sequence[tuple[str, str] | None] = ()

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

    def own_types(self) -> str:
        """The statement that finds the types of the key columns and the columns, a row each: its pg_type.oid, and its name."""
        types = ", ".join(f"({own}::oid, pg_catalog.format_type({own}, NULL))" for own in self._own_types())
        return (
            f"SELECT srj_type.* FROM (SELECT) AS srj_one LEFT JOIN ({self._no_rows()}) AS srj_types ON true "
            f"CROSS JOIN LATERAL (VALUES {types}) AS srj_type(oid, name)"
        )

    def _sent(self, rows: str) -> str:
        sent = send([column.sent(f"srj_c{i}") for i, column in enumerate(self.columns)], rows, ordinal="ord")
        if not self.types:
            return sent
        changed = [_if_changed(own, oid, name) for own, (oid, name) in zip(self._own_types(), self.types, strict=True)]
        for position, declared in enumerate(self.declared):
            if declared is not None:
                changed[position] = f"coalesce({changed[position]}, {self._if_declared_anew(*declared)})"
        return (
            f"SELECT srj_answer.*, ARRAY[{', '.join(changed)}] AS {CHANGED} "
            f"FROM ({sent}) AS srj_answer LEFT JOIN ({self._no_rows()}) AS srj_types ON true"
        )

    def _if_declared_anew(self, column: str, kind: str) -> str:
        """A key column's type with its digits if it is no longer this one."""
        return (
            "(SELECT nullif(pg_catalog.format_type(atttypid, atttypmod), "
            f"{_literal(kind)}) FROM pg_catalog.pg_attribute WHERE attrelid = {_literal(self.relation)}::regclass "
            f"AND attname = {_literal(column)})"
        )

    def _own_types(self) -> list[str]:
        names = [f"k{i}" for i in range(len(self.keys))] + [f"srj_c{i}" for i in range(len(self.columns))]
        return [f"pg_catalog.pg_typeof(srj_types.{name})" for name in names]

    def _no_rows(self) -> str:
        keys = [f"{column} AS k{i}" for i, (column, _) in enumerate(self.keys)]
        return f"SELECT {', '.join(keys + self._inner_columns())} FROM {self.relation} WHERE false"

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


def _if_changed(own: str, oid: int, name: str) -> str:
    """The type's name if it is no longer this one; a user's type may have been made anew under its name, with another number."""
    now = f"pg_catalog.format_type({own}, NULL)"
    if oid >= _FIRST_OF_USERS:
        is_other = f"{now} <> {_literal(name)}"
    else:
        is_other = f"{own} NOT IN ({', '.join(map(str, _TEXTS if oid in _TEXTS else [oid]))})"
    return f"CASE WHEN {is_other} THEN {now} END"


def _literal(text: str) -> str:
    """Whatever the session's standard_conforming_strings."""
    return "E'" + text.replace("\\", "\\\\").replace("'", "''") + "'"


def _own_lines(sql: str) -> str:
    """The user's SQL in brackets; it may end in a comment, so the bracket closes on a line of its own."""
    return f"({sql}\n)" if "--" in sql else f"({sql})"
