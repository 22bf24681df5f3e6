"""What PostgreSQL's catalog and planner say about a table; every mistake in a request is found here."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from srj.databases.base import Column, Description, KeyColumn, Question
from srj.databases.postgresql_errors import checking
from srj.databases.postgresql_sql import Lookup, quote
from srj.databases.postgresql_types import DbType, KeyType, key_type, python_encoding, value_type
from srj.errors import TableError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import asyncpg

_ALIASED = re.compile(
    r"""(?P<body>.+?)\bAS\s+(?:"(?P<quoted>(?:[^"]|"")+)"|(?P<plain>[^\W\d]\w*))\s*\Z""", re.IGNORECASE | re.DOTALL
)
_TYPED_NUMERIC = re.compile(r"(?:::|\bAS)\s*(?:numeric|decimal|dec)\s*\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\)\s*\)*\s*\Z", re.IGNORECASE)
_FEW_ROWS = 1000  # below this a table scan costs less than a round trip
_FOREIGN, _VIEW = "f", "v"

_RELATION = """
SELECT c.oid, c.relkind::text AS kind, c.reltuples::float8 AS rows,
       EXISTS (SELECT FROM pg_inherits i WHERE i.inhparent = c.oid) AS has_children
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relname = $1 AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
  AND CASE WHEN $2 = '' THEN pg_table_is_visible(c.oid) ELSE n.nspname = $2 END
"""
_RELATIONS = """
SELECT n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND n.nspname NOT IN ('pg_catalog', 'information_schema')
  AND n.nspname NOT LIKE 'pg\\_t%'
LIMIT 10000
"""
# Follows each domain down to its base type. Positions and types come in as arrays.
_TYPES = """
WITH RECURSIVE typed(position, type, modifier, shown) AS (
    SELECT a.position, a.type, a.modifier, format_type(a.type, a.modifier)
    FROM unnest($1::int8[], $2::oid[], $3::int4[]) AS a(position, type, modifier)
    UNION ALL
    SELECT d.position, t.typbasetype, t.typtypmod, d.shown
    FROM typed d JOIN pg_type t ON t.oid = d.type WHERE t.typtype = 'd'
)
SELECT d.shown, d.modifier, t.typname::text AS name, t.typtype::text AS kind,
       format_type(t.oid, NULL) AS sql, quote_ident(n.nspname) AS schema
FROM typed d JOIN pg_type t ON t.oid = d.type JOIN pg_namespace n ON n.oid = t.typnamespace
WHERE t.typtype <> 'd' ORDER BY d.position
"""
_ATTRIBUTES = """
SELECT attname::text AS name, atttypid AS type, atttypmod AS modifier FROM pg_attribute
WHERE attrelid = $1 AND attnum > 0 AND NOT attisdropped ORDER BY attnum
"""
# The columns of each index that allows no doubles for any part of the table. One whose notion of equality is not the column's
# own (another collation, or text's operators on a citext column) says nothing about the rows of a key.
_UNIQUE_INDEXES = """
SELECT i.indisprimary AS is_primary, array_agg(a.attname::text ORDER BY k.position) AS columns
FROM pg_index i
CROSS JOIN LATERAL unnest(i.indkey::int2[], i.indcollation::oid[], i.indclass::oid[])
    WITH ORDINALITY AS k(attnum, collation_id, class, position)
JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
JOIN pg_type t ON t.oid = a.atttypid
JOIN pg_opclass o ON o.oid = k.class
WHERE i.indrelid = $1 AND i.indisunique AND i.indisvalid AND i.indpred IS NULL AND i.indexprs IS NULL
  AND k.position <= i.indnkeyatts
GROUP BY i.indexrelid, i.indisprimary
HAVING bool_and(k.collation_id IN (0, a.attcollation) AND NOT (t.typname = 'citext' AND o.opcintype = 'text'::regtype))
"""
_STATISTICS = """
SELECT DISTINCT ON (attname) attname::text AS name, avg_width, n_distinct::float8 AS distinct, null_frac::float8 AS nulls
FROM pg_stats s
JOIN pg_class c ON c.relname = s.tablename
JOIN pg_namespace n ON n.oid = c.relnamespace AND n.nspname = s.schemaname
WHERE c.oid = $1 ORDER BY attname, inherited DESC
"""


@dataclass(frozen=True)
class _Relation:
    """A table, view, … as the catalog knows it."""

    oid: int
    kind: str
    rows: float
    has_children: bool
    sql: str
    name: str
    types: dict[str, DbType]


async def describe(connection: asyncpg.Connection, question: Question) -> Description:
    """Describe the question's table through an open connection.

    Raises:
        TableError: with one sentence that names table and column and says what to do.
    """
    relation = await _relation(connection, question)
    encoding = python_encoding(connection.get_settings().server_encoding)
    keys = [_key(question, relation, name, encoding) for name in question.key]
    if question.where is not None:
        with checking(question.table, f"where {question.where!r}"):
            await connection.prepare(f"SELECT FROM {relation.sql} WHERE ({question.where}\n)")
    statistics = {row["name"]: row for row in await connection.fetch(_STATISTICS, relation.oid)}
    columns = [] if question.exists_only else await _columns(connection, question, relation)
    columns = [(_with_width(column, statistics), wire) for column, wire in columns]
    lookup = Lookup(
        relation.sql,
        relation.name,
        [(column.sql, key) for column, key in keys],
        [(column.sql, wire) for column, wire in columns],
        question.where,
    )
    indexes = [] if relation.has_children and relation.kind == "r" else await connection.fetch(_UNIQUE_INDEXES, relation.oid)
    is_unique = any(set(index["columns"]) <= set(question.key) for index in indexes)
    sql = _statement(question, lookup, indexes, is_unique=is_unique)
    plan = await _plan(connection, question, sql, [[] for _ in keys])
    has_multiplier = any(node["Node Type"] == "ProjectSet" for node in plan)
    rows = await _rows(connection, relation)
    index = next((node["Index Name"] for node in plan if _serves(node, lookup.alias)), None)
    is_unique = question.first or (is_unique and not has_multiplier)
    version = connection.get_server_version()
    return Description(
        server=f"PostgreSQL {version.major}.{version.minor}",
        key=tuple(column for column, _ in keys),
        columns=tuple(column for column, _ in columns),
        sql=sql,
        unique=is_unique,
        index=index,
        rows=rows,
        rows_per_key=1.0 if is_unique else _rows_per_key(question.key, rows, statistics),
        warnings=tuple(_warnings(question, relation, index, rows)),
    )


async def _relation(connection: asyncpg.Connection, question: Question) -> _Relation:
    *schema, name = question.name
    row = await connection.fetchrow(_RELATION, name, "".join(schema))
    if row is None:
        others = [tuple(other) for other in await connection.fetch(_RELATIONS)]
        near = _nearest(question.table, {f"{schema}.{name}" for schema, name in others} | {name for _, name in others})
        path = "" if schema else f" in the schemas {await connection.fetchval('SHOW search_path')} that the user searches"
        raise TableError(
            f"expected a table or view, got {question.table}, which database {question.url.database} does not hold{path}; "
            f"{f'did you mean {near}?' if near else 'correct the name, and mind upper and lower case'}"
        )
    attributes = await connection.fetch(_ATTRIBUTES, row["oid"])
    types = await _types(connection, [(attribute["type"], attribute["modifier"]) for attribute in attributes])
    sql = ".".join(map(quote, question.name))
    named = {attribute["name"]: db_type for attribute, db_type in zip(attributes, types, strict=True)}
    return _Relation(row["oid"], row["kind"], row["rows"], row["has_children"], sql, name, named)


async def _types(connection: asyncpg.Connection, types: Sequence[tuple[int, int]]) -> list[DbType]:
    oids, modifiers = [oid for oid, _ in types], [modifier for _, modifier in types]
    rows = await connection.fetch(_TYPES, list(range(len(types))), oids, modifiers)
    return [DbType(row["name"], row["kind"], row["modifier"], row["shown"], row["sql"], row["schema"]) for row in rows]


def _nearest(name: str, names: Iterable[str]) -> str:
    """The names most like this one, upper and lower case aside, for a message."""
    folded: dict[str, str] = {other.lower(): other for other in sorted(names)}
    return " or ".join(folded[match] for match in get_close_matches(name.lower(), folded, n=3, cutoff=0.6))


def _no_column(question: Question, relation: _Relation, name: str, advice: str = "") -> TableError:
    near = _nearest(name, relation.types)
    remedy = f"did you mean {near}?" if near else f"it has {', '.join(relation.types)}"
    return TableError(f"expected a column of table {question.table}, got {name!r}, which it has not; {remedy}{advice}")


def _key(question: Question, relation: _Relation, name: str, encoding: str | None) -> tuple[KeyColumn, KeyType]:
    if name not in relation.types:
        raise _no_column(question, relation, name)
    db_type = relation.types[name]
    key = key_type(db_type, question.table, name)
    limits = replace(key.limits, encoding=encoding) if key.limits.no_nul else key.limits
    return KeyColumn(name, quote(name), db_type.shown, key.arrow, key.cast, limits), key


async def _columns(connection: asyncpg.Connection, question: Question, relation: _Relation) -> list[tuple[Column, str]]:
    """The columns that come back, each with the type to which the statement casts it."""
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


async def _column(connection: asyncpg.Connection, question: Question, relation: _Relation, text: str) -> tuple[Column, str]:
    if text in relation.types:
        name, sql, db_type = text, quote(text), relation.types[text]
    else:
        if text.isidentifier():
            raise _no_column(question, relation, text, f" (an SQL expression is written {f'{text} AS name'!r})")
        name, sql = _split_alias(question, text)
        db_type = await _expression_type(connection, question, relation, text, sql)
    value = value_type(db_type, sql, name)
    return Column(name, sql, db_type.shown, value.arrow, value.default_width), value.wire


def _split_alias(question: Question, text: str) -> tuple[str, str]:
    match = _ALIASED.match(text)
    if match is None:
        raise TableError(
            f"expected a column of table {question.table} or an SQL expression with a name, got {text!r}; "
            f"write {f'{text} AS name'!r} with a name for the result"
        )
    name = match["plain"] or match["quoted"].replace('""', '"')
    return name, match["body"].strip()


async def _expression_type(connection: asyncpg.Connection, question: Question, relation: _Relation, text: str, sql: str) -> DbType:
    with checking(question.table, f"column {text!r}"):
        statement = await connection.prepare(f"SELECT ({sql}\n) AS x FROM {relation.sql} WHERE false")
    (attribute,) = statement.get_attributes()
    # The driver does not tell a numeric's precision, so it must stand in the expression.
    typed = _TYPED_NUMERIC.search(sql) if attribute.type.name == "numeric" else None
    modifier = (int(typed[1]) << 16 | int(typed[2] or 0)) + 4 if typed else -1
    (db_type,) = await _types(connection, [(attribute.type.oid, modifier)])
    return db_type


def _with_width(column: Column, statistics: dict[str, Any]) -> Column:
    if not column.width or column.sql != quote(column.name) or column.name not in statistics:
        return column
    return Column(column.name, column.sql, column.db_type, column.type, max(1, statistics[column.name]["avg_width"]))


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


async def _plan(connection: asyncpg.Connection, question: Question, sql: str, keys: list[list[Any]]) -> list[dict[str, Any]]:
    """The steps of the statement's plan with everything dearer than an index put aside: shows whether an index can serve."""
    part = f"order_by {question.order_by!r}" if question.order_by else "the columns asked for"
    with checking(question.table, part):
        async with connection.transaction(readonly=True):
            await connection.execute("; ".join(f"SET LOCAL enable_{way} = off" for way in ("seqscan", "hashjoin", "mergejoin")))
            text = await connection.fetchval(f"EXPLAIN (FORMAT JSON) {sql}", *keys)
    return list(_nodes(json.loads(text)[0]["Plan"]))


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from _nodes(child)


def _serves(node: dict[str, Any], alias: str) -> bool:
    return "Index Name" in node and f"{alias}.k" in node.get("Index Cond", "")


async def _rows(connection: asyncpg.Connection, relation: _Relation) -> int | None:
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


def _warnings(question: Question, relation: _Relation, index: str | None, rows: int | None) -> Iterator[str]:
    key = ", ".join(question.key)
    if relation.kind == _FOREIGN:
        yield (
            f"table {question.table} is a foreign table, whose indexes can't be seen from here: each batch may fetch all its rows; "
            f"see that its own server has an index on {key} and that the wrapper sends the key there (EXPLAIN shows it)"
        )
    elif index is None and rows is not None and rows > _FEW_ROWS:
        target = "the tables below it" if relation.kind == _VIEW else question.table
        yield (
            f"no index of table {question.table} serves the key {key}: each batch of keys reads about {rows:,} rows; "
            f"create an index on ({key}) of {target}"
        )
