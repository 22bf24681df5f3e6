"""PostgreSQL's types: what each is as a column and as a key; see `srj.databases.typing`."""

from __future__ import annotations

import pyarrow as pa

from srj.databases.base import KeyLimits
from srj.databases.lists import list_of
from srj.databases.postgresql_wire import OTHER_DATES
from srj.databases.typing import KeyForm, TypeEntry

_UTC = pa.timestamp("us", "UTC")
_LOCAL = pa.timestamp("us")
_FIRST_DAY = -2_440_588  # 4713-11-24 BC, the first that PostgreSQL's date and timestamp types hold
_LAST_DAY = 2_145_042_905  # 5874897-12-31; the last timestamp lies beyond Arrow's own
_FIRST_TIME = KeyLimits(lowest=_FIRST_DAY * 86_400_000_000)
_TEXT = KeyLimits(no_nul=True)
_EXACT_DATES = (
    "Years 1 to 9999; infinity or a date beyond ends the lookup with an error that names the column, unless an expression makes it "
    f"NULL: `{OTHER_DATES.format('x')} AS x`."
)
_VIEW = "make a view with this column cast to text, and an index on that expression"
_PLAIN_VIEW = "make a view with this column cast to text"  # no index: the cast depends on settings

_REGISTERED = tuple(
    f"reg{kind}"
    for kind in ("class", "collation", "config", "dictionary", "namespace", "oper", "operator", "proc", "procedure", "role", "type")
)


def _plain(name: str, title: str, arrow: pa.DataType, remarks: str = "", limits: KeyLimits = _TEXT) -> TypeEntry:
    """A type whose values and keys travel as they are."""
    limits = KeyLimits() if limits is _TEXT else limits
    return TypeEntry((name,), title, arrow, name, key=KeyForm(arrow, name, limits=limits), remarks=remarks)


def _text(names: tuple[str, ...], title: str, key: KeyForm, remarks: str, wire: str = "text") -> TypeEntry:
    return TypeEntry(names, title, pa.string(), wire, key=key, remarks=remarks)


def _refused(names: tuple[str, ...], title: str, instead: str = "{}::text", remarks: str = "", key: str = _VIEW) -> TypeEntry:
    return TypeEntry(names, title, None, instead=instead, key_instead=key, remarks=remarks)


DOCUMENT = TypeEntry(
    ("json", "jsonb"), "json, jsonb", pa.string(), "text", key_instead=_VIEW, remarks="As its text; `from_json` reads it in Spark."
)
ENUM = _text(
    ("enum",),
    "enum",
    KeyForm(pa.string(), "", "text", _TEXT),
    "As its label; text that is no label matches nothing.",
)
CITEXT = _text(("citext",), "citext", KeyForm(pa.string(), "citext", "text", _TEXT), "Keys match whatever their case.")
# Of the precision and scale declared, and without.
NUMERIC = TypeEntry(
    ("numeric",),
    "numeric(p,s)",
    pa.decimal128(38, 18),
    "text",
    key=KeyForm(pa.decimal128(38, 18), "numeric", "text"),
    digits=True,
    remarks="Exact, of up to 38 digits and 0 <= s <= p. NaN ends the lookup with an error that names the column, "
    "unless an expression makes it NULL: `CAST(NULLIF(x, 'NaN') AS numeric(p,s)) AS x`.",
)
UNBOUNDED = TypeEntry(
    ("numeric",),
    "numeric",
    None,
    instead="CAST({} AS numeric(38,10))",
    key=KeyForm(pa.decimal128(38, 18), "numeric", "text", KeyLimits(any_precision=True)),
    remarks="Without a precision, of more than 38 digits, or of a scale that is negative or above p: Spark's decimals have a fixed "
    "scale. As a key of up to 20 digits before the point and 18 behind it.",
)
ARRAY = TypeEntry(
    ("array",),
    "arrays of these types",
    list_of(pa.string()),
    key_instead=_PLAIN_VIEW,
    of_elements=True,
    remarks="Of one dimension, with NULLs, whatever their lower bound. More dimensions end the lookup with an error that names the "
    "column: `array_to_json(x)::text AS x`. Of a refused type, or of a domain over arrays: that cast with `[]`, `x::text[] AS x`.",
)
OTHER = _refused(("other",), "any other type", remarks="As a key: a view with the column cast to text.")

ENTRIES = (
    _plain("bool", "boolean", pa.bool_()),
    _plain("int2", "smallint", pa.int16()),
    _plain("int4", "integer", pa.int32()),
    _plain("int8", "bigint", pa.int64()),
    NUMERIC,
    UNBOUNDED,
    _plain("float4", "real", pa.float32(), "Bit for bit. As keys, NaN is NaN and -0 is 0."),
    _plain("float8", "double precision", pa.float64(), "Bit for bit. As keys, NaN is NaN and -0 is 0."),
    _text(("text",), "text", KeyForm(pa.string(), "text", limits=_TEXT), "Equality is the collation's."),
    _text(("varchar",), "varchar(n)", KeyForm(pa.string(), "text", limits=_TEXT), "As text; a longer key is not cut."),
    _text(
        ("bpchar",),
        "char(n)",
        # Without a length: a cast to char(n) or varchar(n) would cut keys off.
        KeyForm(pa.string(), "bpchar", "text", _TEXT),
        "With its padding; as a key, trailing spaces count on neither side.",
        wire="bpchar",  # a cast of char(n) to text would drop its padding
    ),
    _text(("name",), "name", KeyForm(pa.string(), "text", limits=_TEXT), "As text; a longer key is not cut."),
    CITEXT,
    ENUM,
    _text(
        ("uuid",),
        "uuid",
        KeyForm(pa.string(), "uuid", "text", KeyLimits(uuid=True)),
        "In lower case with hyphens; keys may be in upper case, in braces or without hyphens.",
    ),
    _plain("bytea", "bytea", pa.binary()),
    _plain("date", "date", pa.date32(), _EXACT_DATES, KeyLimits(lowest=_FIRST_DAY, highest=_LAST_DAY)),
    _plain("timestamp", "timestamp", _LOCAL, f"Without a zone. {_EXACT_DATES}", _FIRST_TIME),
    _plain("timestamptz", "timestamp with time zone", _UTC, f"An instant, whatever the zones. {_EXACT_DATES}", _FIRST_TIME),
    DOCUMENT,
    _refused(("money",), "money", "CAST({} AS numeric(38,10))", "Its text depends on the server's locale.", _PLAIN_VIEW),
    _refused(("time", "timetz"), "time, time with time zone", remarks="PostgreSQL has 24:00:00."),
    _refused(("interval",), "interval", remarks="Or `EXTRACT(epoch FROM x)::float8 AS seconds`.", key=_PLAIN_VIEW),
    _refused(("bit", "varbit"), "bit(n), bit varying(n)", remarks="Or, of up to 64 bits, `x::bigint AS x`."),
    _refused(("inet", "cidr", "macaddr", "macaddr8"), "inet, cidr, macaddr, macaddr8", remarks="Or `host(x) AS x`."),
    _refused(("oid",), "oid", "{}::bigint", key="make a view with this column cast to bigint"),
    _refused(_REGISTERED, "regclass, regtype and their kin", key=_PLAIN_VIEW),
    _refused(("range", "multirange"), "ranges, multiranges", remarks="Or `lower(x) AS low`, `upper(x) AS high`.", key=_PLAIN_VIEW),
    ARRAY,
    _refused(("composite",), "composite types", remarks="Or its fields: `(x).field AS field`.", key=_PLAIN_VIEW),
    _refused(("xml",), "xml", key=_PLAIN_VIEW),
    _refused(("point", "line", "lseg", "box", "path", "polygon", "circle"), "geometric types"),
    OTHER,
)
_KINDS = {"e": "enum", "r": "range", "m": "multirange", "c": "composite"}
_BY_NAME = {name: entry for entry in ENTRIES for name in entry.names} | {"numeric": NUMERIC}


def entry(kind: str, name: str, *, is_array: bool) -> TypeEntry:
    """The entry of a type that is no domain; a numeric's as if it had a precision.

    Args:
        kind: pg_type.typtype: ``b`` base, ``e`` enum, …
        name: pg_type.typname.
        is_array: whether it is another type's array.

    >>> [entry(kind, name, is_array=False).title for kind, name in (("b", "int8"), ("e", "mood"), ("b", "hstore"))]
    ['bigint', 'enum', 'any other type']
    """
    if is_array:
        return ARRAY
    return _BY_NAME.get(_KINDS.get(kind, "other") if kind != "b" else name, OTHER)


def wire(arrow: pa.DataType) -> str:
    """An SQL type in which values of an Arrow type can be sent, whatever their own.

    >>> wire(pa.int32()), wire(pa.string()), wire(pa.decimal128(10, 2))
    ('int4', 'text', 'text')
    """
    return next((entry.wire for entry in ENTRIES if entry.arrow == arrow), "text")
