"""What PostgreSQL's catalog knows of a table."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from srj.databases.postgresql_sql import quote
from srj.databases.postgresql_types import DbType
from srj.errors import TableError
from srj.quantities import nearest

if TYPE_CHECKING:
    from collections.abc import Sequence

    import asyncpg

    from srj.databases.base import Question

_RELATION = """
SELECT c.oid, c.relkind::text AS kind, c.reltuples::float8 AS rows,
       EXISTS (SELECT FROM pg_inherits i WHERE i.inhparent = c.oid) AS has_children,
       CASE WHEN c.reltoastrelid <> 0 THEN pg_relation_size(c.oid) / current_setting('block_size')::int END AS pages
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relname = $1 AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
  AND CASE WHEN $2 = '' THEN pg_table_is_visible(c.oid) ELSE n.nspname = $2 END
"""
_RELATIONS = """
SELECT n.nspname AS schema, c.relname AS name, pg_table_is_visible(c.oid) AS visible
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
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
       format_type(t.oid, NULL) AS sql, quote_ident(n.nspname) AS schema,
       (SELECT e.oid FROM pg_type e WHERE e.typarray = t.oid) AS element
FROM typed d JOIN pg_type t ON t.oid = d.type JOIN pg_namespace n ON n.oid = t.typnamespace
WHERE t.typtype <> 'd' ORDER BY d.position
"""
_ATTRIBUTES = """
SELECT attname::text AS name, atttypid AS type, atttypmod AS modifier FROM pg_attribute
WHERE attrelid = $1 AND attnum > 0 AND NOT attisdropped ORDER BY attnum
"""
# The columns of each index that allows no doubles for any part of the table. One whose notion of equality is not the column's
# own (another collation, or text's operators on a citext column, which may be a domain's) says nothing about the rows of a key.
# INCLUDEd columns have no operator class, so the last join leaves them out.
_UNIQUE_INDEXES = """
SELECT i.indisprimary AS is_primary, array_agg(a.attname::text ORDER BY k.position) AS columns
FROM pg_index i
CROSS JOIN LATERAL unnest(i.indkey::int2[], i.indcollation::oid[], i.indclass::oid[])
    WITH ORDINALITY AS k(attnum, collation_id, class, position)
JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
JOIN pg_opclass o ON o.oid = k.class
WHERE i.indrelid = $1 AND i.indisunique AND i.indisvalid AND i.indpred IS NULL AND i.indexprs IS NULL
GROUP BY i.indexrelid, i.indisprimary
HAVING bool_and(k.collation_id IN (0, a.attcollation) AND NOT (a.attname = ANY ($2::name[]) AND o.opcintype = 'text'::regtype))
"""
_STATISTICS = """
SELECT DISTINCT ON (attname) attname::text AS name, avg_width, n_distinct::float8 AS distinct, null_frac::float8 AS nulls
FROM pg_stats s
JOIN pg_class c ON c.relname = s.tablename
JOIN pg_namespace n ON n.oid = c.relnamespace AND n.nspname = s.schemaname
WHERE c.oid = $1 ORDER BY attname, inherited DESC
"""
_SAMPLED_PAGES = 100
# Types whose values tell their length without being read.
_TELLING = {"text", "varchar", "bpchar", "bytea"}


@dataclass(frozen=True)
class Relation:
    """A table, a view or what else can be read like one.

    Attributes:
        oid: its pg_class.oid.
        kind: pg_class.relkind: ``r`` table, ``v`` view, ``m`` materialised view, ``p`` partitioned, ``f`` foreign.
        rows: the estimated number of rows; negative when nobody has counted.
        has_children: it has partitions, or tables that inherit from it.
        pages: how many it has, if its values may be so large that they are compressed or stored elsewhere; else None.
        sql: its quoted name, with the schema if the question has one.
        name: its bare name.
        types: its columns, in their order.
    """

    oid: int
    kind: str
    rows: float
    has_children: bool
    pages: int | None
    sql: str
    name: str
    types: dict[str, DbType]


async def find_relation(connection: asyncpg.Connection, question: Question) -> Relation:
    """The question's table, by its exact name; without a schema, where the user's search_path finds it.

    Raises:
        TableError: there is none; the message names one that is spelt alike.
    """
    *schema, name = question.name
    row = await connection.fetchrow(_RELATION, name, "".join(schema))
    if row is None:
        others = await connection.fetch(_RELATIONS)
        # A name alone is good advice only where the search_path finds it.
        known = [other["name"] if other["visible"] and not schema else f"{other['schema']}.{other['name']}" for other in others]
        path = "" if schema else f" in the schemas {await connection.fetchval('SHOW search_path')} that the user searches"
        raise TableError(
            f"expected a table or view, got {question.table}, which database {question.url.database} does not hold{path}; "
            f"{nearest(question.table, known)}"
        )
    attributes = await connection.fetch(_ATTRIBUTES, row["oid"])
    types = await base_types(connection, [(attribute["type"], attribute["modifier"]) for attribute in attributes])
    sql = ".".join(map(quote, question.name))
    named = {attribute["name"]: db_type for attribute, db_type in zip(attributes, types, strict=True)}
    return Relation(row["oid"], row["kind"], row["rows"], row["has_children"], row["pages"], sql, name, named)


async def base_types(connection: asyncpg.Connection, types: Sequence[tuple[int, int]]) -> list[DbType]:
    """The types of these (pg_type.oid, modifier), domains as what they are made of; an array's modifier is its elements'."""
    oids, modifiers = [oid for oid, _ in types], [modifier for _, modifier in types]
    rows = await connection.fetch(_TYPES, list(range(len(types))), oids, modifiers)
    arrays = [row for row in rows if row["element"] is not None]
    elements = iter(await base_types(connection, [(row["element"], row["modifier"]) for row in arrays]) if arrays else ())
    described = [DbType(row["name"], row["kind"], row["modifier"], row["shown"], row["sql"], row["schema"]) for row in rows]
    return [
        db_type if row["element"] is None else replace(db_type, element=next(elements))
        for db_type, row in zip(described, rows, strict=True)
    ]


async def unique_indexes(connection: asyncpg.Connection, relation: Relation) -> list[asyncpg.Record]:
    """The columns of each index that makes rows unique, and whether it is the primary key."""
    if relation.has_children and relation.kind == "r":  # tables that inherit from this one may repeat its keys
        return []
    folded = [name for name, db_type in relation.types.items() if db_type.name == "citext"]
    indexes: list[asyncpg.Record] = await connection.fetch(_UNIQUE_INDEXES, relation.oid, folded)
    return indexes


async def column_statistics(connection: asyncpg.Connection, relation: Relation) -> dict[str, asyncpg.Record]:
    """What ANALYZE has found out about the columns, for those that this user may read."""
    return {row["name"]: row for row in await connection.fetch(_STATISTICS, relation.oid)}


async def mean_bytes(connection: asyncpg.Connection, relation: Relation, names: Sequence[str]) -> dict[str, float]:
    """Mean bytes of a value, for columns of varying length, where values may be large.

    ANALYZE knows how they are stored: compressed, or as pointers to elsewhere. Some pages are read for it, but none of those
    values; always the same, so that two descriptions are alike.
    """
    if relation.pages is None or relation.has_children or not names:
        return {}
    share = 100 * min(1.0, _SAMPLED_PAGES / max(1, relation.pages))
    means = [
        f"avg({'octet_length' if relation.types[name].name in _TELLING else 'pg_column_size'}({quote(name)}))::float8"
        for name in names
    ]
    row = await connection.fetchrow(
        f"SELECT {', '.join(means)} FROM {relation.sql} TABLESAMPLE SYSTEM ({share:.9f}) REPEATABLE (0)"
    )
    return {name: mean for name, mean in zip(names, row, strict=True) if mean is not None}
