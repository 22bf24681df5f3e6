"""Entries as wholes: a key, its stamp, its rows and the memory they take."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from srj.lookup.columns import Columns
from srj.lookup.encoding import (
    INLINE,
    EncodedKeys,
    Views,
    bytes_of_views,
    decode_key,
    heap_place,
    is_varying,
    key_words,
    lengths_of,
)
from srj.lookup.expiry import NO_END, Expiry
from srj.lookup.heap import Heap
from srj.lookup.layout import At, Block, Contents
from srj.lookup.pages import Pages
from srj.lookup.placement import Placement

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt
    import pyarrow as pa

    U64 = npt.NDArray[np.uint64]
    I64 = npt.NDArray[np.int64]
    I32 = npt.NDArray[np.int32]


# How often in the shorter ttl the entries are searched for expired ones at most, and the least stamps between two searches.
_LOOKS = 16
_PAUSE = Expiry.stamp(5.0)


class Entries:
    """All parts of a block, and what is done to several of them at once.

    Attributes:
        header, heap, placement, columns: the parts.
        pages: None where no key has more than one row.
        rule, fields: the policy's rule and its fields, one value a way.
    """

    def __init__(self, contents: Contents, block: Block, expiry: Expiry) -> None:
        self._expiry = expiry
        self._look_again = 0
        self.rule = contents.rule
        self.header = block.header
        # The heap knows views by numbers: those of the key columns at each way, then those of the columns at each row.
        self._first_numbers: I64 = np.cumsum([0, *contents.view_counts(block.geometry)], dtype=np.int64)
        self.heap = Heap(block, int(self._first_numbers[-1]))
        self.placement = Placement(block, self.heap)
        of_keys = sum(is_varying(type_) for type_ in contents.key_types)
        self.columns = Columns(block, contents.columns, self.heap, int(self._first_numbers[of_keys]))
        self.pages = None if contents.unique else Pages(block)
        self.fields: dict[str, npt.NDArray[Any]] = block.matching("policy.")
        self._counts: I32 | None = None if contents.unique else block["counts"]
        self._has_columns = len(contents.columns) > 0
        starts = np.cumsum([0, *(key_words(type_) for type_ in contents.key_types)]).tolist()
        self._key_columns = [
            (type_, self.placement.records[:, start:stop])
            for type_, (start, stop) in zip(contents.key_types, pairwise(starts), strict=True)
        ]
        self._key_views = [words for type_, words in self._key_columns if is_varying(type_)]
        self._views = list(self.all_views())

    def all_views(self) -> Iterator[U64]:
        """Every array of views: of key columns at each way, then of columns at each row."""
        yield from self._key_views
        for column in self.columns.varying:
            yield column.views

    def ages(self, ways: I64) -> I64:
        """Numbers that grow as the long values of these entries came; all 0 where there are none."""
        return self.heap.ages(self._views[-1][ways]) if self._views and self.heap.segments else np.zeros(ways.size, np.int64)

    def counts_of(self, ways: I64) -> I32:
        """Rows of the entries at these ways."""
        if self._counts is not None:
            counts: I32 = self._counts[ways]
        else:
            counts = (self.placement.stamps[ways] & 1 == 0).astype(np.int32)
        return counts

    def rows_of(self, ways: I64, counts: I32) -> I64:
        """Where the rows of these ways stand, given how many each has."""
        if self.pages is not None and self._has_columns:
            return self.pages.rows(ways, counts)
        return np.repeat(ways, counts)

    def keys_of(self, ways: I64) -> tuple[pa.Array, ...]:
        """The keys of the entries at these ways, a column each, in memory of their own."""
        return tuple(decode_key(type_, words[ways], self.heap.buffers) for type_, words in self._key_columns)

    def write(self, ways: I64, keys: EncodedKeys, stamps: I64, counts: I32) -> I64:
        """Store keys at free ways and give them room for their rows; where these go."""
        words = keys.words
        if keys.has_long:
            words = words.copy()
            for (at, views), first in zip(keys.views, self._first_numbers.tolist(), strict=False):
                words[views.long, at + 1] = self.heap.store(views.memory, views.offsets, ways[views.long] + first)
        self.placement.write(ways, words, keys.hashes, stamps)
        if self._counts is not None:
            self._counts[ways] = counts
        if self.pages is not None and self._has_columns:
            self.pages.allocate(ways, counts)
        self.header[At.ALL_ALIVE_TO] = min(int(self.header[At.ALL_ALIVE_TO]), self._expiry.alive_to(stamps))
        self.header[At.ENTRIES] += ways.size
        self.header[At.NEGATIVES] += np.count_nonzero(counts == 0)
        return self.rows_of(ways, counts)

    def store(self, rows: I64, batch: pa.RecordBatch, views: Sequence[Views | None]) -> None:
        """Put a batch's rows where `write` said; `views` has those of the columns of varying length."""
        arrays = batch.columns
        values = [array if view is None else view for array, view in zip(arrays, views, strict=True)]
        self.columns.store(rows, values, [array if array.null_count else None for array in arrays])

    def release(self, ways: I64) -> None:
        """Free these ways and all that their entries hold."""
        counts = self.counts_of(ways)
        if self.columns.varying:
            self.columns.release(self.rows_of(ways, counts))
        for views in self._key_views:
            self.heap.release(views[ways])
            views[ways] = 0
        if self.pages is not None and self._has_columns:
            self.pages.release(ways, counts)
        self.placement.tags[ways] = 0
        self.header[At.ENTRIES] -= ways.size
        self.header[At.NEGATIVES] -= np.count_nonzero(counts == 0)

    def drop(self, ways: I64) -> None:
        """Release entries whose ways stay empty: the rule shall not take what comes there next for one that made them leave."""
        self.release(ways)
        self.forget_use(ways)

    def forget_use(self, ways: I64) -> None:
        """Let the rule know nothing of the entries at these ways."""
        for field in self.fields.values():
            field[ways] = 0

    def alive(self, ways: I64) -> npt.NDArray[np.bool_]:
        """Whether each of these entries may be used still."""
        return self._expiry.alive(self.placement.stamps[ways], int(self.header[At.LATEST]))

    def alive_from(self) -> I64 | None:
        """The lowest stamps of entries that may be used (`Expiry.alive_from`); None when all may."""
        latest = int(self.header[At.LATEST])
        if not self._expiry.is_needed or latest <= self.header[At.ALL_ALIVE_TO]:
            return None
        if latest >= self._look_again:
            # Those that were to expire first may be gone; while nobody knows, each new key's 16 ways are searched for expired ones.
            stamps = self.placement.stamps[self.placement.tags != 0]
            self.header[At.ALL_ALIVE_TO] = self._expiry.alive_to(stamps)
            self._look_again = latest + max(self._expiry.shortest // _LOOKS, _PAUSE)
            return self.alive_from()
        return self._expiry.alive_from(latest)

    def evict(self, ways: I64) -> None:
        """Drop entries for want of room; those that have expired don't count."""
        self.header[At.EVICTIONS] += np.count_nonzero(self.alive(ways))
        self.drop(ways)

    def ways_of(self, numbers: I64) -> I64:
        """The ways of the entries that the views of these numbers belong to."""
        ways = numbers - self._first_numbers[np.searchsorted(self._first_numbers, numbers, side="right") - 1]
        if self.pages is not None:
            paged = np.flatnonzero(ways >= self.placement.ways)
            ways[paged] = self.pages.way_of(ways[paged])
        return ways

    def values_in(self, segment: int, given: npt.NDArray[np.unsignedinteger]) -> tuple[I64, I64]:
        """Those of the numbers, rising, whose views' values stand in a segment, and the values' lengths."""
        rising = np.sort(given)
        numbers = rising[np.append(True, rising[1:] != rising[:-1])[: rising.size]].astype(np.int64)
        lengths = np.zeros(numbers.size, np.int64)
        for some, views, places in self._by_array(numbers):
            words = views[places]
            of_these = lengths_of(words[:, 0])
            here = (of_these > INLINE) & (heap_place(words[:, 1])[0] == segment)
            lengths[some] = np.where(here, of_these, 0)
        return numbers[lengths > 0], lengths[lengths > 0]

    def move(self, numbers: I64) -> None:
        """Move the values of the views of these numbers, rising, to the heap's head; released ones are left out."""
        for some, views, places in self._by_array(numbers):
            words = views[places]
            long = np.flatnonzero(lengths_of(words[:, 0]) > INLINE)
            if long.size:
                memory, offsets = bytes_of_views(words[long], self.heap.buffers)
                views[places[long], 1] = self.heap.store(memory, offsets, numbers[some][long], reserve=0)

    def _by_array(self, numbers: I64) -> Iterator[tuple[slice, U64, I64]]:
        """The parts of rising numbers that fall into one array of views: which, the array, the places in it."""
        stops = np.searchsorted(numbers, self._first_numbers)
        for position, views in enumerate(self._views):
            some = slice(int(stops[position]), int(stops[position + 1]))
            if some.stop > some.start:
                yield some, views, numbers[some] - self._first_numbers[position]

    def begin(self) -> None:
        """Make zeros an empty cache; more would only touch memory once more."""
        self.header[At.ALL_ALIVE_TO] = NO_END
        if self.pages is not None:
            self.pages.clear()

    def clear(self) -> None:
        """Forget everything but what is counted since the start."""
        self.placement.tags[:] = 0
        self.placement.taken[:] = 0
        for views in self._key_views:
            views[:] = 0
        self.columns.clear()
        self.heap.clear()
        if self.pages is not None:
            self.pages.clear()
        for field in self.fields.values():
            field[:] = 0
        self.header[At.ALL_ALIVE_TO] = NO_END
        self.header[[At.ENTRIES, At.NEGATIVES]] = 0
