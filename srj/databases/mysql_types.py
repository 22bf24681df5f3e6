"""MySQL's and MariaDB's types as Arrow types: of results, of keys, and the values between them.

What becomes of each type is in `mysql_table`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pymysql.constants import FLAG

from srj.databases.mysql_table import BYTES, DECIMAL, GENERATED, LONG_DECIMAL, entry_of_column, entry_of_result
from srj.databases.values import one_array

if TYPE_CHECKING:
    from collections.abc import Sequence

    from srj.databases.base import KeyColumn
    from srj.databases.mysql_catalog import TableColumn
    from srj.databases.typing import KeyForm, TypeEntry

_BINARY = 63  # the character set of bytes, and of all that is not text
_MAX_DIGITS = 38
_DAYS_OF_MONTHS = np.array([0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31])
_UNSIGNED = pa.decimal128(20, 0)  # as which an unsigned bigint arrives, whose keys are uint64


def result_type(field: Any) -> pa.DataType | None:
    """The Arrow type of a result column, from the metadata that the server sends with it; None where there is none."""
    known = _entry(field)
    if known is None:
        return None
    return pa.decimal128(_digits(field), field.scale) if known.digits else known.arrow


def result_name(field: Any) -> str:
    """A result column's type for people."""
    known = _entry(field)
    if known is None:
        return f"type {field.type_code}"
    if known in {DECIMAL, LONG_DECIMAL}:
        return f"decimal({_digits(field)},{field.scale})"
    if known is BYTES:
        return f"binary({field.length})"
    return f"text({field.length // 4})" if known.arrow == pa.string() and known.key is not None else known.title


def _entry(field: Any) -> TypeEntry | None:
    unsigned = bool(field.flags & FLAG.UNSIGNED)
    known = entry_of_result(field.type_code, unsigned=unsigned, is_bytes=field.charsetnr == _BINARY)
    return LONG_DECIMAL if known is DECIMAL and _digits(field) > _MAX_DIGITS else known


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
    known = _entry(field)
    return ("CAST({} AS CHAR)" if known is None else known.instead).format(sql)


def key_form(column: TableColumn) -> KeyForm | None:
    """How keys of a table's column travel; None where srj can't compare."""
    known = _column_entry(column)
    form = known.key if known is not None else None
    if form is None:
        return None
    if known is DECIMAL:
        precision, scale = _declared_digits(column)
        return replace(form, arrow=pa.decimal128(precision, scale), cast=f"DECIMAL({precision},{scale})")
    if column.charset in {"utf8", "utf8mb3"}:
        return replace(form, limits=replace(form.limits, bmp_only=True))
    return form


def key_instead(column: TableColumn) -> str:
    """What to do where srj can't compare."""
    known = _column_entry(column)
    return GENERATED if known is None else known.key_instead


def _column_entry(column: TableColumn) -> TypeEntry | None:
    known = entry_of_column(column.data_type, unsigned="unsigned" in column.column_type)
    return LONG_DECIMAL if known is DECIMAL and _declared_digits(column)[0] > _MAX_DIGITS else known


def _declared_digits(column: TableColumn) -> tuple[int, int]:
    precision, scale = column.column_type.partition("(")[2].partition(")")[0].split(",")
    return int(precision), int(scale)


def keeps(described: pa.DataType, field: Any) -> bool:
    """Whether a result column can still be read as the type described: as it is, or by a reading that fails rather than rounds."""
    now = result_type(field)
    if described == pa.float32():
        described = pa.float64()  # see `exact`
    return bool(described == now or (_is_exact_number(described) and now is not None and _is_exact_number(now)))


def keeps_key(described: KeyColumn, field: Any) -> bool:
    """Whether a key column, here as a result, is still of the type that keys are converted to, and holds no more than before."""
    if result_type(field) != (_UNSIGNED if described.type == pa.uint64() else described.type):
        return False
    known = _entry(field)
    form = None if known is None else known.key
    return not pa.types.is_integer(described.type) or (form is not None and form.limits == described.limits)


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
        return _dates(text, arrow)
    if pa.types.is_float32(arrow):
        return _narrowed(text.cast(pa.float64()))
    return text.cast(arrow)


def _dates(text: pa.Array, arrow: pa.DataType) -> pa.Array:
    """Dates and times; those on a day that is in no calendar are NULL."""
    read_as = pa.timestamp("us") if pa.types.is_timestamp(arrow) else arrow
    # Spark's calendar has no year 0, though Arrow's has one.
    text = _without(text, pc.match_substring_regex(text, r"^(0000|\d{4}-(00|\d\d-00))"))
    try:
        return text.cast(read_as).cast(arrow)
    except pa.ArrowInvalid:
        return _without(text, _beyond_month(text)).cast(read_as).cast(arrow)


def _without(text: pa.Array, mask: pa.BooleanArray) -> pa.Array:
    return pc.if_else(mask, pa.scalar(None, pa.string()), text) if pc.any(mask).as_py() else text


def _beyond_month(text: pa.Array) -> pa.BooleanArray:
    """Which dates have more days than their month: with ALLOW_INVALID_DATES the server takes a 31st of February."""
    parts = [pc.utf8_slice_codeunits(text, start, stop).cast(pa.int32()) for start, stop in ((0, 4), (5, 7), (8, 10))]
    year, month, day = (part.fill_null(1).to_numpy(zero_copy_only=False) for part in parts)
    is_leap = (year % 4 == 0) & ((year % 100 != 0) | (year % 400 == 0))
    return pa.array(day > _DAYS_OF_MONTHS[np.clip(month, 0, 12)] + (is_leap & (month == 2)))


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
