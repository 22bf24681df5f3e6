"""CLOCK: the oldest entry leaves, unless it was used since the hand last passed; then it gets another round."""

from __future__ import annotations

from collections import OrderedDict
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
_UNUSED = np.uint32(0x80000000)


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


class Circle:
    """The vectorised rule: each set of eight ways is a clock of its own.

    A candidate whose bit is clear leaves before one whose bit is set, the one that the hand passed longest ago first. When an entry
    has left, the hand of its set has passed all that stand before it: their bits are cleared, and they go to the end.
    """

    @property
    def fields(self) -> Mapping[str, np.dtype[Any]]:
        """The tick at which the hand last passed, or the entry came in, and the bit."""
        return {"passed": np.dtype(np.uint32), "bit": np.dtype(np.uint8)}

    def on_hit(self, fields: Fields, ways: npt.NDArray[np.int64], ticks: npt.NDArray[np.uint32]) -> None:  # noqa: ARG002
        """Set the bit."""
        fields["bit"][ways] = 1

    def on_insert(self, fields: Fields, ways: npt.NDArray[np.int64], ticks: npt.NDArray[np.uint32]) -> None:
        """Move the hand to where the entry before stood."""
        passed, bits = fields["passed"].reshape(-1, _SET), fields["bit"].reshape(-1, _SET)
        sets = ways // _SET
        now = ticks[-1:]
        age = ages(int(now[0]), passed[sets])
        # All bits of a set are set where even the victim's is: the hand went around once.
        around = fields["bit"][ways] != 0
        swept = (bits[sets] != 0) & ((age > ages(int(now[0]), fields["passed"][ways])[:, None]) | around[:, None])
        rows, columns = np.nonzero(swept)
        moved = sets[rows] * _SET + columns
        fields["bit"][moved] = 0
        going_on = moved[~around[rows]]
        fields["passed"][going_on] = now
        fields["passed"][ways] = ticks
        fields["bit"][ways] = 0

    def victim(self, fields: Fields, tick: int) -> npt.NDArray[np.uint32]:
        """Clear bits first, then ticks since the hand passed."""
        age = ages(tick, fields["passed"])
        order: npt.NDArray[np.uint32] = np.where(fields["bit"] == 0, age | _UNUSED, age)
        return order


CLOCK = Policy("clock", exact=ClockCache, rule=Circle())
