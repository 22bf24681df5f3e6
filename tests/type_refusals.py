"""The types that are refused, each with a value."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from srj.databases import mysql_table, postgresql_table

if TYPE_CHECKING:
    from srj.databases.typing import TypeEntry

_ARRAYS = "arrays of these types"


class Refused(NamedTuple):
    """A type that is refused: how it is declared, and a value as SQL."""

    entry: TypeEntry
    sql: str
    literal: str


def _refused(entries: tuple[TypeEntry, ...], title: str, *pairs: tuple[str, str]) -> list[Refused]:
    entry = next(one for one in entries if one.title == title)
    return [Refused(entry, sql, literal) for sql, literal in pairs]


_P, _M = postgresql_table.ENTRIES, mysql_table.ENTRIES
POSTGRES_REFUSED = (
    *_refused(_P, "numeric", ("numeric", "1.5"), ("numeric(40,2)", "1.5"), ("numeric(5,-2)", "12345"), ("numeric(2,3)", "0.012")),
    *_refused(_P, "json, jsonb", ("json", """'{"a": 1}'"""), ("jsonb", """'{"a": 1}'""")),
    *_refused(_P, "money", ("money", "'-12.34'")),
    *_refused(_P, "time, time with time zone", ("time", "'24:00'"), ("time(3)", "'01:02:03.004'"), ("timetz", "'23:59:60+05:30'")),
    *_refused(_P, "interval", ("interval", "'-1 mon 1 day -00:00:01.5'")),
    *_refused(_P, "bit(n), bit varying(n)", ("bit(3)", "B'101'"), ("bit varying", "B''"), ("bit(80)", "B'1'::bit(80)")),
    *_refused(
        _P,
        "inet, cidr, macaddr, macaddr8",
        *(("inet", "'::1'"), ("inet", "'10.1.2.3/8'"), ("cidr", "'10.0.0.0/8'"), ("macaddr", "'08:00:2b:01:02:03'")),
        ("macaddr8", "'08:00:2b:01:02:03:04:05'"),
    ),
    *_refused(_P, "oid", ("oid", "4294967295")),
    *_refused(_P, "regclass, regtype and their kin", ("regclass", "'pg_class'"), ("regtype", "'int4'"), ("regproc", "'now'")),
    *_refused(
        _P,
        "ranges, multiranges",
        *(("int4range", "'[1,2)'"), ("tstzrange", "'[2024-01-01,)'"), ("numrange", "'empty'")),
        ("int8multirange", "'{[1,2),[5,9)}'"),
    ),
    *_refused(_P, _ARRAYS, ("int[]", "'{1,NULL,2}'"), ("text[]", """'{"a,b",NULL,"NULL"}'""")),
    *_refused(_P, "composite types", ("pair", "(1, 'a,b')")),
    *_refused(_P, "xml", ("xml", "'<a>é</a>'")),
    *_refused(_P, "geometric types", ("point", "'(1,2)'"), ("box", "'(1,2),(0,0)'"), ("circle", "'<(1,2),3>'")),
    *_refused(_P, "any other type", ("tsvector", "'a b'"), ("pg_lsn", "'16/B374D848'"), ("int2vector", "'1 2'")),
)
# Of what is refused.
POSTGRES_REFUSED_ARRAYS = _refused(
    _P,
    _ARRAYS,
    *(("numeric[]", "'{1.5,NULL}'"), ("numeric(40,2)[]", "'{1.5}'"), ("money[]", "'{-12.34}'"), ("oid[]", "'{7}'")),
    *(("inet[]", "'{::1,NULL}'"), ("time[]", "'{24:00}'"), ("int4range[]", """'{"[1,2)"}'"""), ("bit(3)[]", "'{101}'")),
    *(("pair[]", """'{"(1,a)"}'"""), ("xml[]", "'{<a/>}'"), ("point[]", """'{"(1,2)"}'"""), ("tsvector[]", "'{a}'")),
    ("few[]", "'{\"{1,NULL}\",NULL}'"),
)
MYSQL_REFUSED = (
    *_refused(_M, "decimal of 39 to 65 digits", ("DECIMAL(65,2)", "1" * 63 + ".25"), ("DECIMAL(39,0)", "9" * 39)),
    *_refused(_M, "time", ("TIME(3)", "'-838:59:59.000'"), ("TIME", "'25:00:00'")),
    *_refused(_M, "bit", ("BIT(8)", "b'101'"), ("BIT(64)", "18446744073709551615")),
    *_refused(_M, "geometry", ("POINT", "POINT(1, 2)"), ("GEOMETRY", "ST_GeomFromText('LINESTRING(0 0,1 1)')")),
)
MYSQL_REFUSED_ONLY = (
    *_refused(_M, "json", ("JSON", """'{"a": 1}'""")),
    *_refused(_M, "vector", ("VECTOR(3)", "STRING_TO_VECTOR('[1,2,3]')")),
)
