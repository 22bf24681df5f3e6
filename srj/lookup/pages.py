"""Rows of keys that have several: the first at the key's way, the others in a chain of pages.

A page holds a fixed number of rows, so pages never fragment, and a chain is followed for all keys of a batch at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from srj.lookup.layout import At, Block

if TYPE_CHECKING:
    import numpy.typing as npt

    I64 = npt.NDArray[np.int64]
    I32 = npt.NDArray[np.int32]

LONGEST_CHAIN = 256  # pages; following a chain takes a step for each
_LARGEST_SHARE = 4  # a key may take one part in so many of all pages


class Pages:
    """The pages of a block whose keys may have several rows."""

    def __init__(self, block: Block) -> None:
        self.count = block.geometry.pages
        self.page_rows = block.geometry.page_rows
        self.longest_chain = min(LONGEST_CHAIN, self.count // _LARGEST_SHARE)
        self._first_row = block.geometry.ways
        self._header = block.header
        self._first: I32 = block["first_page"]
        self._next: I32 = block["next_page"]
        self._free: I32 = block["free_pages"]
        self._ways: I32 = block["page_way"]

    @property
    def free(self) -> int:
        """Pages in nobody's chain."""
        return int(self._header[At.FREE_PAGES])

    def clear(self) -> None:
        """Free all pages."""
        self._free[:] = np.arange(self.count - 1, -1, -1)
        self._header[At.FREE_PAGES] = self.count

    def needed(self, counts: npt.NDArray[np.integer]) -> I64:
        """Pages for keys with so many rows."""
        further = np.maximum(counts.astype(np.int64) - 1, 0)
        return -(-further // self.page_rows)

    def way_of(self, rows: I64) -> I64:
        """The way whose key has each of these rows, which stand in pages."""
        ways: I64 = self._ways[(rows - self._first_row) // self.page_rows].astype(np.int64)
        return ways

    def sample(self, count: int) -> I64:
        """The ways of about so many pages, evenly spaced; a free page's is the one it had last."""
        ways: I64 = self._ways[:: max(self.count // count, 1)].astype(np.int64)
        return ways

    def next_ways(self, count: int) -> I64:
        """The ways of the next so many pages, round and round."""
        start = int(self._header[At.PAGE_HAND])
        stop = min(start + count, self.count)
        self._header[At.PAGE_HAND] = stop % self.count
        ways: I64 = self._ways[start:stop].astype(np.int64)
        return ways

    def allocate(self, ways: I64, counts: npt.NDArray[np.integer]) -> None:
        """Chain pages to ways whose keys have so many rows; room must have been made."""
        needed = self.needed(counts)
        total = int(needed.sum())
        if not total:
            return
        free = self.free - total
        pages = self._free[free : free + total].copy()
        self._header[At.FREE_PAGES] = free
        chained = needed > 0
        stops = needed[chained].cumsum()
        self._first[ways[chained]] = pages[stops - needed[chained]]
        self._ways[pages] = np.repeat(ways[chained], needed[chained])
        self._next[pages[:-1]] = pages[1:]
        self._next[pages[stops - 1]] = -1

    def release(self, ways: I64, counts: npt.NDArray[np.integer]) -> None:
        """Free the chains of these ways, whose keys have so many rows."""
        needed = self.needed(counts)
        ways, needed = ways[needed > 0], needed[needed > 0]
        pages = self._first[ways]
        while pages.size:
            free = self.free
            self._free[free : free + pages.size] = pages
            self._header[At.FREE_PAGES] = free + pages.size
            needed = needed - 1
            pages, needed = self._next[pages[needed > 0]], needed[needed > 0]

    def rows(self, ways: I64, counts: npt.NDArray[np.integer]) -> I64:
        """Where the rows of these ways stand, way by way, each way's in the order of its rows."""
        wide = counts.astype(np.int64)
        stops = wide.cumsum()
        rows = np.empty(int(stops[-1]) if stops.size else 0, np.int64)
        some = wide > 0
        starts = stops - wide
        rows[starts[some]] = ways[some]
        many = wide > 1
        pages, left, at = self._first[ways[many]].astype(np.int64), wide[many] - 1, starts[many] + 1
        while pages.size:
            here = np.minimum(left, self.page_rows)
            owner = np.repeat(np.arange(pages.size), here)
            within = np.arange(owner.size) - np.repeat(here.cumsum() - here, here)
            rows[at[owner] + within] = self._first_row + pages[owner] * self.page_rows + within
            left, at = left - here, at + here
            more = left > 0
            pages, left, at = self._next[pages[more]].astype(np.int64), left[more], at[more]
        return rows
