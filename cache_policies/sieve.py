"""SIEVE: like CLOCK, but an entry that is spared keeps its place, so that new entries are tried and dropped first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from srj.cache_policies.bookkeeping import PolicyCache
from srj.cache_policies.policy import Policy

if TYPE_CHECKING:
    from collections.abc import Hashable


class SieveCache(PolicyCache):
    """SIEVE (Zhang et al., "SIEVE is simpler than LRU", NSDI 2024, algorithm 1).

    Entries stand in order of insertion, with a bit that a hit sets. The hand moves from the oldest to the newest and around again,
    clears set bits in place, evicts the first entry whose bit is clear, and stays where it was. Each step is O(1), amortised.

    Args:
        maxsize: entries held at most.

    Example:
        >>> cache = SieveCache(2)
        >>> cache["a"] = cache["b"] = 0
        >>> _ = cache["a"]
        >>> cache["c"] = cache["d"] = 0
        >>> sorted(cache)
        ['a', 'd']
    """

    def _start(self) -> None:
        self._bits: dict[Hashable, bool] = {}
        # A ring of newer and older neighbours; its two ends meet in the sentinel.
        self._sentinel = object()
        self._newer: dict[Hashable, Hashable] = {self._sentinel: self._sentinel}
        self._older: dict[Hashable, Hashable] = {self._sentinel: self._sentinel}
        self._hand: Hashable = self._sentinel

    def _hit(self, key: Hashable) -> None:
        self._bits[key] = True

    def _admit(self, key: Hashable) -> None:
        sentinel, newest = self._sentinel, self._older[self._sentinel]
        self._bits[key] = False
        self._newer[newest], self._older[key] = key, newest
        self._newer[key], self._older[sentinel] = sentinel, key

    def _remove(self, key: Hashable) -> None:
        del self._bits[key]
        newer, older = self._newer.pop(key), self._older.pop(key)
        self._newer[older], self._older[newer] = newer, older
        if self._hand == key:
            self._hand = newer

    def _victim(self) -> Hashable:
        bits, newer = self._bits, self._newer
        hand = self._hand
        while True:
            if hand is self._sentinel:
                hand = newer[hand]
            if not bits[hand]:
                self._hand = hand
                return hand
            bits[hand] = False
            hand = newer[hand]


SIEVE = Policy("sieve", exact=SieveCache)
