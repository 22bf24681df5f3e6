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
from srj.databases.lists import list_of
from srj.databases.postgresql_table import CITEXT, ENUM, NUMERIC, OTHER, UNBOUNDED, entry
from srj.databases.postgresql_wire import EPOCH_DAYS, EPOCH_MICROS
from srj.errors import TableError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import asyncpg

    from srj.databases.typing import TypeEntry

_ANY = KeyLimits()
_UTC = pa.timestamp("us", "UTC")
_LOCAL = pa.timestamp("us")
_MAX_DIGITS = 38  # of Spark's decimals
_DEFAULT_WIDTH = 32
_ONE_BYTE = ("ISO_8859_", "KOI8", "LATIN", "WIN")


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
        element: of an array, its elements' type; else None.
    """

    name: str
    kind: str
    modifier: int
    shown: str
    sql: str
    schema: str
    element: DbType | None = None


@dataclass(frozen=True)
class ValueType:
    """How a column's values come: as this Arrow type, by way of the SQL type `wire`, which is an array's elements'."""

    arrow: pa.DataType
    wire: str

    @property
    def default_width(self) -> int:
        """Mean bytes a value when no statistics say so; 0 for fixed widths."""
        return _DEFAULT_WIDTH if self.arrow in {pa.string(), pa.binary()} or types.is_list(self.arrow) else 0


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


def value_type(db_type: DbType, expression: str, name: str) -> ValueType:
    """How a column or expression of this type arrives.

    Args:
        db_type: its type.
        expression: the column's quoted name or the user's expression, for the advice.
        name: its name in the result.

    Raises:
        TableError: Spark has no such type; the message holds the expression that works.
    """
    element = db_type.element
    known = _entry(element or db_type)
    if element is not None and element.element is not None:  # a domain over arrays: srj packs no lists of lists
        known = OTHER
    if known.arrow is not None:
        if element is not None:
            return ValueType(list_of(value_type(element, expression, name).arrow), known.wire)
        return ValueType(pa.decimal128(*(_digits(db_type) or ())) if known.digits else known.arrow, known.wire)
    # A cast by :: binds more tightly than most of what an expression may be made of; CAST(… AS …) has brackets of its own.
    is_column = expression.startswith('"') and expression.count('"') == 2
    instead = known.instead if element is None else _of_array(known.instead)
    advice = instead.format(expression if is_column or "CAST(" in instead else f"({expression})")
    alias = name if name.isidentifier() and name == name.lower() else '"' + name.replace('"', '""') + '"'
    lacking = " without a precision of at most 38 digits" if known is UNBOUNDED else ""
    raise TableError(
        f"expected columns of types that Spark has, got {name} of type {db_type.shown}{lacking}; write "
        f"{advice + ' AS ' + alias!r} in its place"
    )


def key_type(db_type: DbType, table: str, column: str) -> KeyType:
    """How keys for a column of this type travel.

    Raises:
        TableError: a key of this type can't come from Spark.
    """
    known = _entry(db_type)
    if known.key is None:
        raise TableError(
            f"expected a key of a type that Spark has, got {table}.{column} of type {db_type.shown}; {known.key_instead}"
        )
    form = known.key
    is_own = known in {ENUM, CITEXT}  # of a schema that a cast must name
    return KeyType(
        arrow=pa.decimal128(*(_digits(db_type) or ())) if known.digits else form.arrow,
        wire=form.wire or form.cast,
        cast=db_type.sql if is_own else form.cast,
        limits=form.limits,
        schema=db_type.schema if known is CITEXT else "",
        is_enum=known is ENUM,
    )


def _of_array(cast: str) -> str:
    """The cast of an array, from that of an element."""
    return f"{cast[:-1]}[])" if cast.endswith(")") else f"{cast}[]"


def _entry(db_type: DbType) -> TypeEntry:
    known = entry(db_type.kind, db_type.name, is_array=db_type.element is not None)
    return UNBOUNDED if known is NUMERIC and _digits(db_type) is None else known


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
