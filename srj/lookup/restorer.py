"""The order of the input again, downstream of an operator that let rows leave out of it and punctuated them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    import numpy.typing as npt


class Restorer:
    """Holds rows back until all that arrived before them have come; those of one partition and micro-batch.

    Attributes:
        held: rows that it holds now. Behind an operator with `Disorder(max=n)`, never more than n.
    """

    def __init__(self) -> None:
        self._rows: pa.RecordBatch | None = None
        self._numbers: npt.NDArray[np.int64] = np.zeros(0, np.int64)

    @property
    def held(self) -> int:
        """How many rows are held."""
        return len(self._numbers)

    def add(self, rows: pa.RecordBatch, numbers: npt.NDArray[np.int64], below: int) -> pa.RecordBatch:
        """Take rows in; those that may leave now come back, in the order of their arrival.

        Args:
            rows: as they come.
            numbers: their arrival numbers; the matches of one row have one number, and keep their order.
            below: no row with a smaller number will come after these.

        Example:
            >>> restorer = Restorer()
            >>> restorer.add(pa.record_batch({"x": ["c", "a"]}), np.array([2, 0]), 1)["x"].to_pylist()
            ['a']
            >>> restorer.add(pa.record_batch({"x": ["b"]}), np.array([1]), 3)["x"].to_pylist(), restorer.held
            (['b', 'c'], 0)
        """
        if self._rows is not None and self.held:
            rows, numbers = pa.concat_batches([self._rows, rows]), np.concatenate([self._numbers, numbers])
        order = np.argsort(numbers, kind="stable")
        numbers = numbers[order]
        leaving = int(np.searchsorted(numbers, below))
        # Copies of its own, so that what is held does not keep whole batches.
        self._rows, self._numbers = rows.take(pa.array(order[leaving:])), numbers[leaving:]
        return rows.take(pa.array(order[:leaving]))

    def rest(self) -> pa.RecordBatch:
        """What is still held, when nothing more comes."""
        if self._rows is None:
            raise AssertionError("what was never given any rows has no rest")
        rows, self._numbers = self._rows, self._numbers[:0]
        return rows
