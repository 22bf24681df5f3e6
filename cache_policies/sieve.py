"""SIEVE: like CLOCK, but an entry that is spared keeps its place, so that new entries are tried and dropped first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from srj.cache_policies.ages import ages
from srj.cache_policies.bookkeeping import PolicyCache
from srj.cache_policies.policy import Policy

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    import numpy.typing as npt

    from srj.cache_policies.policy import Fields

_SET = 8  # ways that share a hand
_AHEAD, _UNUSED = np.uint32(0x40000000), np.uint32(0x80000000)
_OLDEST = np.uint32(0x3FFFFFFF)


class SieveCache(PolicyCache):
    """SIEVE (Zhang et al., "SIEVE is simpler than LRU", NSDI 2024, algorithm 1).

    Entries stand in order of insertion, with a bit that a hit sets. The hand moves from the oldest to the newest and around again,
    clears set bits in place, evicts the first entry whose bit is clear, and stays where it was. Each step is O(1), amortised.

    Args:
        maxsize: entries held at most.

    Example:
        >>> cache = SieveCache(3)
        >>> cache["a"] = cache["b"] = cache["c"] = 0
        >>> _ = cache["a"]
        >>> cache["d"] = cache["e"] = 0
        >>> sorted(cache)
        ['a', 'd', 'e']
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


class Sieve:
    """The vectorised rule: each set of eight ways is a sieve of its own.

    Entries with a clear bit leave before those with a set one; of these, first what stands before the hand of its set, oldest
    first, then what the hand has passed. When an entry has left, the bits between the hand and it are cleared, in place, and
    the hand stays where it was.
    """

    @property
    def fields(self) -> Mapping[str, np.dtype[Any]]:
        """The tick at which the entry came in, the bit, and whether the hand of its set has passed it."""
        return {"entered": np.dtype(np.uint32), "bit": np.dtype(np.uint8), "passed": np.dtype(np.uint8)}

    def on_hit(self, fields: Fields, ways: npt.NDArray[np.int64], ticks: npt.NDArray[np.uint32]) -> None:  # noqa: ARG002
        """Set the bit."""
        fields["bit"][ways] = 1

    def on_insert(self, fields: Fields, ways: npt.NDArray[np.int64], ticks: npt.NDArray[np.uint32]) -> None:
        """Move the hand to where the entry before stood."""
        entered, bits, passed = (fields[name].reshape(-1, _SET) for name in ("entered", "bit", "passed"))
        sets = ways // _SET
        now = ticks[-1:]
        older = ages(int(now[0]), entered[sets]) > ages(int(now[0]), fields["entered"][ways])[:, None]
        was_used, was_passed = fields["bit"][ways][:, None] != 0, fields["passed"][ways][:, None] != 0
        ahead = passed[sets] == 0
        # An entry behind the hand leaves after the hand has come to the newest and begun again.
        swept = was_used | np.where(was_passed, older | ahead, older & ahead)
        rows, columns = np.nonzero(swept & (bits[sets] != 0))
        fields["bit"][sets[rows] * _SET + columns] = 0
        begins_again = np.unique(sets[was_passed[:, 0]])
        passed[begins_again] = 0
        rows, columns = np.nonzero(older)
        fields["passed"][sets[rows] * _SET + columns] = 1
        fields["entered"][ways] = ticks
        fields["bit"][ways] = 0
        fields["passed"][ways] = 0

    def victim(self, fields: Fields, tick: int) -> npt.NDArray[np.uint32]:
        """Clear bits first, then what is ahead of the hand, then ticks since it came in."""
        order: npt.NDArray[np.uint32] = np.minimum(ages(tick, fields["entered"]), _OLDEST)
        order += np.where(fields["passed"] == 0, _AHEAD, np.uint32(0))
        order += np.where(fields["bit"] == 0, _UNUSED, np.uint32(0))
        return order


SIEVE = Policy("sieve", exact=SieveCache, rule=Sieve())
