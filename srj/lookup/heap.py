"""The byte heap: long values side by side in segments, filled one after another and reclaimed one at a time.

A view names a value's segment and its offset there, so the segments can be handed to Arrow as the buffers of a
``string_view`` array as they are.
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


class Piece(NamedTuple):
    """Values ``start`` to ``stop`` of a batch go to `segment`, at `offset`."""

    start: int
    stop: int
    segment: int
    offset: int


class Heap:
    """Allocation in the block's heap; whoever holds the views decides what moves and what leaves."""

    def __init__(self, block: Block) -> None:
        self.segments = block.geometry.segments
        self.segment_bytes = block.geometry.segment_bytes
        self.words: U64 = block["heap"]
        self._bytes: npt.NDArray[np.uint8] = self.words.view(np.uint8)
        self._header = block.header
        self._used: I64 = block["segment_used"]
        self._live: I64 = block["segment_live"]
        whole = pa.py_buffer(self.words)
        self.buffers = [whole.slice(number * self.segment_bytes, self.segment_bytes) for number in range(self.segments)]

    @property
    def live_bytes(self) -> int:
        """Bytes of the values that are referred to."""
        return int(self._live.sum())

    @property
    def free_bytes(self) -> int:
        """Bytes that can be filled without reclaiming anything."""
        return int(self.segment_bytes * np.count_nonzero(self._used == 0) + self._room_in_head())

    def _room_in_head(self) -> int:
        used = int(self._used[self._header[At.HEAD]])
        # An untouched head counts among the empty segments.
        return self.segment_bytes - used if used else 0

    def plan(self, offsets: I64, *, reserve: int = 1) -> list[Piece] | None:
        """Where values that stand side by side would go; None when that leaves fewer than `reserve` empty segments.

        Args:
            offsets: where each value starts in the batch, and where the last ends; no value is longer than a segment.
            reserve: empty segments to keep, without which no segment could be moved.
        """
        head = int(self._header[At.HEAD])
        empty = np.flatnonzero(self._used == 0).tolist()
        targets = ([head] if self._used[head] else []) + empty
        pieces: list[Piece] = []
        start, count = 0, offsets.size - 1
        if not count:
            return pieces
        for number, segment in enumerate(targets):
            used = int(self._used[segment])
            stop = int(np.searchsorted(offsets, offsets[start] + self.segment_bytes - used, side="right")) - 1
            if stop > start:
                pieces.append(Piece(start, stop, segment, used))
            start = max(start, stop)
            if start == count:
                return pieces if len(targets) - number - 1 >= reserve else None
        return None

    def store(self, memory: U64, offsets: I64, *, reserve: int = 1) -> U64:
        """Copy values in; their views' second words. Room must have been made (`plan`)."""
        places = np.empty(offsets.size - 1, np.uint64)
        if not places.size:
            return places
        pieces = self.plan(offsets, reserve=reserve)
        if pieces is None:
            raise AssertionError("room was made before")
        source = memory.view(np.uint8)
        for start, stop, segment, offset in pieces:
            first, last = int(offsets[start]), int(offsets[stop])
            target = segment * self.segment_bytes + offset
            self._bytes[target : target + last - first] = source[first:last]
            places[start:stop] = heap_word(segment, offsets[start:stop] + (offset - first))
            self._used[segment] += last - first
            self._live[segment] += last - first
            self._header[At.HEAD] = segment
        return places

    def release(self, views: U64) -> None:
        """Note that the long values among these views are no longer referred to."""
        lengths = lengths_of(views[:, 0])
        long = np.flatnonzero(lengths > INLINE)
        if long.size:
            segments, _ = heap_place(views[long, 1])
            self._live -= np.bincount(segments, lengths[long], minlength=self.segments).astype(np.int64)

    def address(self, second_words: U64) -> I64:
        """Byte offsets in the whole heap of long values."""
        segments, offsets = heap_place(second_words)
        segments *= self.segment_bytes
        segments += offsets
        return segments

    def emptiest(self) -> tuple[int, int] | None:
        """The filled segment with the fewest live bytes, and these; None when none but the head is in use."""
        candidates = self._used > 0
        candidates[self._header[At.HEAD]] = False
        if not candidates.any():
            return None
        live = np.where(candidates, self._live, np.iinfo(np.int64).max)
        segment = int(live.argmin())
        return segment, int(self._live[segment])

    def clear_segment(self, segment: int) -> None:
        """Make a segment empty whose live values have moved away."""
        self._used[segment] = 0
        self._live[segment] = 0

    def reset_head(self) -> None:
        """Start the head again when nothing in it is alive."""
        head = self._header[At.HEAD]
        if self._live[head] == 0:
            self._used[head] = 0

    def clear(self) -> None:
        """Make all segments empty."""
        self._used[:] = 0
        self._live[:] = 0
        self._header[At.HEAD] = 0
