"""MySQL and MariaDB: describe a table, open connections that look keys up in it.

Tested with MariaDB 10.11. Everything is written in the SQL that MySQL shares (JSON_TABLE needs MySQL 8.0.4 or MariaDB 10.6); the
types and the names were tried with MySQL 9.7, in which the tests can be run again (SRJ_TEST_MARIADB_URL). Untested there: the login
methods of MySQL 8 and later (caching_sha2_password without TLS needs the package cryptography).

A lookup runs in a transaction of its own (autocommit) that sees what was committed before it started (READ COMMITTED). An
exceeded lock wait or a deadlock counts as a broken connection: another try helps.
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from srj.databases import mysql_types as types
from srj.databases.base import Column, Description, KeyColumn
from srj.databases.mysql_catalog import table_facts, table_names
from srj.databases.mysql_connection import MySQLConnection
from srj.databases.mysql_errors import DriverError, asking, checking
from srj.databases.mysql_session import Session
from srj.databases.mysql_sql import lookup_sql, quote
from srj.databases.naming import named_expression
from srj.errors import TableError
from srj.quantities import nearest

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from srj.databases.base import Question
    from srj.databases.mysql_catalog import Index, TableColumn, TableFacts

_MANY_ROWS = 1000  # a table with fewer is read as a whole in no time
# Texts that differ in trailing spaces alone are equal in these collations, but MariaDB's hash join tells them apart.
_PADDED_BINARY = re.compile(r"COLLATE (?!\w*nopad)\w+_bin\b")


@dataclass(frozen=True)
class MySQL:
    """MySQL and MariaDB, as a `srj.databases.base.Database`."""

    async def describe(self, question: Question, timeout: float) -> Description:
        """Describe the question's table; every mistake in the question is found here."""
        session = await Session.open(question.url, timeout)
        try:
            with asking(question.url, question.table, timeout):
                async with asyncio.timeout(timeout):
                    await session.limit_statements(timeout)
                    return await _describe(session, question)
        finally:
            await session.close()

    async def connect(self, question: Question, description: Description, timeout: float) -> MySQLConnection:
        """Open a connection, ready for lookups."""
        session = await Session.open(question.url, timeout)
        if description.index is None and not _PADDED_BINARY.search(description.sql):
            try:
                with asking(question.url, question.table, timeout):
                    async with asyncio.timeout(timeout):
                        await session.prefer_hash_joins()
            except BaseException:
                await session.close()
                raise
        return MySQLConnection(session, question, description)


async def _describe(session: Session, question: Question) -> Description:
    database, table = _place(question)
    facts = await table_facts(session, database, table)
    if facts is None:
        raise TableError(
            f"expected a table or view {table!r} in database {database!r} that this user may read, got none; "
            f"{nearest(table, await table_names(session, database))}"
        )
    key_columns = [_key_column(name, facts, question) for name in question.key]
    key = [_described_key(column, question) for column in key_columns]
    columns = [] if question.exists_only else await _columns(session, question, facts)
    # Without brackets too, here and below, or SQL that closes ours and opens another pair would pass.
    await _check(session, question, "where", question.where, "SELECT 1 FROM {table} WHERE {sql}\nLIMIT 0")
    await _check(session, question, "where", question.where, "SELECT 1 FROM {table} WHERE ({sql}\n) LIMIT 0")
    order_by = await _order(session, question, facts) if question.first else None
    index = _serving_index(facts, question)
    depth = index.depth(question.key) if index else 0
    distinct = index.cardinalities[depth - 1] if index else None
    return Description(
        server=session.server,
        key=tuple(key),
        columns=tuple(columns),
        sql=lookup_sql(question, quote(database, table), key, key_columns, columns, order_by),
        unique=question.first or any(one.makes_unique(question.key) for one in facts.indexes),
        index=index.name if index else None,
        rows=facts.rows,
        rows_per_key=max(1.0, facts.rows / distinct) if facts.rows and distinct else 1.0,
        warnings=_warnings(question, facts, index),
    )


def _place(question: Question) -> tuple[str, str]:
    """Database and table; MySQL's schemas are its databases."""
    return (question.name[0] if len(question.name) > 1 else question.url.resolve().database), question.name[-1]


def _key_column(name: str, facts: TableFacts, question: Question) -> TableColumn:
    found = next((column for column in facts.columns if column.name == name), None)
    if found is None:
        names = [column.name for column in facts.columns]
        raise TableError(f"expected a key column of table {question.table}, got {name!r}; {nearest(name, names)}")
    return found


def _described_key(column: TableColumn, question: Question) -> KeyColumn:
    form = types.key_form(column)
    if form is None:
        raise TableError(
            f"expected a key column of table {question.table} that srj can compare, got {column.name!r} of type "
            f"{column.column_type}; {types.key_instead(column)}"
        )
    return KeyColumn(column.name, quote(column.name), column.column_type, form.arrow, form.cast, form.limits)


async def _columns(session: Session, question: Question, facts: TableFacts) -> list[Column]:
    """The columns that come back, their types found by a statement that reads no row."""
    known = {column.name: column.column_type for column in facts.columns}
    wanted = question.columns if question.columns is not None else [name for name in known if name not in question.key]
    named = [(text, quote(text), text) if text in known else _expression(text, question, known) for text in wanted]
    if not named:
        return []
    _refuse_doubles([name for _, _, name in named], question)
    for text, sql, _ in named:
        if text not in known:
            with checking(question.table, f"columns {text!r}"):
                await _fields(session, question, [sql[1:-1] + "\n"])
                await _fields(session, question, [sql])
    try:
        fields = await _fields(session, question, [sql for _, sql, _ in named])
    except DriverError:
        for text, sql, _ in named:  # once more, one by one, to name the one that is wrong
            with checking(question.table, f"columns {text!r}"):
                await _fields(session, question, [sql])
        raise
    columns = []
    for (text, sql, name), field in zip(named, fields, strict=True):
        arrow, db_type = types.result_type(field), known.get(text) or types.result_name(field)
        if arrow is None:
            raise TableError(
                f"expected columns of types that srj can read, got {name!r} of type {db_type} in table {question.table}; leave it "
                f"out or write {types.readable(sql, field) + ' AS ' + quote(name)!r} in columns"
            )
        columns.append(Column(name, sql, db_type, arrow, types.result_width(field, arrow, facts.mean_row)))
    return columns


async def _fields(session: Session, question: Question, expressions: Sequence[str]) -> Sequence[Any]:
    """What the server says of the results of expressions."""
    # The key beside them, so that an aggregate is refused here: a lookup would make one row of all keys' rows.
    selected = ", ".join([*(quote(name) for name in question.key), *expressions])
    result = await session.query(f"SELECT {selected} FROM {quote(*_place(question))} LIMIT 0")
    return result.fields[len(question.key) :]


def _expression(text: str, question: Question, known: Iterable[str]) -> tuple[str, str, str]:
    sql, name = named_expression(text, question.table, known)
    return text, f"({sql}\n)" if "--" in sql or "#" in sql else f"({sql})", name  # a line of its own ends a comment


def _refuse_doubles(names: Sequence[str], question: Question) -> None:
    double = next((name for position, name in enumerate(names) if name in names[:position]), None)
    if double is not None:
        raise TableError(f"expected different names of columns for {question.table}, got {double!r} twice; write AS another_name")


async def _check(session: Session, question: Question, part: str, sql: str | None, statement: str) -> None:
    """Have the server check a condition or an order, without reading a row."""
    if sql is not None:
        with checking(question.table, f"{part} {sql!r}"):
            await session.query(statement.format(table=quote(*_place(question)), sql=sql))


async def _order(session: Session, question: Question, facts: TableFacts) -> str:
    """How a key's first row is chosen: the user's order, ties broken by the primary key."""
    await _check(session, question, "order_by", question.order_by, "SELECT 1 FROM {table} ORDER BY {sql}\nLIMIT 0")
    window = "SELECT ROW_NUMBER() OVER (ORDER BY {sql}\n) FROM {table} LIMIT 0"
    await _check(session, question, "order_by", question.order_by, window)
    order = [question.order_by + "\n"] if question.order_by is not None else []
    order += [f"{quote(*_place(question), name)}" for name in facts.primary_key]
    if not order:
        raise TableError(f"expected an order for on_multiple='first', but table {question.table} has no primary key; give order_by")
    return ", ".join(order)


def _serving_index(facts: TableFacts, question: Question) -> Index | None:
    """The index with the longest run of leading columns in the key, a unique one before others."""
    ranked = max(facts.indexes, key=lambda index: (index.depth(question.key), index.unique), default=None)
    return ranked if ranked is not None and ranked.depth(question.key) else None


def _warnings(question: Question, facts: TableFacts, index: Index | None) -> tuple[str, ...]:
    names = ", ".join(quote(name) for name in question.key)
    if facts.is_view:
        warning = (
            f"{question.table} is a view, so srj can't see whether an index serves its key {names}, and without one every batch of "
            "keys reads all of its rows; check with EXPLAIN"
        )
        return (warning,)
    if index is None and (facts.rows or 0) > _MANY_ROWS:
        warning = (
            f"no index of {question.table} begins with a column of its key {names}, so every batch of keys reads all of its about "
            f"{facts.rows} rows; run: CREATE INDEX srj_key ON {quote(*_place(question))} ({names})"
        )
        return (warning,)
    return ()
