"""PostgreSQL's types: as which Arrow types values arrive, and how keys travel."""

from __future__ import annotations

import codecs
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from srj.databases.base import KeyLimits
from srj.databases.postgresql_wire import EPOCH_DAYS, EPOCH_MICROS
from srj.errors import TableError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import asyncpg

_ANY = KeyLimits()
_UTC = pa.timestamp("us", "UTC")
_LOCAL = pa.timestamp("us")
_MAX_DIGITS = 38  # of Spark's decimals
_DEFAULT_WIDTH = 32
_ONE_BYTE = ("ISO_8859_", "KOI8", "LATIN", "WIN")
_FIRST_DAY = -2_440_588  # 4713-11-24 BC, the first that PostgreSQL's date and timestamp types hold
_LAST_DAY = 2_145_042_905  # 5874897-12-31; the last timestamp lies beyond Arrow's own


@dataclass(frozen=True)
class DbType:
    """A column's type: a domain's is that of its base.

    Attributes:
        name: as in pg_type: ``int8``, ``bpchar``, …
        kind: pg_type.typtype: ``b`` base, ``e`` enum, …
        modifier: pg_attribute.atttypmod: holds a numeric's precision and scale, -1 for none.
        shown: as people write it, domains by their own name: ``numeric(10,2)``.
        sql: the base type's name with its schema, where one is needed: fit for a cast.
        schema: where the base type lives, quoted.
    """

    name: str
    kind: str
    modifier: int
    shown: str
    sql: str
    schema: str


@dataclass(frozen=True)
class ValueType:
    """How a column's values come: as this Arrow type, by way of the SQL type `wire`."""

    arrow: pa.DataType
    wire: str

    @property
    def default_width(self) -> int:
        """Mean bytes a value when no statistics say so; 0 for fixed widths."""
        return _DEFAULT_WIDTH if self.arrow in {pa.string(), pa.binary()} else 0


@dataclass(frozen=True)
class KeyType:
    """How keys travel: as an array of `wire`, compared as `cast`."""

    arrow: pa.DataType
    wire: str
    cast: str
    limits: KeyLimits = _ANY
    schema: str = ""
    is_enum: bool = False

    def condition(self, column: str, key: str) -> str:
        """The SQL condition that a column equals a key; never a cast of the column that would lose its index."""
        if self.cast == self.wire:
            return f"{column} = {key}"
        if self.schema:  # citext: without its schema in search_path, a plain = would silently be text's
            return f"{column} OPERATOR({self.schema}.=) {key}::{self.cast}"
        if self.is_enum:  # text that is no label must match nothing rather than fail the batch
            # A domain over an enum has no equality of its own; the cast to what it is made of costs nothing.
            known = f"{key} = ANY (enum_range(NULL::{self.cast})::text[])"
            return f"{column}::{self.cast} = CASE WHEN {known} THEN {key}::{self.cast} END"
        return f"{column} = {key}::{self.cast}"


_PLAIN = {
    "bool": ValueType(pa.bool_(), "bool"),
    "int2": ValueType(pa.int16(), "int2"),
    "int4": ValueType(pa.int32(), "int4"),
    "int8": ValueType(pa.int64(), "int8"),
    "float4": ValueType(pa.float32(), "float4"),
    "float8": ValueType(pa.float64(), "float8"),
    "bytea": ValueType(pa.binary(), "bytea"),
    "date": ValueType(pa.date32(), "date"),
    "timestamp": ValueType(_LOCAL, "timestamp"),
    "timestamptz": ValueType(_UTC, "timestamptz"),
    "text": ValueType(pa.string(), "text"),
    "varchar": ValueType(pa.string(), "text"),
    # A cast of char(n) to text would drop its padding.
    "bpchar": ValueType(pa.string(), "bpchar"),
}
_AS_TEXT = {"name", "citext", "uuid", "json", "jsonb"}

_KEYS = {name: KeyType(value.arrow, name, name) for name, value in _PLAIN.items()}
_KEYS |= {name: KeyType(pa.string(), "text", "text", KeyLimits(no_nul=True)) for name in ("text", "varchar", "name")}
_KEYS |= {
    # Without a length: a cast to char(n) or varchar(n) would cut keys off.
    "bpchar": KeyType(pa.string(), "text", "bpchar", KeyLimits(no_nul=True)),
    "uuid": KeyType(pa.string(), "text", "uuid", KeyLimits(uuid=True)),
    "date": KeyType(pa.date32(), "date", "date", KeyLimits(lowest=_FIRST_DAY, highest=_LAST_DAY)),
    "timestamp": KeyType(_LOCAL, "timestamp", "timestamp", KeyLimits(lowest=_FIRST_DAY * 86_400_000_000)),
    "timestamptz": KeyType(_UTC, "timestamptz", "timestamptz", KeyLimits(lowest=_FIRST_DAY * 86_400_000_000)),
}


def value_type(db_type: DbType, expression: str, name: str) -> ValueType:
    """How a column or expression of this type arrives.

    Args:
        db_type: its type.
        expression: the column's quoted name or the user's expression, for the advice.
        name: its name in the result.

    Raises:
        TableError: Spark has no such type; the message holds the expression that works.
    """
    if db_type.kind == "b" and db_type.name in _PLAIN:
        return _PLAIN[db_type.name]
    if db_type.kind == "e" or (db_type.kind == "b" and db_type.name in _AS_TEXT):
        return ValueType(pa.string(), "text")
    numeric = db_type.kind == "b" and db_type.name == "numeric"
    if numeric and (digits := _digits(db_type)) is not None:
        return ValueType(pa.decimal128(*digits), "text")
    advice = f"CAST({expression} AS numeric(38,10))" if numeric else f"({expression})::text"
    if not numeric and expression.startswith('"') and expression.count('"') == 2:
        advice = f"{expression}::text"
    alias = name if name.isidentifier() and name == name.lower() else '"' + name.replace('"', '""') + '"'
    raise TableError(
        f"expected columns of types that Spark has, got {name} of type {db_type.shown}"
        f"{' without a precision of at most 38 digits' if numeric else ''}; write {advice + ' AS ' + alias!r} in its place"
    )


def wire(arrow: pa.DataType) -> str:
    """An SQL type in which values of an Arrow type can be sent, whatever their own.

    >>> wire(pa.int32()), wire(pa.string()), wire(pa.decimal128(10, 2))
    ('int4', 'text', 'text')
    """
    return next((value.wire for value in _PLAIN.values() if value.arrow == arrow), "text")


def key_type(db_type: DbType, table: str, column: str) -> KeyType:
    """How keys for a column of this type travel.

    Raises:
        TableError: a key of this type can't come from Spark.
    """
    name, text = db_type.name, KeyLimits(no_nul=True)
    if db_type.kind == "e":
        return KeyType(pa.string(), "text", db_type.sql, text, is_enum=True)
    if db_type.kind == "b" and name == "citext":
        return KeyType(pa.string(), "text", db_type.sql, text, db_type.schema)
    if db_type.kind == "b" and name == "numeric":
        digits = _digits(db_type)
        return KeyType(pa.decimal128(*(digits or (38, 18))), "text", "numeric", KeyLimits(any_precision=digits is None))
    if db_type.kind == "b" and name in _KEYS:
        return _KEYS[name]
    raise TableError(
        f"expected a key of a type that Spark has, got {table}.{column} of type {db_type.shown}; "
        "make a view with this column cast to text, and an index on that expression"
    )


def python_encoding(server: str) -> str | None:
    """Python's name of a server's encoding of one byte a character; None for others.

    For those Python and PostgreSQL have the same characters. Of the others UTF8 has them all, and in EUC_JP, EUC_KR and their kin
    the two differ about dozens: only the server itself can say.

    >>> python_encoding("WIN1252"), python_encoding("LATIN9"), python_encoding("UTF8"), python_encoding("EUC_JP")
    ('cp1252', 'iso8859-15', None, None)
    """
    if not server.startswith(_ONE_BYTE):
        return None
    try:
        return codecs.lookup(server.replace("WIN", "cp").replace("KOI8", "koi8_")).name
    except LookupError:  # an encoding that Python lacks: the server itself refuses what it can't express
        return None


def _digits(numeric: DbType) -> tuple[int, int] | None:
    """Precision and scale of a numeric that fits Spark's decimals; PostgreSQL packs both into the modifier."""
    packed = numeric.modifier - 4
    precision, scale = (packed >> 16) & 0xFFFF, ((packed & 0x7FF) ^ 0x400) - 0x400
    if numeric.modifier < 0 or precision > _MAX_DIGITS or not 0 <= scale <= precision:
        return None
    return precision, scale


async def register_codecs(connection: asyncpg.Connection, arrow_types: Sequence[pa.DataType]) -> None:
    """Let dates and timestamps travel as integers: datetime objects are slow, and know neither infinity nor years BC."""
    names = {"date": pa.date32(), "timestamp": _LOCAL, "timestamptz": _UTC}
    for name, arrow in names.items():
        if arrow in arrow_types:
            await connection.set_type_codec(
                name, schema="pg_catalog", format="tuple", encoder=lambda value: (value,), decoder=itemgetter(0)
            )


def parameter(keys: pa.Array) -> list[Any] | str:
    r"""A column of keys, without NULLs, as the driver takes it: those that `travels_as_text`, as one array literal.

    A driver's list is encoded value by value, which takes as long as all else that srj does to ask.

    >>> parameter(pa.array([7, -1])), parameter(pa.array(["a b", 'say "hi"']))
    ('{7,-1}', '{"a b","say \\"hi\\""}')
    """
    if travels_as_text(keys.type):
        return _array_literal(keys)
    if types.is_date32(keys.type):
        keys = pc.subtract(keys.view(pa.int32()), pa.scalar(EPOCH_DAYS, pa.int32()))
    elif types.is_timestamp(keys.type):
        keys = pc.subtract(keys.view(pa.int64()), EPOCH_MICROS)
    values: list[Any] = keys.to_numpy(zero_copy_only=False).tolist()
    return values


def travels_as_text(arrow: pa.DataType) -> bool:
    """Whether keys are sent as an array literal: those whose text says exactly what they are."""
    return bool(types.is_integer(arrow) or types.is_decimal(arrow) or types.is_string(arrow))


def _array_literal(keys: pa.Array) -> str:
    quote = ""
    if types.is_string(keys.type):
        keys = pc.replace_substring(pc.replace_substring(keys, "\\", "\\\\"), '"', '\\"')
        quote = '"'
    if not len(keys):
        return "{}"
    whole = pa.ListArray.from_arrays(pa.array([0, len(keys)], pa.int32()), keys.cast(pa.string()))
    joined = pc.binary_join(whole, f"{quote},{quote}")[0].as_py()
    return f"{{{quote}{joined}{quote}}}"
