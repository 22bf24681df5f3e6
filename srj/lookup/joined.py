"""A batch of stream rows together with the table rows that match them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

# What 32-bit offsets can address in one column.
_MOST_TEXT = 2**31 - 1
_LARGE = {pa.string(): pa.large_string(), pa.binary(): pa.large_binary()}
_SMALL = {large: small for small, large in _LARGE.items()}


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

    def pieces(self, most_rows: int, most_bytes: int) -> Iterator[tuple[int, Joined]]:
        """Cut it where more rows or bytes would come out at once: the position of each piece's first stream row, and the piece.

        A stream row is never cut, however much matches it.
        """
        rows = np.maximum(self.counts, 1)
        if self.starts is None and int(rows.sum()) <= most_rows and self.source.nbytes <= most_bytes:
            yield 0, self
            return
        starts = self._starts()
        row_ends = np.cumsum(rows, dtype=np.int64)
        # Where only existence is asked the source has no columns, and may have lost its rows with them.
        sizes = run_sums(row_bytes(self.source), starts, self.counts) if self.source.num_columns else np.zeros_like(row_ends)
        byte_ends = np.cumsum(sizes)
        begin = 0
        while begin < len(rows):
            row_limit = most_rows + int(row_ends[begin - 1] if begin else 0)
            byte_limit = most_bytes + int(byte_ends[begin - 1] if begin else 0)
            within_rows = int(np.searchsorted(row_ends, row_limit, "right"))
            within_bytes = int(np.searchsorted(byte_ends, byte_limit, "right"))
            end = max(min(within_rows, within_bytes), begin + 1)
            whole = begin == 0 and end == len(rows)
            yield begin, self if whole else Joined(self.counts[begin:end], self.source, starts[begin:end])
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


def run_sums(values: npt.NDArray[np.int64], starts: npt.NDArray[np.int64], counts: npt.NDArray[np.int32]) -> npt.NDArray[np.int64]:
    """The sum of the values in each run; 0 for an empty one, wherever it begins."""
    before = np.concatenate([[0], np.cumsum(values)])
    starts = np.where(counts > 0, starts, 0)
    sums: npt.NDArray[np.int64] = before[starts + counts] - before[starts]
    return sums


def row_bytes(rows: pa.RecordBatch) -> npt.NDArray[np.int64]:
    """The bytes that each row's values take."""
    sizes = np.zeros(rows.num_rows, np.int64)
    for column in rows.columns:
        if _is_varying(column.type):
            sizes += pc.fill_null(pc.binary_length(column), 0).to_numpy()
        else:
            sizes += (column.type.bit_width + 7) // 8
    return sizes


def concat_rows(parts: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """One batch of several; with 64-bit offsets where 32 bits could not address all the text."""
    if sum(part.nbytes for part in parts) > _MOST_TEXT:
        parts = [
            part.cast(pa.schema([field.with_type(_LARGE.get(field.type, field.type)) for field in part.schema])) for part in parts
        ]
    return pa.concat_batches(parts)


def take_rows(rows: pa.RecordBatch, indices: npt.NDArray[np.int64], missing: npt.NDArray[np.bool_] | None = None) -> pa.RecordBatch:
    """The rows at these indices; all-NULL where `missing`."""
    if rows.num_rows == 0 and missing is not None:
        # Nothing to take from, so all are missing; an index would be out of bounds even under a mask.
        nulls = [pa.nulls(len(indices), column.type) for column in rows.columns]
        return pa.RecordBatch.from_arrays(nulls, schema=rows.schema)
    taken = rows.take(pa.array(indices, mask=missing))
    if any(field.type in _SMALL for field in taken.schema):
        taken = taken.cast(pa.schema([field.with_type(_SMALL.get(field.type, field.type)) for field in taken.schema]))
    return taken


def _is_varying(kind: pa.DataType) -> bool:
    return kind in _LARGE or kind in _SMALL
