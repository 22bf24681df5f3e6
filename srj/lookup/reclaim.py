"""Making room: whose bytes and pages are given up, and how a heap segment is emptied."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from srj.lookup.columns import move_out
from srj.lookup.encoding import INLINE, lengths_of
from srj.lookup.layout import At

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    from srj.lookup.entries import Entries

    I64 = npt.NDArray[np.int64]

_WORTH_MOVING = 0.8  # a segment with more live bytes than this share gains too little
_LEAST_GAIN = 0.1  # of a segment; moving less far means that the heap is full of live values
_SEGMENTS_AT_ONCE = 2  # bytes given up in one go: finding the oldest entries looks at all of them
_CHUNK = 2**15  # ways or rows looked at in one go
_SAMPLE = 2**13  # ways from which the age is estimated that a share of the entries has reached


def make_heap_room(entries: Entries, offsets: I64) -> None:
    """Reclaim segments, and evict where that is not enough, until values with these offsets (`Heap.plan`) have room."""
    heap = entries.heap
    heap.reset_head()
    while heap.plan(offsets) is None:
        before = heap.free_bytes
        emptiest = heap.emptiest()
        if emptiest is not None and emptiest[1] <= _WORTH_MOVING * heap.segment_bytes:
            _reclaim(entries, *emptiest)
        heap.reset_head()
        if heap.free_bytes - before < _LEAST_GAIN * heap.segment_bytes:
            live = heap.live_bytes
            wanted = max(live - _SEGMENTS_AT_ONCE * heap.segment_bytes, 0)
            _evict(entries, 1 - wanted / max(live, 1), _with_bytes, lambda wanted=wanted: heap.live_bytes <= wanted)  # type: ignore[misc]


def make_page_room(entries: Entries, pages: int) -> None:
    """Evict keys with several rows until so many pages are free."""
    chains = entries.pages
    if chains is not None and chains.free < pages:
        share = (pages - chains.free) / (chains.count - chains.free)
        _evict(entries, share, _with_pages, lambda: chains.free >= pages)


def _reclaim(entries: Entries, segment: int, live: int) -> None:
    if live:
        for views in entries.all_views():
            for start in range(0, len(views), _CHUNK):
                move_out(views[start : start + _CHUNK], entries.heap, segment)
    entries.heap.clear_segment(segment)


def _with_bytes(entries: Entries, ways: I64) -> I64:
    """Those whose entries may hold heap bytes: in the key, the first row, or further rows."""
    holds = entries.counts_of(ways) > 1
    for views in entries.all_views():
        holds |= lengths_of(views[ways, 0]) > INLINE
    return ways[holds]


def _with_pages(entries: Entries, ways: I64) -> I64:
    return ways[entries.counts_of(ways) > 1]


def _evict(entries: Entries, share: float, choose: Callable[[Entries, I64], I64], is_enough: Callable[[], bool]) -> None:
    """Evict about this share of the chosen entries, those that the policy lets go first, and more if that is not enough.

    Looks at a part of the ways at a time: arrays over all of them would be a good part of the cache's own size.
    """
    tick, count = int(entries.header[At.TICK]), entries.placement.ways
    while not is_enough():
        sample = choose(entries, entries.placement.occupied(np.arange(0, count, max(count // _SAMPLE, 1))))
        order = entries.rule.victim({name: field[sample] for name, field in entries.fields.items()}, tick)
        least = np.quantile(order, max(1 - share, 0.0), method="lower") if order.size else 0
        # Not always the same part first: it would be evicted more often than the others.
        first = tick % count // _CHUNK * _CHUNK
        for start in [*range(first, count, _CHUNK), *range(0, first, _CHUNK)]:
            ways = choose(entries, entries.placement.occupied(np.arange(start, min(start + _CHUNK, count))))
            order = entries.rule.victim({name: field[ways] for name, field in entries.fields.items()}, tick)
            leaving = np.flatnonzero(order >= least)
            leaving = ways[leaving[np.argsort(order[leaving])[::-1]]]
            step = max(leaving.size // 16, 1)
            for at in range(0, leaving.size, step):
                if is_enough():
                    return
                entries.evict(leaving[at : at + step])
        share *= 2
