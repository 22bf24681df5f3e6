"""The byte heap: long values side by side in segments, filled one after another and reclaimed a few at a time.

A view names a value's segment and its offset there, so the segments can be handed to Arrow as the buffers of a
``string_view`` array as they are. From its end each segment holds the numbers of the views whose values it was given, so that
whose values stand in it is known without a look at all views.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from srj.lookup.encoding import INLINE, heap_place, heap_word, lengths_of
from srj.lookup.layout import At, Block

if TYPE_CHECKING:
    import numpy.typing as npt

    U64 = npt.NDArray[np.uint64]
    I64 = npt.NDArray[np.int64]

_OF_AGE = 0.25  # what being old counts against having dead bytes, when segments are chosen
_LARGEST_PART = 16  # one part in so many of all segments is reclaimed at once


class Piece(NamedTuple):
    """Values ``start`` to ``stop`` of a batch go to `segment`."""

    start: int
    stop: int
    segment: int


class Heap:
    """Allocation in the block's heap; whoever holds the views decides what moves and what leaves.

    Args:
        block: the cache's memory.
        views: how many there are, numbered from 0.
    """

    def __init__(self, block: Block, views: int) -> None:
        self.segments = block.geometry.segments
        self.segment_bytes = block.geometry.segment_bytes
        self.words: U64 = block["heap"]
        self._bytes: npt.NDArray[np.uint8] = self.words.view(np.uint8)
        number_type = np.dtype(np.uint32 if views <= 2**32 else np.uint64)
        self.number_bytes = number_type.itemsize
        self._numbers = self.words.view(number_type)
        self._header = block.header
        self._used: I64 = block["segment_used"]  # bytes of the values it was given
        self._live: I64 = block["segment_live"]  # bytes of those that are referred to
        self._values: I64 = block["segment_values"]  # how many it was given
        self._filled: I64 = block["segment_filled"]  # how many segments had been begun when it was
        whole = pa.py_buffer(self.words)
        self.buffers = [whole.slice(number * self.segment_bytes, self.segment_bytes) for number in range(self.segments)]

    @property
    def live_bytes(self) -> int:
        """Bytes of the values that are referred to."""
        return int(self._live.sum())

    @property
    def free_bytes(self) -> int:
        """Bytes that can be filled without reclaiming anything."""
        head = int(self._header[At.HEAD])
        # An untouched head counts among the empty segments.
        in_head = self.segment_bytes - self._taken(head) if self._used[head] else 0
        return int(self.segment_bytes * np.count_nonzero(self._used == 0)) + in_head

    def _taken(self, segment: int) -> int:
        return int(self._used[segment] + self.number_bytes * self._values[segment])

    def costs(self, lengths: I64) -> I64:
        """Where values of these lengths would start, and the last end, with their numbers beside them."""
        costs = np.zeros(lengths.size + 1, np.int64)
        np.cumsum(lengths + self.number_bytes, out=costs[1:])
        return costs

    def plan(self, costs: I64, *, reserve: int = 1) -> list[Piece] | None:
        """Where values would go; None when that leaves fewer than `reserve` empty segments.

        Args:
            costs: of the values, none of which is longer than a segment.
            reserve: empty segments to keep, without which no segment could be moved.
        """
        head = int(self._header[At.HEAD])
        empty = np.flatnonzero(self._used == 0).tolist()
        targets = ([head] if self._used[head] else []) + empty
        pieces: list[Piece] = []
        start, count = 0, costs.size - 1
        if not count:
            return pieces
        for number, segment in enumerate(targets):
            stop = int(np.searchsorted(costs, costs[start] + self.segment_bytes - self._taken(segment), side="right")) - 1
            if stop > start:
                pieces.append(Piece(start, stop, segment))
            start = max(start, stop)
            if start == count:
                return pieces if len(targets) - number - 1 >= reserve else None
        return None

    def store(self, memory: U64, offsets: I64, numbers: I64, *, reserve: int = 1) -> U64:
        """Copy values in; their views' second words. Room must have been made (`plan`).

        Args:
            memory, offsets: the values as in `srj.lookup.encoding.Views`.
            numbers: of their views.
            reserve: as in `plan`.
        """
        places = np.empty(numbers.size, np.uint64)
        if not places.size:
            return places
        pieces = self.plan(self.costs(np.diff(offsets)), reserve=reserve)
        if pieces is None:
            raise AssertionError("room was made before")
        source = memory.view(np.uint8)
        for start, stop, segment in pieces:
            first, last, used = int(offsets[start]), int(offsets[stop]), int(self._used[segment])
            if not used:
                self._header[At.FILLS] += 1
                self._filled[segment] = self._header[At.FILLS]
            target = segment * self.segment_bytes + used
            self._bytes[target : target + last - first] = source[first:last]
            end = (segment + 1) * self.segment_bytes // self.number_bytes - int(self._values[segment])
            self._numbers[end - (stop - start) : end] = numbers[start:stop]
            places[start:stop] = heap_word(segment, offsets[start:stop] + (used - first))
            self._used[segment] += last - first
            self._live[segment] += last - first
            self._values[segment] += stop - start
            self._header[At.HEAD] = segment
        return places

    def release(self, views: U64) -> None:
        """Note that the long values among these views are no longer referred to."""
        lengths = lengths_of(views[:, 0])
        long = np.flatnonzero(lengths > INLINE)
        if long.size:
            segments, _ = heap_place(views[long, 1])
            self._live -= np.bincount(segments, lengths[long], minlength=self.segments).astype(np.int64)

    def ages(self, views: U64) -> I64:
        """Numbers that grow as the values came, 0 for values that stand in their views."""
        segments, offsets = heap_place(np.where(lengths_of(views[:, 0]) > INLINE, views[:, 1], np.uint64(0)))
        ages = self._filled[segments] * self.segment_bytes + offsets
        return np.where(lengths_of(views[:, 0]) > INLINE, ages, 0)

    def address(self, second_words: U64) -> I64:
        """Byte offsets in the whole heap of long values."""
        segments, offsets = heap_place(second_words)
        segments *= self.segment_bytes
        segments += offsets
        return segments

    def numbers_in(self, segment: int) -> npt.NDArray[np.unsignedinteger]:
        """Numbers of the views whose values the segment was given; those of values that left since may be others' now."""
        end = (segment + 1) * self.segment_bytes // self.number_bytes
        return self._numbers[end - int(self._values[segment]) : end]

    def live_in(self, segments: list[int]) -> int:
        """Bytes of the values in these segments that are referred to."""
        return int(self._live[segments].sum())

    def sample(self, count: int) -> I64:
        """About so many of the numbers in all segments, evenly spaced."""
        step = max(int(self._values.sum()) // count, 1)
        parts = [self.numbers_in(segment)[::step] for segment in np.flatnonzero(self._used).tolist()]
        return np.concatenate([np.zeros(0, np.uint32), *parts]).astype(np.int64)

    def to_reclaim(self, values: int) -> list[int]:
        """Filled segments that shall be emptied next: with many dead bytes, or long since filled.

        So many that they hold `values` values or are one in sixteen of all; none when only the head is in use.
        """
        in_use = self._used > 0
        in_use[self._header[At.HEAD]] = False
        segments = np.flatnonzero(in_use)
        dead = 1 - self._live[segments] / self.segment_bytes
        age = self._header[At.FILLS] - self._filled[segments] + 1
        segments = segments[np.argsort(-(dead + _OF_AGE) * age)]
        enough = int(np.searchsorted(self._values[segments].cumsum(), values)) + 1
        chosen: list[int] = segments[: min(enough, max(self.segments // _LARGEST_PART, 1))].tolist()
        return chosen

    def clear_segment(self, segment: int) -> None:
        """Make a segment empty whose live values have moved away."""
        self._used[segment] = self._live[segment] = self._values[segment] = 0

    def clear_dead(self) -> bool:
        """Make those segments empty in which nothing is alive; whether there were any."""
        dead = (self._live == 0) & (self._used > 0)
        self._used[dead] = 0
        self._values[dead] = 0
        return bool(dead.any())

    def clear(self) -> None:
        """Make all segments empty, also those that a killed process left half emptied."""
        for counts in (self._live, self._used, self._values):
            counts[:] = 0
