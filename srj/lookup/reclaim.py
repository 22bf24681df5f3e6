"""Making room: whose bytes and pages are given up, and how heap segments are emptied.

All work is done on a few segments or pages at a time, of which a fixed share at least is gained: the cost of an inserted key
depends neither on the cache's size nor on how well the widths were estimated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from srj.lookup.layout import At

if TYPE_CHECKING:
    import numpy.typing as npt

    from srj.lookup.entries import Entries

    I64 = npt.NDArray[np.int64]
    U32 = npt.NDArray[np.uint32]

_STAYING = 0.75  # share of the reclaimed segments' bytes that may stay alive: each byte gained costs at most three moved ones
_LEAST_GAIN = 0.1  # of a segment; less was lost where values did not fit into what was left of a segment
_OLD = 0.125  # share of the entries that are given up as soon as a search comes upon them
_SAMPLE = 1024  # entries from which the age is estimated that a share of them has reached
_AT_ONCE = 4096  # values or pages looked at in one go at least, where there are so many
_PART = 16384  # values at most, so that the arrays needed stay small


def make_heap_room(entries: Entries, lengths: I64) -> None:
    """Reclaim segments until values of these lengths have room, and evict where that would gain too little."""
    heap = entries.heap
    costs = heap.costs(lengths)
    staying = _STAYING
    while True:
        if heap.plan(costs) is not None:
            return
        heap.clear_dead()
        before = heap.free_bytes
        _reclaim(entries, heap.to_reclaim(_AT_ONCE), staying)
        if heap.free_bytes - before < _LEAST_GAIN * heap.segment_bytes:
            staying = staying / 2 if staying > _LEAST_GAIN else 0.0


def _reclaim(entries: Entries, segments: list[int], staying: float) -> None:
    """Empty segments: what lives there moves, unless more than the share `staying` does: then some of it is evicted."""
    heap = entries.heap
    share = 1 - staying * len(segments) * heap.segment_bytes / max(heap.live_in(segments), 1)
    old = _old(entries, entries.ways_of(heap.sample(_SAMPLE)), _OLD) if share > 0 else 0
    for segment in segments:
        given = heap.numbers_in(segment)
        for start in range(0, given.size, _PART):
            numbers, lengths = entries.values_in(segment, given[start : start + _PART])
            if share > 0 and numbers.size:
                ways, holder = np.unique(entries.ways_of(numbers), return_inverse=True)
                _evict(entries, ways, np.bincount(holder, lengths), share * lengths.sum(), old)
            entries.move(numbers)
        heap.clear_segment(segment)


def make_page_room(entries: Entries, wanted: int) -> None:
    """Evict keys with several rows until so many pages are free."""
    pages = entries.pages
    share = _OLD
    while pages is not None and pages.free < wanted:
        old = _old(entries, pages.sample(_SAMPLE), share)
        for _ in range(0, pages.count, _AT_ONCE):
            ways = entries.placement.occupied(np.unique(pages.next_ways(_AT_ONCE)))
            ways = ways[entries.counts_of(ways) > 1]
            order = _order(entries, ways)
            ways = ways[np.argsort(order)[::-1][: np.count_nonzero(order >= old)]]
            enough = np.searchsorted(pages.needed(entries.counts_of(ways)).cumsum(), wanted - pages.free) + 1
            entries.evict(ways[:enough])
            if pages.free >= wanted:
                return
        share = min(2 * share, 1.0)


def _order(entries: Entries, ways: I64) -> U32:
    """How soon the policy lets each entry go."""
    return entries.rule.victim({name: field[ways] for name, field in entries.fields.items()}, int(entries.header[At.TICK]))


def _old(entries: Entries, sample: I64, share: float) -> int:
    """The order that this share of the entries has reached, estimated from a sample of ways."""
    order = _order(entries, entries.placement.occupied(sample))
    return int(np.quantile(order, 1 - share, method="higher")) if order.size else 0


def _evict(entries: Entries, ways: I64, weights: npt.NDArray[np.float64], least: float, old: int) -> None:
    """Evict those of the entries that are old, and, those first that the policy lets go first, at least so many bytes."""
    order = _order(entries, ways)
    ranked = np.argsort(order)[::-1]
    enough = int(np.searchsorted(weights[ranked].cumsum(), least)) + 1
    entries.evict(ways[ranked[: max(enough, np.count_nonzero(order >= old))]])
