"""HEEB: the entry whose expected benefit is least leaves first, by a model of the stream's keys."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import numpy as np

from srj.cache_policies.bookkeeping import PolicyCache
from srj.cache_policies.heap import KeyHeap
from srj.cache_policies.models import Independent
from srj.cache_policies.policy import Policy
from srj.cache_policies.survival import Guesses, Held
from srj.errors import RequestError
from srj.quantities import number_from, shown

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
        alpha: steps that an entry survives, on average. Independent keys without a lifetime leave in the same order for every
            alpha; else the default is whichever of 1, 4, 16, ... would have missed least lately, at the cost of
            a cache of keys for each of these.
        lifetime: references for which an entry is of use after it came in; None: for ever.

    Raises:
        RequestError: alpha is not above 0, the lifetime is no number, or the model is none or takes no lifetime.

    Example:
        >>> from srj.cache_policies.models import Autoregressive
        >>> cache = HeebCache(2, Autoregressive(constant=0, phi=0.9, sigma=2, low=-20, high=20))
        >>> cache[-12] = cache[9] = cache[10] = 0
        >>> sorted(cache)
        [9, 10]
    """

    def __init__(
        self, maxsize: float, model: Model | None = None, *, alpha: float | None = None, lifetime: float | None = None
    ) -> None:
        if alpha is not None:
            number_from("alpha", alpha, 0, above=True)
        if lifetime is not None:
            number_from("lifetime", lifetime, 0)
        if model is not None and not all(hasattr(model, name) for name in ("is_stable", "observe", "number", "benefit")):
            raise RequestError(f"expected model as one of srj.cache_policies.models, got {shown(model)}")
        self._alpha, self._lifetime = alpha, lifetime
        self._new_model = Independent(_MEMORY / max(float(maxsize), 1.0)) if model is None else model
        if lifetime is not None:
            # Asked for no keys at all: a model that knows of no lifetimes says so now.
            self._new_model.benefit(np.zeros(0), 1.0, np.zeros(0))
        super().__init__(maxsize)

    @property
    def alpha(self) -> float:
        """The one in use."""
        return self._guesses.best if self._alpha is None else self._alpha

    def _start(self) -> None:
        # A copy: `clear` begins with a model that has seen nothing, and two caches may be given the same one.
        self._model: Any = copy.copy(self._new_model)
        self._has_order = self._model.is_stable and self._lifetime is None
        self._heap = KeyHeap()
        self._held = Held(self._lifetime)
        self._guesses = Guesses(max(int(self.maxsize), 1), self._lifetime)
        self._now = 0

    def _observe(self, key: Hashable) -> None:
        self._now += 1
        self._model.observe(key)
        if self._alpha is None and not self._has_order:
            self._guesses.observe(key, self._model, self._now)

    def _hit(self, key: Hashable) -> None:
        self._observe(key)
        if self._has_order:
            self._heap.set(key, self._model.number(key))
        else:
            self._held.use(key, self._model, self._now)

    def _miss(self, key: Hashable) -> None:
        self._observe(key)

    def _admit(self, key: Hashable) -> None:
        if self._has_order:
            self._heap.set(key, self._model.number(key))
        else:
            self._held.add(key, self._model, self._now)

    def _remove(self, key: Hashable) -> None:
        (self._heap if self._has_order else self._held).remove(key)

    def _victim(self) -> Hashable:
        return self._heap.lowest() if self._has_order else self._held.lowest(self._model, self.alpha, self._now)


HEEB = Policy("heeb", exact=HeebCache)
