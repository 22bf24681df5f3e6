"""PROB: the entry that is least likely to be asked for next leaves first, by all that was ever asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from srj.cache_policies.bookkeeping import PolicyCache
from srj.cache_policies.heap import KeyHeap
from srj.cache_policies.policy import Policy

if TYPE_CHECKING:
    from collections.abc import Hashable


class ProbCache(PolicyCache):
    """PROB (Das, Gehrke and Riedewald, "Approximate join processing over data streams", SIGMOD 2003).

    A key's probability is its share of all references so far; counts of evicted keys are kept (LFU with a perfect history), so its
    memory grows with the number of distinct keys. Of equal counts the one used longest ago leaves. O(log n). It has no vectorised
    rule: ways forget the counts of keys that leave.

    Args:
        maxsize: entries held at most.

    Example:
        >>> cache = ProbCache(1)
        >>> cache["a"] = cache["a"] = cache["b"] = cache["a"] = 0
        >>> cache.references("a"), cache.references("b"), list(cache)
        (3, 1, ['a'])
    """

    def _start(self) -> None:
        self._counts: dict[Hashable, int] = {}
        self._heap = KeyHeap()

    def references(self, key: Hashable) -> int:
        """How often a key was asked for, held or not."""
        return self._counts.get(key, 0)

    def _hit(self, key: Hashable) -> None:
        count = self._counts[key] = self._counts.get(key, 0) + 1
        self._heap.set(key, count)

    _admit = _hit

    def _remove(self, key: Hashable) -> None:
        self._heap.remove(key)

    def _victim(self) -> Hashable:
        return self._heap.lowest()


PROB = Policy("prob", exact=ProbCache)
