"""How rows come from PostgreSQL: a few byte strings a column for a whole batch, rather than a value each.

The server strings the values of each column together in its own binary form, and NumPy reads them as they are. A driver's
object for every value would take longer than all that srj does with it: 0.4 µs a row of three columns instead of 1.0, and no
more of the server's time, which otherwise sends as many messages as there are rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyarrow import types

from srj.errors import LookupFailedError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy.typing as npt

# PostgreSQL counts from 2000-01-01, Arrow from 1970-01-01.
EPOCH_DAYS = 10957
EPOCH_MICROS = EPOCH_DAYS * 86_400_000_000
# Spark's dates and timestamps: the years 1 to 9999.
_SPARK_DAYS = (-719_162, 2_932_896)
_SPARK_MICROS = (_SPARK_DAYS[0] * 86_400_000_000, (_SPARK_DAYS[1] + 1) * 86_400_000_000 - 1)

# The functions that give a value's binary form. text, bpchar and bytea are of any length, as the server says for each value.
_SENDERS = {
    "bool": "boolsend",
    "int2": "int2send",
    "int4": "int4send",
    "int8": "int8send",
    "float4": "float4send",
    "float8": "float8send",
    "date": "date_send",
    "timestamp": "timestamp_send",
    "timestamptz": "timestamptz_send",
    "text": "textsend",
    "bpchar": "bpcharsend",
    "bytea": "byteasend",
}
# What makes NULL of dates that Spark has not, whatever the session's zone.
OTHER_DATES = "CASE WHEN {0} >= '0001-01-01 00:00Z' AND {0} < '10000-01-01 00:00Z' THEN {0} END"
_VARYING = {"text", "bpchar", "bytea"}
_BIG_ENDIAN = {16: ">i2", 32: ">i4", 64: ">i8"}


@dataclass(frozen=True)
class Sent:
    """A column of a subquery that is to be sent.

    Attributes:
        name: its name there.
        wire: the SQL type in which its values are sent, one of those above; they are cast to it.
        packed: of a column of arrays: the SQL that makes bytes of one, which are sent instead.
    """

    name: str
    wire: str
    packed: str = ""

    @property
    def value(self) -> str:
        """What is computed for a row: of any length in its binary form, else as it is."""
        if self.packed:
            return self.packed
        value = f"{self.name}::{self.wire}"
        return f"pg_catalog.{_SENDERS[self.wire]}({value})" if self.wire in _VARYING else value

    @property
    def aggregates(self) -> tuple[str, str]:
        """Of the values: those that are not NULL, and for each row its length, or whether it is not NULL."""
        if self.packed or self.wire in _VARYING:
            return _strung(self.name), _strung(f"pg_catalog.int4send(coalesce(pg_catalog.octet_length({self.name}), -1))")
        return _strung(f"pg_catalog.{_SENDERS[self.wire]}({self.name})"), _strung(f"pg_catalog.boolsend({self.name} IS NOT NULL)")


def send(columns: Sequence[Sent], rows: str, *, ordinal: str | None = None) -> str:
    """The statement that sends columns of the subquery `rows`: one bytea[], two elements each; first its `ordinal`, a bigint.

    One array, for a table may have more columns than half of those that a statement may return.

    >>> send([], "SELECT 1::bigint AS ord", ordinal="ord")
    "SELECT ARRAY[pg_catalog.string_agg(pg_catalog.int8send(ord), '')] AS srj_sent FROM (SELECT ord FROM \
(SELECT 1::bigint AS ord) AS srj_rows OFFSET 0) AS srj_values"
    """
    sent = [] if ordinal is None else [_strung(f"pg_catalog.int8send({ordinal})")]
    sent += [aggregate for column in columns for aggregate in column.aggregates]
    values = ([] if ordinal is None else [ordinal]) + [f"{column.value} AS {column.name}" for column in columns]
    # With OFFSET the planner leaves the values where they are: each is computed once, though two aggregates use it.
    source = f"SELECT {', '.join(values)} FROM ({rows}) AS srj_rows OFFSET 0"
    return f"SELECT ARRAY[{', '.join(sent)}] AS srj_sent FROM ({source}) AS srj_values"


def read_columns(sent: Sequence[bytes | None], columns: Sequence[tuple[str, pa.DataType, str]]) -> list[pa.Array]:
    """The columns of these names, Arrow types and SQL that `send` sent, its ordinal left out.

    Raises:
        LookupFailedError: as `read_column`.
    """
    return [
        read_column(values, marks, arrow, name, sql)
        for values, marks, (name, arrow, sql) in zip(sent[::2], sent[1::2], columns, strict=True)
    ]


def _strung(expression: str) -> str:
    return f"pg_catalog.string_agg({expression}, '')"


def numbers(data: bytes | None) -> npt.NDArray[np.int64]:
    """What `send` makes of an ordinal.

    >>> numbers(bytes([0, 0, 0, 0, 0, 0, 0, 7])).tolist(), numbers(None).tolist()
    ([7], [])
    """
    return np.frombuffer(data or b"", ">i8").astype(np.int64)


def read_column(
    values: bytes | None, marks: bytes | None, arrow: pa.DataType, name: str, sql: str = "", *, of_lists: bool = False
) -> pa.Array:
    """The column that `Sent.aggregates` describe.

    Args:
        values, marks: both results; None where there were no rows.
        arrow: the Arrow type in which the column is wanted.
        name, sql: its name and what it is in the SELECT list, for messages.
        of_lists: whether these are the elements of its lists.

    Raises:
        LookupFailedError: a value that Spark's type can't hold: an infinite date, a numeric NaN; or bytes that are no text.

    Example:
        >>> read_column(b"annabo", bytes([0, 0, 0, 4, 255, 255, 255, 255, 0, 0, 0, 2]), pa.string(), "name").to_pylist()
        ['anna', None, 'bo']
        >>> read_column(bytes([0, 9]), bytes([0, 1]), pa.int16(), "age").to_pylist()
        [None, 9]
    """
    values, marks = values or b"", marks or b""

    def instead(expression: str) -> str:
        return in_place_of(name, sql, "{0}::text[]" if of_lists else expression)

    if types.is_decimal(arrow):
        return _decimals(_varying(values, marks, pa.string(), name), arrow, name, instead)
    if is_varying(arrow):
        return _varying(values, marks, arrow, name)
    return _fixed(values, marks, arrow, name, instead)


def sender(wire: str) -> str:
    """The function that gives a value's binary form.

    >>> sender("int4")
    'int4send'
    """
    return _SENDERS[wire]


def is_varying(arrow: pa.DataType) -> bool:
    """Whether values that become this type are sent with their lengths; those of decimals are text."""
    return bool(types.is_string(arrow) or types.is_binary(arrow) or types.is_decimal(arrow))


def _varying(values: bytes, marks: bytes, arrow: pa.DataType, name: str) -> pa.Array:
    lengths = np.frombuffer(marks, ">i4")
    offsets = np.zeros(lengths.size + 1, np.int32)
    np.cumsum(np.maximum(lengths, 0), out=offsets[1:])
    validity = _validity(lengths >= 0)
    array = pa.Array.from_buffers(arrow, lengths.size, [validity, pa.py_buffer(offsets), pa.py_buffer(values)])
    if types.is_string(arrow):
        try:
            array.validate(full=True)
        except pa.ArrowInvalid:
            raise LookupFailedError(
                f"expected text in column {name}, got bytes that are none, from a database without an encoding; cast it to bytea"
            ) from None
    return array


def _fixed(values: bytes, marks: bytes, arrow: pa.DataType, name: str, instead: Callable[[str], str]) -> pa.Array:
    valid = np.frombuffer(marks, np.bool_)
    present = np.frombuffer(values, _sent_as(arrow))
    if types.is_temporal(arrow):
        epoch, bounds = (EPOCH_DAYS, _SPARK_DAYS) if types.is_date32(arrow) else (EPOCH_MICROS, _SPARK_MICROS)
        if present.size and (present.min() < bounds[0] - epoch or present.max() > bounds[1] - epoch):
            raise LookupFailedError(
                f"expected dates of the years 1 to 9999 in column {name}, which are Spark's, got infinity or a date beyond; write "
                f"{instead(OTHER_DATES)} in its place, or filter them with where"
            )
        present = present + present.dtype.type(epoch)
    native = present.dtype.newbyteorder("=")
    if present.size == valid.size:
        column, validity = present.astype(native), None
    else:
        column, validity = np.zeros(valid.size, native), _validity(valid)
        column[valid] = present
    if types.is_boolean(arrow):
        column = np.packbits(column, bitorder="little")
    return pa.Array.from_buffers(arrow, valid.size, [validity, pa.py_buffer(column)])


def _sent_as(arrow: pa.DataType) -> str:
    if types.is_boolean(arrow):
        return "?"
    return f">f{arrow.bit_width // 8}" if types.is_floating(arrow) else _BIG_ENDIAN[arrow.bit_width]


def _validity(valid: npt.NDArray[np.bool_]) -> pa.Buffer | None:
    return None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))


def _decimals(texts: pa.Array, arrow: pa.DataType, name: str, instead: Callable[[str], str]) -> pa.Array:
    try:
        return texts.cast(arrow)
    except pa.ArrowInvalid:
        kind = f"({arrow.precision},{arrow.scale})"
        finite = instead(f"CAST(NULLIF({{0}}, 'NaN') AS numeric{kind})")
        raise LookupFailedError(
            f"expected numbers of type decimal{kind} in column {name}, got NaN, an infinity or more digits; write {finite} in its "
            "place, or filter them with where; start the query again if the column's type has changed"
        ) from None


def in_place_of(name: str, sql: str, expression: str) -> str:
    """What to write for a column with values that Spark has not.

    Args:
        name: the column's name.
        sql: what it is now: a quoted name, an expression, or nothing if it has but its name.
        expression: what works, with ``{0}`` for that.

    >>> in_place_of("day", '"day"', "{0}::text"), in_place_of("next Day", "day + 1", "{0}::text")
    ('"day"::text AS day', '(day + 1)::text AS "next Day"')
    """
    quoted = '"' + name.replace('"', '""') + '"'
    sql = sql or quoted
    if sql != quoted:
        sql = f"({sql}\n)" if "--" in sql else f"({sql})"
    return f"{expression.format(sql)} AS {name if name.isidentifier() and name == name.lower() else quoted}"


def joined_rows(parts: Sequence[pa.RecordBatch], table: str) -> pa.RecordBatch:
    """The rows of an answer that came in parts, as one.

    Raises:
        LookupFailedError: text or bytes of more than 2 GiB in a column, which one array can't hold.
    """
    try:
        return pa.concat_batches(parts)
    except pa.ArrowInvalid:
        raise LookupFailedError(
            f"expected at most 2 GiB of text or bytes in each column of table {table} for one batch of keys, got more; "
            "use a smaller batch, such as batch=100, or shorten the column by an expression"
        ) from None
