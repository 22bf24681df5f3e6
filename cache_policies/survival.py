"""How long an entry survives, for HEEB: of several guesses, the one under which the stream so far would have missed least."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Self

import numpy as np

from srj.cache_policies.slots import Slots

if TYPE_CHECKING:
    from collections.abc import Hashable

    from srj.cache_policies.models import Model

_NUMBER, _USED, _END = range(3)
_STEP = 4  # from one guess to the next
_MEMORY = 10  # capacities of references after which a miss counts for 1 / e


class Held:
    """Keys that a HEEB cache holds, where their benefits change with each reference.

    Args:
        lifetime: references for which an entry is of use after it came in; None: for ever.
    """

    def __init__(self, lifetime: float | None) -> None:
        self._lifetime = lifetime
        self._slots = Slots(3)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._slots

    def __len__(self) -> int:
        return len(self._slots.keys)

    def add(self, key: Hashable, model: Model, now: int) -> None:
        """Hold a key from now on."""
        self._slots.add(key, model.number(key), now, now + (self._lifetime or 0.0))

    def use(self, key: Hashable, model: Model, now: int) -> None:
        """Note a use."""
        self._slots.set(key, _NUMBER, model.number(key))
        self._slots.set(key, _USED, now)

    def remove(self, key: Hashable) -> None:
        """Hold it no longer."""
        self._slots.remove(key)

    def lowest(self, model: Model, alpha: float, now: int) -> Hashable:
        """The key of the least benefit; of equal ones that used longest ago."""
        numbers = self._slots.numbers
        left = None if self._lifetime is None else numbers[:, _END] - now
        benefits = model.benefit(numbers[:, _NUMBER], alpha, left)
        lowest = np.flatnonzero(benefits == benefits.min())
        return self._slots.keys[int(lowest[numbers[lowest, _USED].argmin()])]

    def __copy__(self) -> Self:
        made = type(self)(self._lifetime)
        vars(made)["_slots"] = copy.copy(self._slots)
        return made


class Guesses:
    """Caches of keys alone that HEEB would hold with alpha = 1, 4, 16, ..., up to the capacity or just above.

    A model is never quite right, and the farther ahead, the less so: then an alpha that the mean time in the cache suggests trusts
    it too far. Which alpha serves best only the stream can tell, so each guess is followed, and its misses are counted; older
    ones count less and less.

    Args:
        size: entries held at most.
        lifetime: as `Held` takes it.
    """

    def __init__(self, size: int, lifetime: float | None) -> None:
        self._size = size
        self._alphas = [1.0]
        while self._alphas[-1] < size:
            self._alphas.append(self._alphas[-1] * _STEP)
        self._held = [Held(lifetime) for _ in self._alphas]
        self._misses = np.zeros(len(self._alphas))

    @property
    def best(self) -> float:
        """The alpha whose cache missed least so far; of equal ones the largest."""
        return self._alphas[len(self._alphas) - 1 - int(self._misses[::-1].argmin())]

    def observe(self, key: Hashable, model: Model, now: int) -> None:
        """What each guess does with a reference that the model has just seen."""
        self._misses *= 1 - 1 / (_MEMORY * self._size)
        for position, held in enumerate(self._held):
            if key in held:
                held.use(key, model, now)
                continue
            self._misses[position] += 1
            if len(held) >= self._size:
                held.remove(held.lowest(model, self._alphas[position], now))
            held.add(key, model, now)

    def __copy__(self) -> Self:
        made = type(self).__new__(type(self))
        held = [copy.copy(one) for one in self._held]
        vars(made).update({**vars(self), "_held": held, "_misses": self._misses.copy()})
        return made
