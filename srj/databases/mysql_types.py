"""MySQL's and MariaDB's types as Arrow types: of results, of keys, and the values between them.

Choices that a user may meet:

- ``BOOL`` is ``TINYINT(1)``, which holds -128 to 127: it stays an int8. ``x <> 0 AS x`` makes 0 and 1 of it.
- ``BIGINT UNSIGNED`` becomes decimal(20,0), since Spark has no unsigned type; the narrower ones take the next wider signed type.
- ``DATETIME`` has no zone and becomes a timestamp without one; ``TIMESTAMP`` is an instant.
- A zero date (``0000-00-00``, ``2024-05-00``) is no date in any calendar: it arrives as NULL. ``CAST(x AS CHAR) AS x`` keeps it.
- ``FLOAT`` is read with all its bits, not the six digits that the server prints.
- ``JSON`` arrives as its text. ``ENUM`` and ``SET`` arrive as text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pymysql.constants import FIELD_TYPE, FLAG

from srj.databases.base import KeyLimits
from srj.databases.values import one_array

if TYPE_CHECKING:
    from collections.abc import Sequence

_BINARY = 63  # the character set of bytes, and of all that is not text
_MAX_DIGITS = 38
_US = 1_000_000
_DAYS = KeyLimits(lowest=-719_162, highest=2_932_896)  # 0001-01-01 to 9999-12-31
_DATETIMES = KeyLimits(lowest=-719_162 * 86_400 * _US, highest=(2_932_897 * 86_400) * _US - 1)
# An instant outside would be compared as a zero date.
_TIMESTAMPS = KeyLimits(lowest=1, highest=2**32 * _US - 1)

_INTEGERS = {
    FIELD_TYPE.TINY: (pa.int8(), pa.int16()),
    FIELD_TYPE.SHORT: (pa.int16(), pa.int32()),
    FIELD_TYPE.INT24: (pa.int32(), pa.int32()),
    FIELD_TYPE.LONG: (pa.int32(), pa.int64()),
    FIELD_TYPE.LONGLONG: (pa.int64(), pa.decimal128(20, 0)),
}
_OTHERS = {
    FIELD_TYPE.YEAR: pa.int16(),
    FIELD_TYPE.FLOAT: pa.float32(),
    FIELD_TYPE.DOUBLE: pa.float64(),
    FIELD_TYPE.DATE: pa.date32(),
    FIELD_TYPE.NEWDATE: pa.date32(),
    FIELD_TYPE.DATETIME: pa.timestamp("us"),
    FIELD_TYPE.TIMESTAMP: pa.timestamp("us", "UTC"),
    FIELD_TYPE.JSON: pa.string(),
}
_TEXTS = {
    FIELD_TYPE.VARCHAR,
    FIELD_TYPE.VAR_STRING,
    FIELD_TYPE.STRING,
    FIELD_TYPE.ENUM,
    FIELD_TYPE.SET,
    FIELD_TYPE.TINY_BLOB,
    FIELD_TYPE.BLOB,
    FIELD_TYPE.MEDIUM_BLOB,
    FIELD_TYPE.LONG_BLOB,
}
_NAMES = {
    FIELD_TYPE.TINY: "tinyint",
    FIELD_TYPE.SHORT: "smallint",
    FIELD_TYPE.INT24: "mediumint",
    FIELD_TYPE.LONG: "int",
    FIELD_TYPE.LONGLONG: "bigint",
    FIELD_TYPE.YEAR: "year",
    FIELD_TYPE.FLOAT: "float",
    FIELD_TYPE.DOUBLE: "double",
    FIELD_TYPE.DATE: "date",
    FIELD_TYPE.DATETIME: "datetime",
    FIELD_TYPE.TIMESTAMP: "timestamp",
    FIELD_TYPE.TIME: "time",
    FIELD_TYPE.BIT: "bit",
    FIELD_TYPE.JSON: "json",
    FIELD_TYPE.GEOMETRY: "geometry",
    FIELD_TYPE.NULL: "null",
}


def result_type(field: Any) -> pa.DataType | None:
    """The Arrow type of a result column, from the metadata that the server sends with it; None where there is none."""
    code, unsigned = field.type_code, bool(field.flags & FLAG.UNSIGNED)
    if code in _INTEGERS:
        return _INTEGERS[code][unsigned]
    if code in {FIELD_TYPE.DECIMAL, FIELD_TYPE.NEWDECIMAL}:
        digits = _digits(field)
        return pa.decimal128(digits, field.scale) if digits <= _MAX_DIGITS else None
    if code in _TEXTS:
        return pa.binary() if field.charsetnr == _BINARY else pa.string()
    return _OTHERS.get(code)


def result_name(field: Any) -> str:
    """A result column's type for people."""
    if field.type_code in {FIELD_TYPE.DECIMAL, FIELD_TYPE.NEWDECIMAL}:
        return f"decimal({_digits(field)},{field.scale})"
    if field.type_code in _TEXTS:
        return f"binary({field.length})" if field.charsetnr == _BINARY else f"text({field.length // 4})"
    name = _NAMES.get(field.type_code, f"type {field.type_code}")
    return f"{name} unsigned" if field.type_code in _INTEGERS and field.flags & FLAG.UNSIGNED else name


def result_width(field: Any, arrow: pa.DataType, mean_row: int) -> int:
    """Estimated mean bytes of a value: 0 for fixed-width types, the mean row for long texts, else at most 32."""
    if not (pa.types.is_string(arrow) or pa.types.is_binary(arrow)):
        return 0
    characters = field.length if field.charsetnr == _BINARY else field.length // 4
    long = characters > 2**15
    return int(max(32, mean_row) if long else max(1, min(32, characters)))


def exact(sql: str, arrow: pa.DataType) -> str:
    """An expression whose text form, which the server sends, is exact: FLOAT alone is printed with six digits."""
    return f"({sql} + 0e0)" if arrow == pa.float32() else sql


def readable(sql: str, field: Any) -> str:
    """The expression to write for a column of a type that srj can't read."""
    if field.type_code == FIELD_TYPE.GEOMETRY:
        return f"ST_AsText({sql})"
    return f"CAST({sql} AS UNSIGNED)" if field.type_code == FIELD_TYPE.BIT else f"CAST({sql} AS CHAR)"


def key_type(data_type: str, column_type: str, charset: str | None) -> tuple[pa.DataType, str, KeyLimits] | None:
    """How a key column's keys travel.

    Args:
        data_type: the column's type without arguments, as information_schema has it: ``decimal``.
        column_type: with them: ``decimal(10,2) unsigned``.
        charset: the character set of text, else None.

    Returns:
        Arrow type, SQL type of the derived column, and what can never match; None where srj can't compare.

    Example:
        >>> key_type("int", "int(11) unsigned", None)[:2]
        (DataType(int64), 'BIGINT')
    """
    unsigned = "unsigned" in column_type
    if data_type in _KEY_INTEGERS:
        arrow = _KEY_INTEGERS[data_type][unsigned]
        # A signed key would wrap or clamp in an unsigned column of the same width; in a wider one it just matches nothing.
        return arrow, "BIGINT UNSIGNED" if arrow == pa.uint64() else "BIGINT", KeyLimits()
    if data_type == "decimal":
        precision, scale = (int(part) for part in column_type.partition("(")[2].partition(")")[0].split(","))
        return (pa.decimal128(precision, scale), f"DECIMAL({precision},{scale})", KeyLimits()) if precision <= _MAX_DIGITS else None
    if data_type in {"char", "varchar", "tinytext", "text", "mediumtext", "longtext", "enum", "set"}:
        # LONGTEXT, so that a long key is never cut to the column's length and then found.
        return pa.string(), "LONGTEXT CHARACTER SET utf8mb4", KeyLimits(bmp_only=charset in {"utf8", "utf8mb3"})
    return _KEY_OTHERS.get(data_type)


_KEY_INTEGERS = {
    "tinyint": (pa.int8(), pa.int16()),
    "smallint": (pa.int16(), pa.int32()),
    "mediumint": (pa.int32(), pa.int32()),
    "int": (pa.int32(), pa.int64()),
    "bigint": (pa.int64(), pa.uint64()),
    "year": (pa.int16(), pa.int16()),
}
_HEX = "LONGTEXT CHARACTER SET latin1"
_KEY_OTHERS = {
    "float": (pa.float32(), "DOUBLE", KeyLimits()),
    "double": (pa.float64(), "DOUBLE", KeyLimits()),
    "date": (pa.date32(), "DATE", _DAYS),
    "datetime": (pa.timestamp("us"), "DATETIME(6)", _DATETIMES),
    "timestamp": (pa.timestamp("us", "UTC"), "DATETIME(6)", _TIMESTAMPS),
    "binary": (pa.binary(), _HEX, KeyLimits()),
    "varbinary": (pa.binary(), _HEX, KeyLimits()),
    "tinyblob": (pa.binary(), _HEX, KeyLimits()),
    "blob": (pa.binary(), _HEX, KeyLimits()),
    "mediumblob": (pa.binary(), _HEX, KeyLimits()),
    "longblob": (pa.binary(), _HEX, KeyLimits()),
    "uuid": (pa.string(), "LONGTEXT CHARACTER SET utf8mb4", KeyLimits(uuid=True)),
    "inet4": (pa.string(), "LONGTEXT CHARACTER SET utf8mb4", KeyLimits()),
    "inet6": (pa.string(), "LONGTEXT CHARACTER SET utf8mb4", KeyLimits()),
}


def keeps(described: pa.DataType, field: Any) -> bool:
    """Whether a result column can still be read as the type described: as it is, or by a reading that fails rather than rounds."""
    now = result_type(field)
    if described == pa.float32():
        described = pa.float64()  # see `exact`
    return bool(described == now or (_is_exact_number(described) and now is not None and _is_exact_number(now)))


def keeps_key(described: pa.DataType, field: Any) -> bool:
    """Whether a key column, here as a result, is still of the type that keys are converted to."""
    return bool(result_type(field) == (_INTEGERS[FIELD_TYPE.LONGLONG][True] if described == pa.uint64() else described))


def _is_exact_number(arrow: pa.DataType) -> bool:
    return bool(pa.types.is_integer(arrow) or pa.types.is_decimal(arrow))


def decode(values: Sequence[bytes | None], arrow: pa.DataType, name: str) -> pa.Array:
    """A column of a result, from the bytes that the server sent.

    >>> decode([b"2024-02-29", b"0000-00-00", None], pa.date32(), "day").to_pylist()
    [datetime.date(2024, 2, 29), None, None]
    """
    raw = one_array(values, pa.binary(), name)
    if pa.types.is_binary(arrow):
        return raw
    text = raw.cast(pa.string())
    if pa.types.is_temporal(arrow):
        zero = pc.match_substring_regex(text, r"^\d{4}-(00|\d\d-00)")
        text = pc.if_else(zero, pa.scalar(None, pa.string()), text) if pc.any(zero).as_py() else text
        if pa.types.is_timestamp(arrow):
            text = text.cast(pa.timestamp("us"))
    if pa.types.is_float32(arrow):
        return _narrowed(text.cast(pa.float64()))
    return text.cast(arrow)


def _narrowed(wide: pa.Array) -> pa.Array:
    """Doubles as floats, which they are unless the column's type has changed."""
    narrow = wide.cast(pa.float32())
    if pc.any(pc.not_equal(narrow.cast(pa.float64()), wide)).as_py():
        raise pa.ArrowInvalid("a DOUBLE where a FLOAT was")
    return narrow


def encode(keys: pa.Array) -> list[Any]:
    """A column of keys, as values that JSON can carry without loss; None for what can't be asked.

    >>> encode(pa.array([b"srj"]))
    ['73726a']
    """
    arrow = keys.type
    if pa.types.is_binary(arrow):
        return [None if value is None else value.hex() for value in keys.to_pylist()]
    if pa.types.is_floating(arrow):
        # JSON knows neither NaN nor infinity, and neither does a MySQL column.
        keys = pc.if_else(pc.is_finite(keys), keys, pa.scalar(None, arrow))
    elif pa.types.is_timestamp(arrow):
        keys = keys.cast(pa.timestamp("us")).cast(pa.string())
    elif pa.types.is_date(arrow) or pa.types.is_decimal(arrow):
        keys = keys.cast(pa.string())
    values: list[Any] = keys.to_pylist()
    return values


def _digits(field: Any) -> int:
    """A decimal's precision; the length that the server sends counts its point and sign too."""
    return int(field.length - (field.scale > 0) - (not field.flags & FLAG.UNSIGNED))
