"""A `Description` from what PostgreSQL's catalog and planner say; every mistake in a request is found here."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from srj.databases.base import Column, Description, KeyColumn, Question
from srj.databases.naming import named_expression
from srj.databases.postgresql_catalog import Relation, base_types, column_statistics, find_relation, mean_bytes, unique_indexes
from srj.databases.postgresql_errors import checking
from srj.databases.postgresql_sql import Lookup, Returned, quote
from srj.databases.postgresql_types import DbType, KeyType, key_type, parameter, python_encoding, value_type
from srj.errors import TableError
from srj.quantities import nearest

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import asyncpg
    from asyncpg.prepared_stmt import PreparedStatement

_TYPED_NUMERIC = re.compile(
    r"(?:::|\bAS)\s*(?:numeric|decimal|dec)\s*\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\)(?:\s*\[\d*\])*\s*\)*\s*\Z", re.IGNORECASE
)
_FEW_ROWS = 1000  # below this a table scan costs less than a round trip
_FOREIGN, _VIEW = "f", "v"


async def describe(connection: asyncpg.Connection, question: Question) -> Description:
    """Describe the question's table through an open connection.

    Raises:
        TableError: with one sentence that names table and column and says what to do.
    """
    _refuse_nul(question)
    relation = await find_relation(connection, question)
    encoding = python_encoding(connection.get_settings().server_encoding)
    keys = [_key(question, relation, name, encoding) for name in question.key]
    if question.where is not None:
        part = f"where {question.where!r}"
        await _prepare(connection, question, part, f"SELECT FROM {relation.sql} WHERE {question.where}\n")
        await _prepare(connection, question, part, f"SELECT FROM {relation.sql} WHERE ({question.where}\n)")
    if question.first and question.order_by is not None:
        part = f"order_by {question.order_by!r}"
        await _prepare(connection, question, part, f"SELECT FROM {relation.sql} ORDER BY {question.order_by}\n")
        window = f"SELECT row_number() OVER (ORDER BY {question.order_by}\n) FROM {relation.sql}"
        await _prepare(connection, question, part, window)
    statistics = await column_statistics(connection, relation)
    columns = [] if question.exists_only else await _columns(connection, question, relation)
    with checking(question.table, "the columns asked for"):
        large = await mean_bytes(connection, relation, [column.name for column, _ in columns if _has_statistics(column)])
    columns = [(_with_width(column, statistics, large), returned) for column, returned in columns]
    lookup = Lookup(
        relation.sql,
        relation.name,
        [(column.sql, key) for column, key in keys],
        [returned for _, returned in columns],
        question.where,
        declared=[(column.name, column.db_type) if _has_digits(key) else None for column, key in keys],
    )
    with checking(question.table, "the columns asked for"):
        lookup = replace(lookup, types=[(row["oid"], row["name"]) for row in await connection.fetch(lookup.own_types())])
    indexes = await unique_indexes(connection, relation)
    is_unique = any(set(index["columns"]) <= set(question.key) for index in indexes)
    sql = _statement(question, lookup, indexes, is_unique=is_unique)
    plan = await _plan(connection, question, sql, [parameter(pa.array([], key.arrow)) for _, key in keys])
    has_multiplier = any(node["Node Type"] == "ProjectSet" for node in plan)
    rows = await _rows(connection, relation)
    index = next((node["Index Name"] for node in plan if _serves(node, lookup.alias)), None)
    is_unique = question.first or (is_unique and not has_multiplier)
    version = connection.get_server_version()
    return Description(
        server=f"PostgreSQL {version.major}.{version.micro}",  # since version 10 there is no number between the two
        key=tuple(column for column, _ in keys),
        columns=tuple(column for column, _ in columns),
        sql=sql,
        unique=is_unique,
        index=index,
        rows=rows,
        rows_per_key=1.0 if is_unique else _rows_per_key(question.key, rows, statistics),
        warnings=tuple(_warnings(question, relation, index, rows, hindered=await _hindered(connection, question, lookup, index))),
    )


def _refuse_nul(question: Question) -> None:
    """PostgreSQL's texts end at a NUL character, statements too."""
    for text in (*question.name, *question.key, *(question.columns or ()), question.where, question.order_by):
        if text is not None and "\0" in text:
            raise TableError(f"expected names and SQL without a NUL character for table {question.table!r}, got {text!r}; drop it")


async def _prepare(connection: asyncpg.Connection, question: Question, part: str, sql: str) -> PreparedStatement:
    """Have the server check a part of the user's SQL, without reading a row.

    Each part is checked within the brackets in which it will stand, and without: one that closes them and opens others, such as
    ``a) OR (b``, would pass with them alone, and mean something else in the lookup.
    """
    with checking(question.table, part):
        statement = await connection.prepare(sql, name="")
    if statement.get_parameters():
        raise TableError(f"expected SQL without parameters for table {question.table} in {part}, got $1; write the value itself")
    return statement


def _key(question: Question, relation: Relation, name: str, encoding: str | None) -> tuple[KeyColumn, KeyType]:
    if name not in relation.types:
        raise TableError(f"expected a column of table {question.table} as key, got {name!r}; {nearest(name, relation.types)}")
    db_type = relation.types[name]
    key = key_type(db_type, question.table, name)
    limits = replace(key.limits, encoding=encoding) if key.limits.no_nul else key.limits
    return KeyColumn(name, quote(name), db_type.shown, key.arrow, key.cast, limits), key


def _has_digits(key: KeyType) -> bool:
    """Whether keys are of a numeric's own precision and scale."""
    return bool(pa.types.is_decimal(key.arrow)) and not key.limits.any_precision


async def _columns(connection: asyncpg.Connection, question: Question, relation: Relation) -> list[tuple[Column, Returned]]:
    """The columns that come back."""
    wanted = question.columns
    if wanted is None:
        wanted = tuple(name for name in relation.types if name not in question.key)
    columns = [await _column(connection, question, relation, text) for text in wanted]
    seen: set[str] = set()
    for column, _ in columns:
        if column.name in seen:
            raise TableError(
                f"expected columns with names of their own, got {column.name!r} twice for table {question.table}; "
                "rename one with AS"
            )
        seen.add(column.name)
    return columns


async def _column(connection: asyncpg.Connection, question: Question, relation: Relation, text: str) -> tuple[Column, Returned]:
    if text in relation.types:
        name, sql, db_type = text, quote(text), relation.types[text]
    else:
        sql, name = named_expression(text, question.table, relation.types)
        db_type = await _expression_type(connection, question, relation, text, sql)
    value = value_type(db_type, sql, name)
    return Column(name, sql, db_type.shown, value.arrow, value.default_width), Returned(
        sql, value.wire, pa.types.is_list(value.arrow)
    )


async def _expression_type(connection: asyncpg.Connection, question: Question, relation: Relation, text: str, sql: str) -> DbType:
    part = f"column {text!r}"
    await _prepare(connection, question, part, f"SELECT {sql}\n FROM {relation.sql} WHERE false")
    statement = await _prepare(connection, question, part, f"SELECT ({sql}\n) AS x FROM {relation.sql} WHERE false")
    (attribute,) = statement.get_attributes()
    # The driver does not tell a numeric's precision, so it must stand in the expression.
    typed = _TYPED_NUMERIC.search(sql) if attribute.type.name in {"numeric", "numeric[]"} else None
    modifier = (int(typed[1]) << 16 | int(typed[2] or 0)) + 4 if typed else -1
    (db_type,) = await base_types(connection, [(attribute.type.oid, modifier)])
    return db_type


def _has_statistics(column: Column) -> bool:
    """A column of the table, of varying length."""
    return column.width > 0 and column.sql == quote(column.name)


def _with_width(column: Column, statistics: dict[str, Any], large: dict[str, float]) -> Column:
    if not _has_statistics(column):
        return column
    known = statistics[column.name]["avg_width"] if column.name in statistics else column.width
    return replace(column, width=max(1, round(large.get(column.name, known))))


def _statement(question: Question, lookup: Lookup, indexes: Sequence[asyncpg.Record], *, is_unique: bool) -> str:
    if question.exists_only:
        return lookup.exists()
    if not question.first or (is_unique and question.order_by is None):
        return lookup.join()
    primary = next((index["columns"] for index in indexes if index["is_primary"]), None)
    if question.order_by is None and primary is None:
        raise TableError(
            f"expected an order in which one row of a key is the first, got table {question.table} without a primary key; "
            "say which with order_by, for instance order_by='created DESC'"
        )
    return lookup.first(question.order_by or ", ".join(map(quote, primary or ())))


async def _plan(connection: asyncpg.Connection, question: Question, sql: str, keys: list[Any]) -> list[dict[str, Any]]:
    """The steps of the statement's plan with everything dearer than an index put aside: shows whether an index can serve."""
    part = f"order_by {question.order_by!r}" if question.order_by else "the columns asked for"
    with checking(question.table, part):
        async with connection.transaction(readonly=True):
            await connection.execute("; ".join(f"SET LOCAL enable_{way} = off" for way in ("seqscan", "hashjoin", "mergejoin")))
            text = await connection.fetchval(f"EXPLAIN (FORMAT JSON) {sql}", *keys)
    return list(_nodes(json.loads(text)[0]["Plan"]))


async def _hindered(connection: asyncpg.Connection, question: Question, lookup: Lookup, index: str | None) -> str | None:
    """The index that would serve, were it not for the columns asked for: PostgreSQL looks behind no volatile expression."""
    if index is not None or all(returned.sql.startswith('"') for returned in lookup.columns):
        return None
    plan = await _plan(
        connection,
        question,
        replace(lookup, columns=(), types=()).join(),
        [parameter(pa.array([], key.arrow)) for _, key in lookup.keys],
    )
    return next((node["Index Name"] for node in plan if _serves(node, lookup.alias)), None)


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from _nodes(child)


def _serves(node: dict[str, Any], alias: str) -> bool:
    return "Index Name" in node and f"{alias}.k" in node.get("Index Cond", "")


async def _rows(connection: asyncpg.Connection, relation: Relation) -> int | None:
    """The database's estimate: kept in the catalog for tables, made by the planner for what is put together from them."""
    if relation.kind in {"r", "m"} and not relation.has_children:
        return None if relation.rows < 0 else round(relation.rows)
    text = await connection.fetchval(f"EXPLAIN (FORMAT JSON) SELECT FROM {relation.sql}")
    rows: float = json.loads(text)[0]["Plan"]["Plan Rows"]
    return round(rows)


def _rows_per_key(key: Sequence[str], rows: int | None, statistics: dict[str, Any]) -> float:
    if not rows or not all(name in statistics for name in key):
        return 1.0
    # A negative number is a share of the rows.
    shares = [statistics[name]["distinct"] for name in key]
    distinct: float = math.prod(share if share > 0 else -share * rows for share in shares)
    with_key: float = rows * math.prod(1 - statistics[name]["nulls"] for name in key)
    return max(1.0, with_key / max(1.0, distinct))


def _warnings(
    question: Question, relation: Relation, index: str | None, rows: int | None, *, hindered: str | None
) -> Iterator[str]:
    # As they are written in SQL, for who copies them.
    key = ", ".join(name if re.fullmatch("[a-z_][a-z0-9_]*", name) else quote(name) for name in question.key)
    if relation.kind == _FOREIGN:
        yield (
            f"table {question.table} is a foreign table, whose indexes can't be seen from here: each batch may fetch all its rows; "
            f"see that its own server has an index on {key} and that the wrapper sends the key there (EXPLAIN shows it)"
        )
    elif hindered is not None:
        yield (
            f"an expression among the columns keeps index {hindered} of table {question.table} from serving the key {key}: each "
            "batch of keys reads the whole table; leave out what is volatile, such as random(), and compute it in Spark"
        )
    elif index is None and rows is None:
        yield (
            f"no index of table {question.table} serves the key {key}: each batch of keys reads the whole table, and the database "
            f"does not know its size before ANALYZE; create an index on ({key})"
        )
    elif index is None and rows is not None and rows > _FEW_ROWS:
        target = "the tables below it" if relation.kind == _VIEW else question.table
        yield (
            f"no index of table {question.table} serves the key {key}: each batch of keys reads about {rows:,} rows; "
            f"create an index on ({key}) of {target}"
        )
