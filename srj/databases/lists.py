"""Lists on their way from PostgreSQL through the cache: one byte string each, which becomes a list where rows leave srj.

So the cache, and all that carries rows, knows only values that are of one width or are bytes. In a packed list stand, as
big-endian 32-bit integers, how many elements it has and the bytes of each, -1 for NULL; then they themselves, as PostgreSQL sends
them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from srj.databases.postgresql_wire import in_place_of, is_varying, read_column, sender
from srj.errors import LookupFailedError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from srj.databases.base import Column

_NESTED = -1  # in place of the number of elements: the array has several dimensions


def list_of(element: pa.DataType) -> pa.DataType:
    """The type of lists as Spark names its parts.

    >>> list_of(pa.int32())
    ListType(list<element: int32>)
    """
    return pa.list_(pa.field("element", element))


def packed(array: str, element: str) -> str:
    """The SQL that packs an array, whose elements are sent as the SQL type `element`."""
    sent = f"(SELECT pg_catalog.{sender(element)}(e) AS b FROM pg_catalog.unnest({array}::{element}[]) AS srj_elements(e) OFFSET 0)"
    lengths = "pg_catalog.string_agg(pg_catalog.int4send(coalesce(pg_catalog.octet_length(b), -1)), '')"
    whole = (
        f"pg_catalog.int4send(pg_catalog.count(*)::int4) || coalesce({lengths} || coalesce(pg_catalog.string_agg(b, ''), ''), '')"
    )
    return (
        f"CASE WHEN pg_catalog.array_ndims({array}) > 1 THEN pg_catalog.int4send({_NESTED}) "
        f"WHEN {array} IS NOT NULL THEN (SELECT {whole} FROM {sent} AS srj_sent) END"
    )


def shown(rows: pa.RecordBatch, columns: Sequence[Column]) -> pa.RecordBatch:
    """Table rows as they leave srj: those of a `Description`'s columns, lists no longer packed."""
    if all(column.stored == column.type for column in columns):
        return rows
    arrays = [
        array if column.stored == column.type else unpacked(array, column.type, column.name, column.sql)
        for array, column in zip(rows.columns, columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, names=rows.schema.names)


def unpacked(values: pa.Array, arrow: pa.DataType, name: str, sql: str = "") -> pa.Array:
    """Packed lists as lists of the type `arrow`.

    Args:
        values: packed lists, as binary.
        arrow: of the lists, as `list_of` makes it.
        name, sql: the column's name and what it is in the SELECT list, for messages.

    Raises:
        LookupFailedError: an array of several dimensions, or an element that Spark's type can't hold.

    Example:
        >>> number = lambda value: value.to_bytes(4, "big", signed=True)
        >>> two = number(2) + number(1) + number(-1) + b"a"
        >>> unpacked(pa.array([two, None, number(0)]), list_of(pa.string()), "tags").to_pylist()
        [['a', None], None, []]
    """
    if not len(values):
        return pa.array([], arrow)
    valid: npt.NDArray[np.bool_] = values.is_valid().to_numpy(zero_copy_only=False)
    bounds = np.frombuffer(values.buffers()[1], np.int32)[values.offset : values.offset + len(values) + 1].astype(np.int64)
    data = np.frombuffer(values.buffers()[2] or b"", np.uint8)[bounds[0] : bounds[-1]]
    bounds -= bounds[0]
    heads = bounds[:-1][valid]
    counts = _integers(data, heads)
    if (counts == _NESTED).any():
        raise LookupFailedError(
            f"expected arrays of one dimension in column {name}, got one of several; write "
            f"{in_place_of(name, sql, 'array_to_json({0})::text')} in its place"
        )
    offsets = np.zeros(len(values) + 1, np.int64)
    offsets[1:][valid] = counts
    np.cumsum(offsets, out=offsets)
    before = offsets[:-1][valid]
    lengths = _integers(data, np.repeat(heads + 4 - 4 * before, counts) + 4 * np.arange(offsets[-1]))
    element = arrow.value_type
    marks = lengths.astype(">i4") if is_varying(element) else lengths >= 0
    starts = bounds[1:].copy()
    starts[valid] = heads + 4 + 4 * counts
    elements = read_column(_behind(data, bounds, starts), marks.tobytes(), element, name, sql, of_lists=True)
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), elements, type=arrow, mask=pa.array(~valid))


def _integers(data: npt.NDArray[np.uint8], places: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The integers at these places, which need not be multiples of four."""
    if not places.size:
        return np.zeros(0, np.int64)
    everywhere: npt.NDArray[np.int32] = np.ndarray((data.size - 3,), ">i4", data, strides=(1,))
    return everywhere[places].astype(np.int64)


def _behind(data: npt.NDArray[np.uint8], bounds: npt.NDArray[np.int64], starts: npt.NDArray[np.int64]) -> bytes:
    """What stands in each value from its start on, side by side."""
    edges = np.empty(2 * starts.size + 1, np.int32)
    edges[0::2], edges[1::2] = bounds, starts
    parts = pa.Array.from_buffers(pa.binary(), 2 * starts.size, [None, pa.py_buffer(edges), pa.py_buffer(data)])
    behind: bytes = (parts.take(pa.array(np.arange(1, edges.size, 2))).buffers()[2] or pa.py_buffer(b"")).to_pybytes()
    return behind
