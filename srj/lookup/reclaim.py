"""Making room: whose bytes and pages are given up, and how a heap segment is emptied."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from srj.lookup.columns import move_out
from srj.lookup.encoding import INLINE, lengths_of
from srj.lookup.layout import At

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy.typing as npt

    from srj.lookup.entries import Entries

    U64 = npt.NDArray[np.uint64]
    I64 = npt.NDArray[np.int64]

_WORTH_MOVING = 0.8  # a segment with more live bytes than this share gains too little
_LEAST_GAIN = 0.1  # of a segment; moving less far means that the heap is full of live values
_SEGMENTS_AT_ONCE = 2  # bytes given up in one go: finding the oldest entries looks at all of them


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
            wanted = max(heap.live_bytes - _SEGMENTS_AT_ONCE * heap.segment_bytes, 0)
            _evict(entries, _with_bytes(entries), lambda wanted=wanted: heap.live_bytes <= wanted)  # type: ignore[misc]


def _reclaim(entries: Entries, segment: int, live: int) -> None:
    if live:
        for views in entries.all_views():
            move_out(views, entries.heap, segment)
    entries.heap.clear_segment(segment)


def make_page_room(entries: Entries, pages: int) -> None:
    """Evict keys with several rows until so many pages are free."""
    if entries.pages is not None and entries.pages.free < pages:
        chains = entries.pages
        ways = entries.placement.occupied()
        _evict(entries, ways[entries.counts_of(ways) > 1], lambda: chains.free >= pages)


def _with_bytes(entries: Entries) -> I64:
    """Ways whose entries may hold heap bytes: in the key, the first row, or further rows."""
    ways = entries.placement.occupied()
    holds = entries.counts_of(ways) > 1
    for views in entries.all_views():
        holds |= lengths_of(views[ways, 0]) > INLINE
    return ways[holds]


def _evict(entries: Entries, ways: I64, is_enough: Callable[[], bool]) -> None:
    """Evict among these ways, by the policy's order, until it is enough."""
    order = entries.rule.victim({name: field[ways] for name, field in entries.fields.items()}, int(entries.header[At.TICK]))
    ways = ways[np.argsort(order)[::-1]]
    # A share at a time: how much an entry gives is known only when it is released.
    step = max(ways.size // 128, 1)
    for start in range(0, ways.size, step):
        if is_enough():
            return
        entries.evict(ways[start : start + step])
