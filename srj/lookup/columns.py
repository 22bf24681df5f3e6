"""The table's columns in the cache: store rows, and gather them into Arrow arrays that own their memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from srj.lookup.encoding import Views, fixed_values, is_varying, owned_values, views_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from srj.lookup.heap import Heap
    from srj.lookup.layout import Block

    U64 = npt.NDArray[np.uint64]
    I64 = npt.NDArray[np.int64]


class FixedColumn:
    """A column whose values are of one width; booleans are a byte each."""

    def __init__(self, type_: pa.DataType, values: npt.NDArray[Any]) -> None:
        self._type = type_
        self._values = values
        self._is_boolean = pa.types.is_boolean(type_)

    def store(self, rows: I64, array: pa.Array) -> None:
        """Put an array's values at these rows."""
        self._values[rows] = fixed_values(array)

    def gather(self, rows: I64, validity: pa.Buffer | None) -> pa.Array:
        """The values at these rows."""
        buffer = pa.allocate_buffer(rows.size * self._values.dtype.itemsize)
        out = np.frombuffer(buffer, self._values.dtype)
        np.take(self._values, rows, out=out, mode="clip")
        if self._is_boolean:
            buffer = pa.py_buffer(np.packbits(out, bitorder="little"))
        return pa.Array.from_buffers(self._type, rows.size, [validity, buffer])


class VaryingColumn:
    """A column of text or bytes: 16-byte views, long values in the heap; `first` is the number of its first view."""

    def __init__(self, type_: pa.DataType, values: npt.NDArray[Any], heap: Heap, first: int) -> None:
        self._type = type_
        self._values = values
        self.views: U64 = values.view(np.uint64).reshape(-1, 2)
        self._heap = heap
        self._first = first

    def store(self, rows: I64, array: pa.Array | Views) -> None:
        """Put an array's values at these rows; room in the heap must have been made."""
        views = array if isinstance(array, Views) else views_of(array)
        words = views.words
        if views.long.size:
            words = words.copy()
            words[views.long, 1] = self._heap.store(views.memory, views.offsets, rows[views.long] + self._first)
        self.views[rows] = words

    def gather(self, rows: I64, validity: pa.Buffer | None) -> pa.Array:
        """The values at these rows."""
        buffer = pa.allocate_buffer(rows.size * 16)
        np.take(self._values, rows, out=np.frombuffer(buffer, self._values.dtype), mode="clip")
        return owned_values(self._type, buffer, rows.size, validity, self._heap.buffers)

    def release(self, rows: I64) -> None:
        """Forget the values at these rows: the heap's scan must not meet them again."""
        self._heap.release(self.views[rows])
        self.views[rows] = 0


class Columns:
    """All columns of a block; `first` is the number of their first view in the heap."""

    def __init__(self, block: Block, schema: pa.Schema, heap: Heap, first: int) -> None:
        self.schema = schema
        self._heap = heap
        self._saw_null: npt.NDArray[np.uint8] = block["saw_null"]
        self._nulls: list[npt.NDArray[np.uint8]] = [block[f"null.{position}"] for position in range(len(schema))]
        arrays = [block[f"column.{position}"] for position in range(len(schema))]
        self._columns: list[FixedColumn | VaryingColumn] = []
        for type_, values in zip(schema.types, arrays, strict=True):
            if is_varying(type_):
                self._columns.append(VaryingColumn(type_, values, heap, first))
                first += values.size
            else:
                self._columns.append(FixedColumn(type_, values))
        self.varying = [column for column in self._columns if isinstance(column, VaryingColumn)]

    def store(self, rows: I64, arrays: Sequence[pa.Array | Views], nulls: Sequence[pa.Array | None]) -> None:
        """Put values at rows.

        Args:
            rows: where, without doubles.
            arrays: a column each, as an Arrow array or, where they differ in length, already as views.
            nulls: for each column its array if it has NULLs, else None.
        """
        for position, (column, array, null) in enumerate(zip(self._columns, arrays, nulls, strict=True)):
            column.store(rows, array)
            if null is not None:
                if not self._saw_null[position]:
                    # Rows stored until now wrote no flags; older ones may be left from before a `clear`.
                    self._nulls[position][:] = 0
                    self._saw_null[position] = 1
                self._nulls[position][rows] = null.is_null().to_numpy(zero_copy_only=False)
            elif self._saw_null[position]:
                self._nulls[position][rows] = 0

    def gather(self, rows: I64) -> pa.RecordBatch:
        """The rows, in memory of their own."""
        if not self._columns:
            return pa.RecordBatch.from_arrays([pa.nulls(rows.size)], ["none"]).select([])
        arrays = [column.gather(rows, self._validity(position, rows)) for position, column in enumerate(self._columns)]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _validity(self, position: int, rows: I64) -> pa.Buffer | None:
        if not self._saw_null[position]:
            return None
        nulls = self._nulls[position].take(rows, mode="clip")
        return pa.py_buffer(np.packbits(nulls == 0, bitorder="little")) if nulls.any() else None

    def release(self, rows: I64) -> None:
        """Forget rows."""
        for column in self.varying:
            column.release(rows)

    def clear(self) -> None:
        """Forget everything."""
        self._saw_null[:] = 0
        for column in self.varying:
            column.views[:] = 0
