"""OPT: the entry whose next use is farthest away leaves first; no policy that must keep every new key misses less."""

from __future__ import annotations

from typing import TYPE_CHECKING

from srj.cache_policies.bookkeeping import PolicyCache
from srj.cache_policies.heap import KeyHeap
from srj.cache_policies.policy import Policy

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable


class OptCache(PolicyCache):
    """OPT (Belady, "A study of replacement algorithms for a virtual-storage computer", 1966). Offline: it is told the future.

    Each reference, a hit or a key that is stored, is one step through the future. A reference that is not the next one there is
    served, and its key taken for one that never comes again. O(log n). It has no vectorised rule: no stream is known beforehand.

    Args:
        maxsize: entries held at most.
        future: all keys in the order in which they will be asked for.

    Example:
        >>> sequence = ["a", "b", "c", "a", "b"]
        >>> cache = OptCache(2, sequence)
        >>> for key in sequence[:3]:
        ...     cache[key] = 0
        >>> sorted(cache)
        ['a', 'c']
    """

    def __init__(self, maxsize: float, future: Iterable[Hashable]) -> None:
        self._future = list(future)
        self._next_use = next_uses(self._future)
        super().__init__(maxsize)

    def _start(self) -> None:
        self._heap = KeyHeap()
        self._at = 0

    def _hit(self, key: Hashable) -> None:
        at, end = self._at, len(self._future)
        self._at += 1
        self._heap.set(key, -(self._next_use[at] if at < end and self._future[at] == key else end))

    _admit = _hit

    def _remove(self, key: Hashable) -> None:
        self._heap.remove(key)

    def _victim(self) -> Hashable:
        return self._heap.lowest()


def next_uses(sequence: list[Hashable]) -> list[int]:
    """For each position that of the same key's next occurrence; the sequence's length where there is none.

    >>> next_uses(["a", "b", "a"])
    [2, 3, 3]
    """
    end = len(sequence)
    found = [end] * end
    later: dict[Hashable, int] = {}
    for position in range(end - 1, -1, -1):
        found[position] = later.get(sequence[position], end)
        later[sequence[position]] = position
    return found


OPT = Policy("opt", exact=OptCache, offline=True)
