"""HEEB: the entry whose expected benefit is least leaves first, by a model of the stream's keys."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import numpy as np

from srj.cache_policies.bookkeeping import PolicyCache
from srj.cache_policies.heap import KeyHeap
from srj.cache_policies.models import Independent
from srj.cache_policies.policy import Policy
from srj.cache_policies.slots import Slots
from srj.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Hashable

    from srj.cache_policies.models import Model

_MEMORY = 0.1  # the default weight, times the capacity: the last ten capacities of references count most


class HeebCache(PolicyCache):
    """HEEB (Xie, Yang and Chen, "On joining and caching stochastic streams", SIGMOD 2005).

    The expected benefit of an entry is H, the sum over d >= 1 of q(d) * L(d): q(d) is the probability that the first reference
    to its key is d steps ahead, given the past; L(d) = exp(-d / alpha) the chance that the entry survives that long. The model
    says q. Of equal entries the one used longest ago leaves. O(log n) where the model is stable and there is no lifetime, else
    O(n) an eviction, on arrays. It has no vectorised rule: a rule has no memory for a model.

    Args:
        maxsize: entries held at most.
        model: of the references (`srj.cache_policies.models`); default `Independent` with a
            weight of 0.1 / `maxsize`: a much higher one forgets sooner than entries leave, which is LRU. The cache tells it
            every reference.
        alpha: steps that an entry survives, on average; default `maxsize`. Where the model is good for a few steps ahead only, a
            smaller one is better; independent keys leave in the same order for every alpha.
        lifetime: references for which an entry is of use after it came in; None: for ever.

    Raises:
        RequestError: alpha is not above 0.

    Example:
        >>> from srj.cache_policies.models import Autoregressive
        >>> cache = HeebCache(2, Autoregressive(constant=0, phi=0.9, sigma=2, low=-20, high=20), alpha=10)
        >>> cache[-12] = cache[9] = cache[10] = 0
        >>> sorted(cache)
        [9, 10]
    """

    def __init__(
        self, maxsize: float, model: Model | None = None, *, alpha: float | None = None, lifetime: float | None = None
    ) -> None:
        self._alpha = max(float(maxsize), 1.0) if alpha is None else alpha
        if not self._alpha > 0:
            raise RequestError(f"expected alpha above 0, got {alpha!r}")
        self._lifetime = lifetime
        self._new_model = Independent(_MEMORY / max(float(maxsize), 1.0)) if model is None else model
        super().__init__(maxsize)

    def _start(self) -> None:
        # A copy: `clear` begins with a model that has seen nothing, and two caches may be given the same one.
        self._model: Any = copy.copy(self._new_model)
        self._has_order = self._model.is_stable and self._lifetime is None
        self._heap = KeyHeap()
        self._slots = Slots(2)
        self._now = 0

    def _observe(self, key: Hashable) -> None:
        self._now += 1
        self._model.observe(key)

    def _hit(self, key: Hashable) -> None:
        self._observe(key)
        if self._has_order:
            self._heap.set(key, self._model.order(key))
        else:
            self._slots.set(key, 0, self._now)

    def _miss(self, key: Hashable) -> None:
        self._observe(key)

    def _admit(self, key: Hashable) -> None:
        if self._has_order:
            self._heap.set(key, self._model.order(key))
        else:
            self._slots.add(key, self._now, self._now + (self._lifetime or 0.0))

    def _remove(self, key: Hashable) -> None:
        (self._heap if self._has_order else self._slots).remove(key)

    def _victim(self) -> Hashable:
        if self._has_order:
            return self._heap.lowest()
        keys, numbers = self._slots.keys, self._slots.numbers
        left = None if self._lifetime is None else numbers[:, 1] - self._now
        benefits = self._model.benefit(keys, self._alpha, left)
        lowest = np.flatnonzero(benefits == benefits.min())
        return keys[int(lowest[numbers[lowest, 0].argmin()])]


HEEB = Policy("heeb", exact=HeebCache)
