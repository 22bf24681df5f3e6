"""MySQL's and MariaDB's types: what each is as a column and as a key; see `srj.databases.typing`."""

from __future__ import annotations

import pyarrow as pa
from pymysql.constants import FIELD_TYPE

from srj.databases.base import KeyLimits
from srj.databases.typing import KeyForm, TypeEntry

_US = 1_000_000
_DAYS = KeyLimits(lowest=-719_162, highest=2_932_896)  # 0001-01-01 to 9999-12-31
_DATETIMES = KeyLimits(lowest=-719_162 * 86_400 * _US, highest=(2_932_897 * 86_400) * _US - 1)
# An instant outside would be compared as a zero date.
_TIMESTAMPS = KeyLimits(lowest=1, highest=2**32 * _US - 1)
_FINITE = KeyLimits(finite=True)
_UTF8 = "LONGTEXT CHARACTER SET utf8mb4"  # LONGTEXT, so that a long key is never cut to the column's length and then found
_TEXT = KeyForm(pa.string(), _UTF8)
_BYTES = KeyForm(pa.binary(), "LONGTEXT CHARACTER SET latin1", reading="UNHEX({})")
_STRINGS = (FIELD_TYPE.VARCHAR, FIELD_TYPE.VAR_STRING, FIELD_TYPE.STRING)
_BLOBS = (FIELD_TYPE.TINY_BLOB, FIELD_TYPE.BLOB, FIELD_TYPE.MEDIUM_BLOB, FIELD_TYPE.LONG_BLOB)
_VECTOR = 242  # in the server's protocol; the driver has no name for it
_GEOMETRIES = ("point", "linestring", "polygon", "multipoint", "multilinestring", "multipolygon", "geometrycollection")
_AS_TEXT = "CAST({} AS CHAR)"
GENERATED = "add a generated column of another type, such as CHAR, and index it"
_ZERO = (
    "A date that is in no calendar (`0000-00-00`, `2024-05-00`, `2024-02-31`, any of the year 0) arrives as NULL; "
    "`CAST(x AS CHAR) AS x` keeps it."
)


def _integer(name: str, code: int, bits: int, signed: pa.DataType, unsigned: pa.DataType, remarks: str = "") -> list[TypeEntry]:
    """An integer type and its unsigned sister, whose keys are unsigned only where no signed type has room for them."""
    # A signed key would wrap or clamp in an unsigned column of the same width.
    own, cast = (unsigned, "BIGINT") if pa.types.is_integer(unsigned) else (pa.uint64(), "BIGINT UNSIGNED")
    below, above = KeyLimits(lowest=-(2 ** (bits - 1)), highest=2 ** (bits - 1) - 1), KeyLimits(lowest=0, highest=2**bits - 1)
    return [
        TypeEntry((name,), name, signed, key=KeyForm(signed, "BIGINT", limits=below), codes=(code,), remarks=remarks),
        TypeEntry((name,), f"{name} unsigned", unsigned, key=KeyForm(own, cast, limits=above), codes=(code,), unsigned=True),
    ]


def _refused(name: str, code: int, instead: str = _AS_TEXT, remarks: str = "", kinds: tuple[str, ...] = ()) -> TypeEntry:
    return TypeEntry((name, *kinds), name, None, instead=instead, key_instead=GENERATED, codes=(code,), remarks=remarks)


TEXT = TypeEntry(
    ("char", "varchar", "tinytext", "text", "mediumtext", "longtext"),
    "char, varchar, tinytext, text, mediumtext, longtext",
    pa.string(),
    key=_TEXT,
    codes=_STRINGS + _BLOBS,
    remarks="Equality is the collation's: case, accents, trailing spaces. `char` drops trailing spaces when it stores them. "
    "MariaDB's `json` is a longtext.",
)
BYTES = TypeEntry(
    ("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"),
    "binary, varbinary, tinyblob, blob, mediumblob, longblob",
    pa.binary(),
    key=_BYTES,
    codes=_STRINGS + _BLOBS,
    remarks="`binary(n)` is padded with zero bytes, which count as a key too.",
)
DECIMAL = TypeEntry(
    ("decimal",),
    "decimal(p,s)",
    pa.decimal128(38, 18),
    key=KeyForm(pa.decimal128(38, 18), "DECIMAL"),
    digits=True,
    codes=(FIELD_TYPE.DECIMAL, FIELD_TYPE.NEWDECIMAL),
    remarks="Exact, of up to 38 digits.",
)
LONG_DECIMAL = TypeEntry(
    ("decimal",), "decimal of 39 to 65 digits", None, instead=_AS_TEXT, key_instead=GENERATED, remarks="Spark has 38 digits."
)

ENTRIES = (
    *_integer("tinyint", FIELD_TYPE.TINY, 8, pa.int8(), pa.int16(), "`bool` is tinyint(1), which holds more than 0 and 1."),
    *_integer("smallint", FIELD_TYPE.SHORT, 16, pa.int16(), pa.int32()),
    *_integer("mediumint", FIELD_TYPE.INT24, 24, pa.int32(), pa.int32()),
    *_integer("int", FIELD_TYPE.LONG, 32, pa.int32(), pa.int64()),
    *_integer("bigint", FIELD_TYPE.LONGLONG, 64, pa.int64(), pa.decimal128(20, 0)),
    DECIMAL,
    LONG_DECIMAL,
    TypeEntry(
        ("float",),
        "float",
        pa.float32(),
        key=KeyForm(pa.float32(), "DOUBLE", limits=_FINITE),
        codes=(FIELD_TYPE.FLOAT,),
        remarks="With all its bits, not the six digits that the server prints.",
    ),
    TypeEntry(
        ("double",),
        "double",
        pa.float64(),
        key=KeyForm(pa.float64(), "DOUBLE", limits=_FINITE),
        codes=(FIELD_TYPE.DOUBLE,),
        remarks="-0 is 0; NaN and infinities match nothing, for no column holds them.",
    ),
    TypeEntry(
        ("year",),
        "year",
        pa.int16(),
        key=KeyForm(pa.int16(), "BIGINT", limits=KeyLimits(lowest=0, highest=2155)),
        codes=(FIELD_TYPE.YEAR,),
        remarks="1901 to 2155, and 0.",
    ),
    TEXT,
    TypeEntry(("enum",), "enum", pa.string(), key=_TEXT, codes=(FIELD_TYPE.ENUM,), remarks="As its label, never its number."),
    TypeEntry(("set",), "set", pa.string(), key=_TEXT, codes=(FIELD_TYPE.SET,), remarks="As its labels with commas between them."),
    *(
        TypeEntry(
            (name,),
            name,
            pa.string(),
            key=KeyForm(pa.string(), _UTF8, limits=limits, reading=f"CAST({{}} AS {name})"),
            remarks=f"MariaDB's. {remarks}",
        )
        for name, limits, remarks in (
            ("uuid", KeyLimits(uuid=True), "In lower case with hyphens; keys may be in upper case, in braces or without hyphens."),
            ("inet4", KeyLimits(), "Text that is no address matches nothing."),
            ("inet6", KeyLimits(), "In its shortest form; keys in any. Text that is no address matches nothing."),
        )
    ),
    BYTES,
    TypeEntry(
        ("date",),
        "date",
        pa.date32(),
        key=KeyForm(pa.date32(), "DATE", limits=_DAYS),
        codes=(FIELD_TYPE.DATE, FIELD_TYPE.NEWDATE),
        remarks=_ZERO,
    ),
    TypeEntry(
        ("datetime",),
        "datetime",
        pa.timestamp("us"),
        key=KeyForm(pa.timestamp("us"), "DATETIME(6)", limits=_DATETIMES),
        codes=(FIELD_TYPE.DATETIME,),
        remarks=f"Without a zone. {_ZERO}",
    ),
    TypeEntry(
        ("timestamp",),
        "timestamp",
        pa.timestamp("us", "UTC"),
        key=KeyForm(pa.timestamp("us", "UTC"), "DATETIME(6)", limits=_TIMESTAMPS),
        codes=(FIELD_TYPE.TIMESTAMP,),
        remarks=f"An instant, whatever the zones. {_ZERO}",
    ),
    TypeEntry(
        ("json",),
        "json",
        pa.string(),
        key_instead=GENERATED,
        codes=(FIELD_TYPE.JSON,),
        remarks="MySQL's. As its text; `from_json` reads it in Spark.",
    ),
    _refused("time", FIELD_TYPE.TIME, remarks="Of -838:59:59 to 838:59:59."),
    _refused("bit", FIELD_TYPE.BIT, "CAST({} AS UNSIGNED)"),
    _refused("geometry", FIELD_TYPE.GEOMETRY, "ST_AsText({})", "With its kinds: `point`, `polygon`, …", _GEOMETRIES),
    TypeEntry(
        ("vector",),
        "vector",
        None,
        instead="VECTOR_TO_STRING({})",
        key_instead="make a view with this column as text, VECTOR_TO_STRING(…)",  # no generated column may be made of it
        codes=(_VECTOR,),
        remarks="MySQL's; MariaDB's arrives as its bytes.",
    ),
    _refused("null", FIELD_TYPE.NULL, remarks="A NULL without a type."),
)
_BY_CODE = {(code, one.unsigned): one for one in ENTRIES for code in one.codes if one is not BYTES}
_BY_NAME = {(name, one.unsigned): one for one in ENTRIES for name in one.names if one is not LONG_DECIMAL}


def entry_of_result(code: int, *, unsigned: bool, is_bytes: bool) -> TypeEntry | None:
    """The entry of a result's column; a decimal's as if it had at most 38 digits.

    Args:
        code: the number by which the server's protocol knows the type.
        unsigned: whether it has no negative numbers.
        is_bytes: whether what is text by its code has no character set.

    >>> entry_of_result(FIELD_TYPE.LONG, unsigned=True, is_bytes=False).title
    'int unsigned'
    """
    # Some servers call a year, or a float, unsigned.
    found = _BY_CODE.get((code, unsigned)) or _BY_CODE.get((code, False))
    return BYTES if is_bytes and found is not None and found.key == _TEXT else found


def entry_of_column(data_type: str, *, unsigned: bool) -> TypeEntry | None:
    """The entry of a table's column, by its type without arguments as information_schema has it.

    >>> entry_of_column("bigint", unsigned=True).key.cast
    'BIGINT UNSIGNED'
    """
    return _BY_NAME.get((data_type, unsigned)) or _BY_NAME.get((data_type, False))
