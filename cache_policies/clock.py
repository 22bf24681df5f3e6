"""CLOCK: the oldest entry leaves, unless it was used since the hand last passed; then it gets another round."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from srj.cache_policies.bookkeeping import PolicyCache
from srj.cache_policies.policy import Policy

if TYPE_CHECKING:
    from collections.abc import Hashable


class ClockCache(PolicyCache):
    """CLOCK with one bit (Corbató, "A paging experiment with the Multics system", 1968).

    A hit sets the entry's bit. The hand clears set bits and evicts the first entry whose bit is clear. The circle is kept as a
    queue from the hand onwards: to pass an entry is to put it at the queue's end. Each step is O(1), amortised.

    Args:
        maxsize: entries held at most.

    Example:
        >>> cache = ClockCache(2)
        >>> cache["a"] = cache["b"] = 0
        >>> _ = cache["a"]
        >>> cache["c"] = 0
        >>> sorted(cache)
        ['a', 'c']
    """

    def _start(self) -> None:
        self._bits: OrderedDict[Hashable, bool] = OrderedDict()

    def _hit(self, key: Hashable) -> None:
        self._bits[key] = True

    def _admit(self, key: Hashable) -> None:
        self._bits[key] = False

    def _remove(self, key: Hashable) -> None:
        del self._bits[key]

    def _victim(self) -> Hashable:
        bits = self._bits
        while True:
            key, bit = next(iter(bits.items()))
            if not bit:
                return key
            bits[key] = False
            bits.move_to_end(key)


CLOCK = Policy("clock", exact=ClockCache)
