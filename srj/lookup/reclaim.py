"""Making room: whose bytes and pages are given up, and how heap segments are emptied.

All work is done on a few segments or pages at a time, of which a fixed share at least is gained: the cost of an inserted key
depends neither on the cache's size nor on how well the widths were estimated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from srj.lookup.layout import At
from srj.lookup.placement import IS_EXPIRED

if TYPE_CHECKING:
    import numpy.typing as npt

    from srj.lookup.entries import Entries

    I64 = npt.NDArray[np.int64]

_STAYING = 0.75  # share of the reclaimed segments' bytes that may stay alive: each byte gained costs at most three moved ones
_LEAST_GAIN = 0.1  # of a segment; less was lost where values did not fit into what was left of a segment
_OLD = 0.125  # share of the entries that are given up as soon as a search comes upon them
_SAMPLE = 1024  # entries from which the age is estimated that a share of them has reached
_AT_ONCE = 4096  # values or pages looked at in one go at least, where there are so many
_PART = 4096  # values at most, so that the arrays needed stay small


def make_heap_room(entries: Entries, lengths: I64) -> None:
    """Reclaim segments until values of these lengths have room, and evict where that would gain too little."""
    heap = entries.heap
    costs = heap.costs(lengths)
    staying = _STAYING
    while heap.plan(costs) is None:
        if heap.clear_dead():
            continue
        before = heap.free_bytes
        segments = heap.to_reclaim(_AT_ONCE)
        if not segments:
            raise AssertionError("what is inserted at once always has room in an empty heap")
        _reclaim(entries, segments, staying)
        if heap.free_bytes - before < _LEAST_GAIN * heap.segment_bytes:
            staying = staying / 2 if staying > _LEAST_GAIN else 0.0


def _reclaim(entries: Entries, segments: list[int], staying: float) -> None:
    """Empty segments: what lives there moves, unless more than the share `staying` does: then some of it is evicted."""
    heap = entries.heap
    parts = [(segment, part) for segment in segments for part in _parts(heap.numbers_in(segment))]
    share = 1 - staying * len(segments) * heap.segment_bytes / max(heap.live_in(segments), 1)
    if share > 0:
        old = _old(entries, entries.ways_of(heap.sample(_SAMPLE)), _OLD)
        # A few values of each segment are ranked together: their own segment's alone would be too small a choice.
        together = [parts] if sum(part.size for _, part in parts) <= 2 * _PART else [[part] for part in parts]
        for some in together:
            found = [entries.values_in(*one) for one in some]
            numbers, lengths = (np.concatenate([arrays[which] for arrays in found]) for which in (0, 1))
            _evict(entries, numbers, lengths, share, old)
    for segment in segments:
        for part in _parts(heap.numbers_in(segment)):
            entries.move(entries.values_in(segment, part)[0])
        heap.clear_segment(segment)


def _parts(numbers: npt.NDArray[np.unsignedinteger]) -> list[npt.NDArray[np.unsignedinteger]]:
    return [numbers[start : start + _PART] for start in range(0, numbers.size, _PART)]


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


def _order(entries: Entries, ways: I64) -> I64:
    """How soon the policy lets each entry go; expired ones before all others."""
    fields = {name: field[ways] for name, field in entries.fields.items()}
    order: I64 = entries.rule.victim(fields, int(entries.header[At.TICK])).astype(np.int64)
    order[~entries.alive(ways)] = IS_EXPIRED
    return order


def _old(entries: Entries, sample: I64, share: float) -> int:
    """The order that this share of the entries has reached, estimated from a sample of ways."""
    order = _order(entries, entries.placement.occupied(sample))
    return int(np.quantile(order, 1 - share, method="higher")) if order.size else 0


def _evict(entries: Entries, numbers: I64, lengths: I64, share: float, old: int) -> None:
    """Evict the old ones among the holders of these values, and in any case, in the policy's order, a share of the bytes."""
    ways, holder = np.unique(entries.ways_of(numbers), return_inverse=True)
    order = _order(entries, ways)
    ranked = np.argsort(order)[::-1]
    bytes_ = np.bincount(holder, lengths, minlength=ways.size)[ranked].cumsum()
    enough = int(np.searchsorted(bytes_, share * lengths.sum())) + 1
    entries.evict(ways[ranked[: max(enough, np.count_nonzero(order >= old))]])
