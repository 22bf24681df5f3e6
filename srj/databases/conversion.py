"""From the stream's key types to the table's: what is lossless, and which values can never match.

A key reaches the database in the table's own type, so that its index serves and equality is the database's. Where a type can't
be converted without loss, `check_key_type` refuses it before the stream starts, with the cast to write. Where a single value has
no counterpart (99999999999 for an int4 column), `convert_key` makes it NULL and marks it: it matches nothing and nobody asks.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from srj.databases.base import KeyLimits
from srj.databases.text_keys import Converted, convert_text, convert_uuid, drop
from srj.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    from srj.databases.base import KeyColumn

_NONE = KeyLimits()
_ROOM = 38 - 20  # the largest scale at which every 64-bit integer fits into 38 digits


def check_key_type(stream: pa.DataType, key: KeyColumn, name: str) -> None:
    """Refuse a stream column whose values can't be converted to the key column's type without loss.

    Args:
        stream: the Arrow type of the stream's column.
        key: the table's column.
        name: the stream column's name, for the message.

    Raises:
        RequestError: with both names and types, and the cast that makes it work, if Spark has one.

    Example:
        >>> from srj.databases.base import KeyColumn
        >>> key = KeyColumn("id", '"id"', "bigint", pa.int64(), "int8")
        >>> check_key_type(pa.int32(), key, "order_id")
        >>> check_key_type(pa.string(), key, "order_id")
        Traceback (most recent call last):
            ...
        srj.errors.RequestError: expected a key that converts to the table's id (bigint) without loss, got order_id of \
type string; write CAST(order_id AS BIGINT)
    """
    if is_lossless(stream, key):
        return
    quoted = name if re.fullmatch(r"\w+(\.\w+)*", name) else f"`{name.replace('`', '``')}`"
    has_fractions = types.is_floating(stream) or types.is_decimal(stream)
    condition = "if all its values are whole, " if types.is_integer(key.type) and has_fractions else ""
    target = _cast_target(key.type)
    advice = f"{condition}write CAST({quoted} AS {target})"
    if not _has_cast(stream, key.type):
        advice = f"name another column, for Spark has no cast to {target}"
    raise RequestError(
        f"expected a key that converts to the table's {key.name} ({key.db_type}) without loss, got {name} of type "
        f"{spark_type(stream)}; {advice}"
    )


def convert_key(array: pa.Array, key: KeyColumn) -> tuple[pa.Array, npt.NDArray[np.bool_] | None]:
    """Convert a batch's keys to the key column's type.

    Args:
        array: values of a type that `check_key_type` accepts.
        key: the table's column.

    Returns:
        The array in the key's type, NULL where the input is NULL or *impossible* (a value that the column can never hold), and
        a mask of the impossible values, or None if there are none.

    Example:
        >>> from srj.databases.base import KeyColumn
        >>> key = KeyColumn("id", '"id"', "smallint", pa.int16(), "int2")
        >>> keys, impossible = convert_key(pa.array([1, None, 70000]), key)
        >>> keys.to_pylist(), impossible.tolist()
        ([1, None, None], [False, False, True])
    """
    return _converter(array.type, key)(array, key)


def spark_type(arrow: pa.DataType) -> str:
    """An Arrow type as Spark spells it, for people.

    >>> spark_type(pa.int64()), spark_type(pa.decimal128(10, 2)), spark_type(pa.list_(pa.timestamp("us")))
    ('bigint', 'decimal(10,2)', 'array<timestamp_ntz>')
    """
    if types.is_decimal(arrow):
        return f"decimal({arrow.precision},{arrow.scale})"
    if types.is_timestamp(arrow):
        return "timestamp_ntz" if arrow.tz is None else "timestamp"
    if _is_text(arrow):
        return "string"
    if _is_bytes(arrow):
        return "binary"
    if types.is_list(arrow):
        return f"array<{spark_type(arrow.value_type)}>"
    return _SPARK_NAMES.get(arrow, str(arrow))


_SPARK_NAMES = {
    pa.int8(): "tinyint",
    pa.int16(): "smallint",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.bool_(): "boolean",
    pa.date32(): "date",
    pa.null(): "void",
    pa.duration("us"): "interval day to second",
    pa.time64("ns"): "time",
}


def _cast_target(wanted: pa.DataType) -> str:
    """The Spark type to cast to: wide integers for all, since values out of range simply match nothing."""
    if wanted == pa.uint64():
        return "DECIMAL(20,0)"
    return "BIGINT" if types.is_integer(wanted) else spark_type(wanted).upper()


def _has_cast(stream: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether Spark casts one type to the other, by the rules of ANSI, which are its default."""
    if types.is_nested(stream):
        return False
    if _is_text(stream) or _is_text(wanted) or types.is_null(stream):
        return True
    if _is_bytes(stream) or _is_bytes(wanted):
        return False
    is_day_or_local = types.is_date(stream) or (types.is_timestamp(stream) and stream.tz is None)
    if types.is_boolean(wanted):
        return _is_number(stream)
    if _is_number(wanted):
        is_span = types.is_duration(stream) or types.is_time(stream)
        return not is_day_or_local and not (is_span and types.is_floating(wanted))
    # Of an instant a number is the seconds since 1970; dates and times without a zone are made of no number.
    is_instant = wanted.tz is not None if types.is_timestamp(wanted) else False
    is_moment = is_day_or_local or types.is_timestamp(stream) or (types.is_time(stream) and types.is_timestamp(wanted))
    return bool(is_moment or (is_instant and _is_number(stream)))


def _is_number(arrow: pa.DataType) -> bool:
    return bool(types.is_integer(arrow) or types.is_decimal(arrow) or types.is_floating(arrow))


def _is_text(arrow: pa.DataType) -> bool:
    return bool(types.is_string(arrow) or types.is_large_string(arrow) or types.is_string_view(arrow))


def _is_bytes(arrow: pa.DataType) -> bool:
    return bool(
        types.is_binary(arrow) or types.is_large_binary(arrow) or types.is_fixed_size_binary(arrow) or types.is_binary_view(arrow)
    )


def is_lossless(stream: pa.DataType, key: KeyColumn) -> bool:
    """Whether a stream column of this type converts to the key column's without loss, value by value or to nothing at all."""
    wanted = key.type
    if types.is_integer(wanted):
        lossless = types.is_integer(stream) or (types.is_decimal128(stream) and stream.scale == 0)
    elif types.is_decimal(wanted):
        fits = types.is_decimal128(stream) and (not key.limits.any_precision or _widens(stream, wanted))
        lossless = types.is_integer(stream) or fits
    elif types.is_timestamp(wanted):
        # With a zone or without: the two are different things, whatever the zone's name.
        lossless = types.is_timestamp(stream) and stream.unit == wanted.unit and (stream.tz is None) == (wanted.tz is None)
    elif types.is_float64(wanted):
        lossless = stream in {pa.float32(), pa.float64()}
    elif _is_text(wanted):
        lossless = _is_text(stream)
    elif _is_bytes(wanted):
        lossless = _is_bytes(stream)
    else:
        lossless = stream == wanted
    return bool(lossless)


def _widens(stream: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether every decimal of one type is one of the other."""
    return bool(wanted.scale >= stream.scale and wanted.precision - wanted.scale >= stream.precision - stream.scale)


def _converter(stream: pa.DataType, key: KeyColumn) -> Callable[[pa.Array, KeyColumn], Converted]:
    wanted = key.type
    if _is_text(wanted):
        return convert_uuid if key.limits.uuid else convert_text
    if types.is_decimal(stream) and stream != wanted:
        return _convert_decimal
    if types.is_integer(stream) and (stream != wanted or key.limits != _NONE):
        return _convert_integer
    if types.is_floating(wanted) and key.limits.finite:
        return _convert_finite
    if types.is_date(wanted) or types.is_timestamp(wanted):
        return _convert_time
    return _cast


def _cast(array: pa.Array, key: KeyColumn) -> Converted:
    return (array if array.type == key.type else array.cast(key.type)), None


def _convert_finite(array: pa.Array, key: KeyColumn) -> Converted:
    """To a floating-point type of a database that has neither NaN nor infinities."""
    array, _ = _cast(array, key)
    finite = pc.is_finite(array)
    return (array, None) if pc.all(finite).as_py() in {True, None} else drop(array, pc.invert(finite))


def _convert_integer(array: pa.Array, key: KeyColumn) -> Converted:
    """To another integer type or to a decimal."""
    wanted = key.type
    if types.is_integer(wanted):
        low, high = _bounds(key)
    else:
        high = 10 ** (wanted.precision - wanted.scale) - 1
        low = -high
    array, impossible = _within(array, low, high, _integer_range(array.type))
    if types.is_decimal(wanted):
        # Arrow wants room for 20 more digits than the scale, whatever the values are.
        roomy = pa.decimal128(38, wanted.scale) if wanted.scale <= _ROOM else pa.decimal256(76, wanted.scale)
        return array.cast(roomy).cast(wanted), impossible
    return array.cast(wanted, safe=False), impossible


def _convert_decimal(array: pa.Array, key: KeyColumn) -> Converted:
    """To another decimal type or, without fraction, to an integer."""
    wanted = key.type
    if types.is_decimal(wanted) and _widens(array.type, wanted):
        return array.cast(wanted), None
    if types.is_integer(wanted):
        low, high, scale = *map(Decimal, _bounds(key)), 0
    else:
        scale = wanted.scale
        # From digits: arithmetic would round to the 28 of Python's decimal context.
        low, high = (Decimal((sign, (9,) * wanted.precision, -scale)) for sign in (1, 0))
    # In 76 digits both scales have room, so that nothing is lost before it is compared.
    exact = array.cast(pa.decimal256(76, max(scale, array.type.scale)))
    rounded = exact.cast(pa.decimal256(76, scale), safe=False)
    bounds = [pa.scalar(bound).cast(rounded.type) for bound in (low, high)]
    fits = pc.and_(pc.greater_equal(rounded, bounds[0]), pc.less_equal(rounded, bounds[1]))
    fits = pc.and_(fits, pc.equal(rounded.cast(exact.type), exact))
    rounded, impossible = drop(rounded, pc.invert(fits))
    if types.is_integer(wanted):
        # Arrow knows no way from 256 bits to uint64.
        rounded = rounded.cast(pa.decimal128(38, 0))
    return rounded.cast(wanted), impossible


def _convert_time(array: pa.Array, key: KeyColumn) -> Converted:
    """Dates and timestamps; zones have the same instants, so only the type's name changes."""
    array, _ = _cast(array, key)
    limits = key.limits
    if limits.lowest is None and limits.highest is None:
        return array, None
    integer = pa.int32() if types.is_date32(array.type) else pa.int64()
    plain, impossible = _within(array.view(integer), *_bounds(key, integer), _integer_range(integer))
    return plain.view(key.type), impossible


def _bounds(key: KeyColumn, integer: pa.DataType | None = None) -> tuple[int, int]:
    """The least and the greatest value that the key column holds, as integers of this type or its own."""
    (low, high), limits = _integer_range(integer or key.type), key.limits
    return (low if limits.lowest is None else limits.lowest), (high if limits.highest is None else limits.highest)


def _integer_range(arrow: pa.DataType) -> tuple[int, int]:
    limits = np.iinfo(arrow.to_pandas_dtype())
    return int(limits.min), int(limits.max)


def _within(array: pa.Array, low: int, high: int, possible: tuple[int, int]) -> Converted:
    """Drop integers outside [low, high]; `possible` is the range of their type."""
    low, high = max(low, possible[0]), min(high, possible[1])
    if (low, high) == possible:
        return array, None
    seen = pc.min_max(array).as_py()
    if seen["min"] is None or (seen["min"] >= low and seen["max"] <= high):
        return array, None
    bounds = [pa.scalar(bound, array.type) for bound in (low, high)]
    return drop(array, pc.or_(pc.less(array, bounds[0]), pc.greater(array, bounds[1])))
