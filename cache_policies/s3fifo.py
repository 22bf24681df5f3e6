"""S3-FIFO: three queues; most new entries leave a small one before they disturb the main one."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from srj.cache_policies.bookkeeping import PolicyCache
from srj.cache_policies.policy import Policy

if TYPE_CHECKING:
    from collections.abc import Hashable

_MOST_COUNTED = 3


class S3FifoCache(PolicyCache):
    """S3-FIFO (Yang et al., "FIFO queues are all you need for cache eviction", SOSP 2023, algorithm 1).

    A new key enters the small queue, a tenth of the capacity, or the main one if the ghost queue remembers it (0.9 of the capacity:
    keys without values). The small queue's oldest moves to the main one if it was used twice or more, else it leaves and becomes a
    ghost. The main queue's oldest, if used, goes around with its count, at most 3, less one. Before the first eviction new keys go
    to the main queue once the small one is full. O(1), amortised. It has no vectorised rule: a set of ways can't keep queues of
    given lengths, nor ghosts.

    Args:
        maxsize: entries held at most.

    Example:
        >>> cache = S3FifoCache(20)
        >>> for key in range(20):
        ...     cache[key] = 0
        >>> _ = cache[0], cache[0]
        >>> cache["new"] = 0
        >>> 0 in cache, 1 in cache
        (True, False)
    """

    def _start(self) -> None:
        size = int(self.maxsize)
        self._small_size = max(int(size * 0.1), 1)
        self._main_size = size - self._small_size
        self._ghost_size = int(size * 0.9)
        self._small: OrderedDict[Hashable, int] = OrderedDict()
        self._main: OrderedDict[Hashable, int] = OrderedDict()
        self._ghosts: OrderedDict[Hashable, None] = OrderedDict()
        self._was_ghost = False
        self._has_evicted = False

    def _hit(self, key: Hashable) -> None:
        (self._small if key in self._small else self._main)[key] += 1

    def _miss(self, key: Hashable) -> None:
        self._was_ghost = key in self._ghosts
        if self._was_ghost:
            del self._ghosts[key]

    def _admit(self, key: Hashable) -> None:
        fills = not self._has_evicted and len(self._small) >= self._small_size
        (self._main if self._was_ghost or fills else self._small)[key] = 0

    def _remove(self, key: Hashable) -> None:
        (self._small if key in self._small else self._main).pop(key)

    def _victim(self) -> Hashable:
        self._has_evicted = True
        from_small = len(self._main) <= self._main_size
        while self._small and from_small:
            key, count = next(iter(self._small.items()))
            if count < 2:
                self._remember(key)
                return key
            del self._small[key]
            self._main[key] = 0
        while True:
            key, count = next(iter(self._main.items()))
            if not count:
                return key
            self._main[key] = min(count, _MOST_COUNTED) - 1
            self._main.move_to_end(key)

    def _remember(self, key: Hashable) -> None:
        if self._ghost_size:
            if len(self._ghosts) >= self._ghost_size:
                self._ghosts.popitem(last=False)
            self._ghosts[key] = None


S3FIFO = Policy("s3fifo", exact=S3FifoCache)
