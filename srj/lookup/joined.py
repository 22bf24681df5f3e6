"""A batch of stream rows together with the table rows that match them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt


@dataclass(frozen=True)
class Joined:
    """n stream rows and their matches.

    Attributes:
        counts: int32, n: table rows that match each stream row.
        source: table rows, in any order.
        starts: int64, n: where a stream row's matches begin in `source`; None when `source` holds just the matches, in order.
    """

    counts: npt.NDArray[np.int32]
    source: pa.RecordBatch
    starts: npt.NDArray[np.int64] | None = None

    def inner(self) -> tuple[npt.NDArray[np.int64], pa.RecordBatch]:
        """Every match: the position of its stream row, and the table rows; both in the order of the stream.

        >>> table = pa.record_batch({"name": ["a", "b", "c"]})
        >>> positions, rows = Joined(np.array([0, 2, 1], np.int32), table).inner()
        >>> positions.tolist(), rows["name"].to_pylist()
        ([1, 1, 2], ['a', 'b', 'c'])
        """
        positions = np.repeat(np.arange(len(self.counts)), self.counts)
        if self.starts is None:
            return positions, self.source
        return positions, take_rows(self.source, run_indices(self.starts, self.counts))

    def outer(self) -> tuple[npt.NDArray[np.int64] | None, pa.RecordBatch]:
        """Like `inner`, with one all-NULL table row for each stream row without a match.

        The positions are None when each stream row comes out exactly once.
        """
        most = int(self.counts.max(initial=0))
        missing = self.counts == 0
        some_missing = bool(missing.any())
        if self.starts is None and most <= 1 and not some_missing:
            return None, self.source
        starts = self._starts()
        if most <= 1:
            return None, take_rows(self.source, starts, missing if some_missing else None)
        counts = np.maximum(self.counts, 1)
        positions = np.repeat(np.arange(len(counts)), counts)
        return positions, take_rows(self.source, run_indices(starts, counts), missing[positions] if some_missing else None)

    def pieces(self, most: int) -> Iterator[tuple[int, Joined]]:
        """Cut it where more than `most` rows would come out at once; the position of each piece's first stream row, the piece.

        A stream row is never cut, however many matches it has.
        """
        out = np.cumsum(np.maximum(self.counts, 1), dtype=np.int64)
        if not len(out) or out[-1] <= most:
            yield 0, self
            return
        starts, begin = self._starts(), 0
        while begin < len(out):
            before = int(out[begin - 1]) if begin else 0
            end = max(int(np.searchsorted(out, before + most, side="right")), begin + 1)
            yield begin, Joined(self.counts[begin:end], self.source, starts[begin:end])
            begin = end

    def _starts(self) -> npt.NDArray[np.int64]:
        return run_starts(self.counts) if self.starts is None else self.starts


def run_starts(counts: npt.NDArray[np.int32]) -> npt.NDArray[np.int64]:
    """Where each run begins when runs of these lengths stand one after the other."""
    ends = np.cumsum(counts, dtype=np.int64)
    starts: npt.NDArray[np.int64] = ends - counts
    return starts


def run_indices(starts: npt.NDArray[np.int64], counts: npt.NDArray[np.int32]) -> npt.NDArray[np.int64]:
    """The index of every member of the runs that begin at `starts` and are `counts` long."""
    indices: npt.NDArray[np.int64] = np.repeat(starts - run_starts(counts), counts)
    indices += np.arange(len(indices))
    return indices


def take_rows(rows: pa.RecordBatch, indices: npt.NDArray[np.int64], missing: npt.NDArray[np.bool_] | None = None) -> pa.RecordBatch:
    """The rows at these indices; all-NULL where `missing`."""
    if rows.num_rows == 0 and missing is not None:
        # Nothing to take from, so all are missing; an index would be out of bounds even under a mask.
        nulls = [pa.nulls(len(indices), column.type) for column in rows.columns]
        return pa.RecordBatch.from_arrays(nulls, schema=rows.schema)
    return rows.take(pa.array(indices, mask=missing))
