"""LIFE: the entry with the least probability of being asked for times the time it is still of use leaves first."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from srj.cache_policies.bookkeeping import PolicyCache
from srj.cache_policies.policy import Policy
from srj.cache_policies.slots import Slots
from srj.quantities import number_from

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

_WINDOWS = 10.0
_COUNT, _END, _ENTERED = range(3)


class LifeCache(PolicyCache):
    """LIFE (Das, Gehrke and Riedewald, "Approximate join processing over data streams", SIGMOD 2003).

    An entry is of use for a lifetime from the reference that brought it in: a window of the stream, or the time to live of a
    cached row. The probability is PROB's: the key's share of all references so far, counts of evicted keys kept. Of equal
    entries the one that came in first leaves. O(n) an eviction, as all the remaining lifetimes change with each reference, but
    on arrays. It has no vectorised rule: ways forget the counts of keys that leave.

    Args:
        maxsize: entries held at most.
        lifetime: in references: a number, or a function of the key; default 10 times `maxsize`.

    Raises:
        RequestError: the lifetime is neither a number from 0 on nor a function.

    Example:
        >>> cache = LifeCache(2, lifetime=lambda key: 5 if key == "short" else 50)
        >>> cache["short"] = cache["short"] = cache["long"] = cache["new"] = 0
        >>> sorted(cache)
        ['long', 'new']
    """

    def __init__(self, maxsize: float, lifetime: float | Callable[[Hashable], float] | None = None) -> None:
        if lifetime is not None and not callable(lifetime):
            number_from("lifetime", lifetime, 0)
        self._lifetime = _WINDOWS * maxsize if lifetime is None else lifetime
        super().__init__(maxsize)

    def _start(self) -> None:
        self._counts: dict[Hashable, int] = {}
        self._slots = Slots(3)
        self._now = 0

    def _count(self, key: Hashable) -> int:
        self._now += 1
        count = self._counts[key] = self._counts.get(key, 0) + 1
        return count

    def _hit(self, key: Hashable) -> None:
        self._slots.set(key, _COUNT, self._count(key))

    def _miss(self, key: Hashable) -> None:
        self._count(key)

    def _admit(self, key: Hashable) -> None:
        lifetime = self._lifetime(key) if callable(self._lifetime) else self._lifetime
        self._slots.add(key, self._counts[key], self._now + lifetime, self._now)

    def _remove(self, key: Hashable) -> None:
        self._slots.remove(key)

    def _victim(self) -> Hashable:
        numbers = self._slots.numbers
        scores = numbers[:, _COUNT] * np.maximum(numbers[:, _END] - self._now, 0)
        lowest = np.flatnonzero(scores == scores.min())
        return self._slots.keys[int(lowest[numbers[lowest, _ENTERED].argmin()])]


LIFE = Policy("life", exact=LifeCache)
