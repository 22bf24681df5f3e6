"""The SQL text of a lookup for MySQL and MariaDB: one statement a table, the keys in one parameter.

::

    SELECT k.ord, t.name, (SELECT id FROM t LIMIT 0)
    FROM JSON_TABLE(%s, '$[*]' COLUMNS (ord FOR ORDINALITY, k0 BIGINT PATH '$[0]')) k STRAIGHT_JOIN t ON t.id = k.k0

The keys' side is brought to the table's type, character set and collation: else the server would convert the table's side, and
no index could serve. STRAIGHT_JOIN, because the optimizer takes every JSON_TABLE for 40 rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from srj.databases.mysql_types import exact, key_form

if TYPE_CHECKING:
    from collections.abc import Sequence

    from srj.databases.base import Column, KeyColumn, Question
    from srj.databases.mysql_catalog import TableColumn

# Names that can't be those of a table's columns, since the user's own expressions stand beside them.
ORDINAL, ROW = "_srj_ord", "_srj_row"
LONGEST_STATEMENT = 4_294_967.0  # seconds, 49 days: the longest limit that MySQL takes; MariaDB takes a year


def quote(*names: str) -> str:
    """A quoted identifier, of one or several parts.

    >>> quote("shop", "odd`name")
    '`shop`.`odd``name`'
    """
    return ".".join(f"`{name.replace('`', '``')}`" for name in names)


def lookup_sql(
    question: Question,
    table: str,
    key: Sequence[KeyColumn],
    key_columns: Sequence[TableColumn],
    columns: Sequence[Column],
    order_by: str | None,
) -> str:
    """The statement, with ``%s`` for the keys' JSON and every other ``%`` doubled.

    Args:
        question: what is asked.
        table: the table's quoted name.
        key: the key's columns.
        key_columns: what the catalog says of them.
        columns: the columns that come back.
        order_by: for `Question.first`: the order in which a key's first row is chosen.
    """
    # The table's own name stands beside it.
    keys = "_srj_keys" if question.name[-1].lower() != "_srj_keys" else "_srj_keys_"
    condition = " AND ".join(
        _comparison(f"{table}.{one.sql}", f"{keys}.{_key_name(position)}", column)
        for position, (one, column) in enumerate(zip(key, key_columns, strict=True))
    )
    if question.where is not None:
        condition += f" AND ({question.where}\n)"  # a line of its own ends a comment
    values = [exact(column.sql, column.type) for column in columns]
    # NULLs of the key columns' types: should one change, keys would be compared by another equality.
    kinds = "".join(f", {_kind(one.sql, table, column)}" for one, column in zip(key, key_columns, strict=True))
    if question.exists_only:
        # Neither EXISTS nor IN: MariaDB would read the whole table once to answer them.
        before, after = f"SELECT {keys}.{ORDINAL}{kinds}", f"WHERE (SELECT 1 FROM {table} WHERE {condition} LIMIT 1) = 1"
    elif order_by is not None:
        names = [f"_srj_column{position}" for position in range(len(values))]
        inner = [f"{keys}.{ORDINAL}", *(f"{value} AS {name}" for value, name in zip(values, names, strict=True))]
        inner.append(f"ROW_NUMBER() OVER (PARTITION BY {keys}.{ORDINAL} ORDER BY {order_by}) AS {ROW}")
        before = f"SELECT {', '.join([ORDINAL, *names])}{kinds} FROM (SELECT {', '.join(inner)}"
        after = f"STRAIGHT_JOIN {table} ON {condition}) AS _srj_rows WHERE {ROW} = 1"
    else:
        before = f"SELECT {', '.join([f'{keys}.{ORDINAL}', *values])}{kinds}"
        after = f"STRAIGHT_JOIN {table} ON {condition}"
    asked = f"JSON_TABLE(%s, '$[*]' COLUMNS ({', '.join(_derived(key))})) AS {keys}"
    return f"{_doubled(before)} FROM {asked} {_doubled(after)}"


def limited(sql: str, timeout: float, *, is_mariadb: bool) -> str:
    """The statement with a limit that the server itself keeps, in seconds.

    >>> limited("SELECT 1", 2.5, is_mariadb=True)
    'SET STATEMENT max_statement_time = 2.500 FOR SELECT 1'
    >>> limited("SELECT 1", 1e12, is_mariadb=False)  # the number has 32 bits
    'SELECT /*+ MAX_EXECUTION_TIME(4294967000) */ 1'
    """
    timeout = min(timeout, LONGEST_STATEMENT)
    if is_mariadb:
        return f"SET STATEMENT max_statement_time = {timeout:.3f} FOR {sql}"
    return sql.replace("SELECT ", f"SELECT /*+ MAX_EXECUTION_TIME({max(1, round(timeout * 1000))}) */ ", 1)


def _doubled(sql: str) -> str:
    return sql.replace("%", "%%")


def _key_name(position: int) -> str:
    return f"_srj_key{position}"


def _derived(key: Sequence[KeyColumn]) -> list[str]:
    """The columns of the keys' table: its ordinal and one a key column."""
    columns = [f"{_key_name(position)} {column.cast} PATH '$[{position}]'" for position, column in enumerate(key)]
    return [f"{ORDINAL} FOR ORDINALITY", *columns]


def _kind(key: str, table: str, described: TableColumn) -> str:
    """NULL of the key column's type; an error where its character set is another than described, so that it may hold other keys."""
    collation = f" COLLATE {described.collation}" if described.collation is not None else ""
    return f"(SELECT {key} FROM {table} LIMIT 0){collation}"


def _comparison(column: str, key: str, described: TableColumn) -> str:
    """Equality as the column's own type, character set and collation have it."""
    form = key_form(described)
    if form is not None and form.reading != "{}":
        return f"{column} = {form.reading.format(key)}"
    if described.collation is None:
        return f"{column} = {key}"
    if described.charset == "utf8mb4":
        return f"{column} = {key} COLLATE {described.collation}"
    # A character that the column's set lacks becomes a question mark: such a key must not find one, so it is converted back.
    converted = f"CONVERT({key} USING {described.charset})"
    back = f"CAST(CONVERT({converted} USING utf8mb4) AS BINARY) = CAST({key} AS BINARY)"
    return f"{column} = {converted} COLLATE {described.collation} AND {back}"
