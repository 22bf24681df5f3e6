"""What HEEB knows of the stream: how likely each key's next reference is, and how far ahead."""

from __future__ import annotations

import copy
import math
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np

from srj.cache_policies.opt import next_uses
from srj.errors import RequestError
from srj.quantities import number_from, shown, whole_number

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable

    import numpy.typing as npt

    Numbers = npt.NDArray[np.float64]

_T = TypeVar("_T")
_FARTHEST = 2**31


class Model(Protocol):
    """A model of the references.

    Attributes:
        is_stable: whether two keys' benefits stand in an order that changes only when one of the two is observed; HEEB then keeps
            a heap of `number` instead of asking for all benefits at each eviction.
    """

    is_stable: bool

    def observe(self, key: Hashable) -> None:
        """Note the next reference of the stream."""
        ...

    def number(self, key: Hashable) -> float:
        """What a key's benefit is computed from; it changes only when the key is observed.

        In a stable model the benefit rises with it.
        """
        ...

    def benefit(self, numbers: Numbers, alpha: float, left: Numbers | None) -> Numbers:
        """H of each key: the sum over d >= 1 of P(the first reference from now on is d steps ahead) * exp(-d / alpha).

        Args:
            numbers: `number` of each key.
            alpha: steps that an entry survives, on average.
            left: steps for which each entry is still of use, where the sum ends; None: for ever.
        """
        ...


class Independent:
    """Each reference is a key by its probability, whatever came before.

    Then H = p * e / (1 - (1 - p) * e) with e = exp(-1 / alpha): in the order of p, for every alpha.

    Args:
        weight: of the newest reference in the moving average that estimates p; 0: p is the share of all references so far.

    Example:
        >>> model = Independent(weight=0)
        >>> for key in "aab":
        ...     model.observe(key)
        >>> model.probability("a") > model.probability("b")
        True
    """

    is_stable = True

    def __init__(self, weight: float = 0.001) -> None:
        if not number_from("the weight of a reference", weight, 0) < 1:
            raise RequestError(f"expected the weight of a reference from 0 to below 1, got {shown(weight)}")
        self._weight = weight
        self._decay = math.log1p(-weight)
        # Sums of (1 - weight) ** -time as logarithms: they change with a key's own references only, and never overflow.
        self._sums: dict[Hashable, float] = {}
        self._now = 0

    def observe(self, key: Hashable) -> None:
        """Count a reference."""
        self._now += 1
        if not self._weight:
            self._sums[key] = self._sums.get(key, 0.0) + 1
            return
        new = -self._decay * self._now
        old = self._sums.get(key)
        self._sums[key] = new if old is None else new + math.log1p(math.exp(old - new))

    def number(self, key: Hashable) -> float:
        """See `Model.number`: the count, or the logarithm of the sum."""
        return self._sums.get(key, -math.inf if self._weight else 0.0)

    def probability(self, key: Hashable) -> float:
        """That the next reference is to this key."""
        return float(self._probabilities(np.array(self.number(key))))

    def _probabilities(self, numbers: Numbers) -> Numbers:
        return self._weight * np.exp(numbers + self._decay * self._now) if self._weight else numbers / max(self._now, 1)

    def benefit(self, numbers: Numbers, alpha: float, left: Numbers | None) -> Numbers:
        """See `Model.benefit`."""
        probability = self._probabilities(numbers)
        survival = math.exp(-1 / alpha)
        rest = (1 - probability) * survival
        whole: Numbers = probability * survival / (1 - rest)
        return whole if left is None else whole * (1 - rest ** np.maximum(left, 0))

    def __copy__(self) -> Independent:
        return _with_own(self, "_sums")


class Autoregressive:
    """Keys are whole numbers, each ``constant + phi * (the last one) + noise``, rounded: AR(1), and with phi = 1 a random walk.

    With T the chain's matrix of transitions and G = (I - e T)^-1, e = exp(-1 / alpha), the discounted first passage is
    H[x, v] = (G - I)[x, v] / G[v, v]: computed once for each alpha, for all x and v.

    Args:
        constant, phi: the equation's.
        sigma: the noise's standard deviation, normal.
        low, high: the least and the highest key; what falls beyond counts as these. The table has (high - low + 1) ** 2 numbers.

    Example:
        >>> model = Autoregressive(constant=0, phi=0.9, sigma=2, low=-20, high=20)
        >>> model.observe(10)
        >>> near, far = model.benefit(np.array([9.0, -15.0]), alpha=20, left=None)
        >>> bool(near > far)
        True
    """

    is_stable = False

    def __init__(self, constant: float, phi: float, sigma: float, low: int, high: int) -> None:
        for name, number, least in (("constant", constant, -math.inf), ("phi", phi, -math.inf), ("sigma", sigma, 0)):
            if number_from(name, number, least, above=True) == math.inf:
                raise RequestError(f"expected {name} as a finite number, got {shown(number)}")
        low = whole_number("low", _as_int(low), -_FARTHEST, _FARTHEST)
        high = whole_number("high", _as_int(high), low + 1, _FARTHEST)
        self._constant, self._phi, self._sigma = constant, phi, sigma
        self._low, self._high = low, high
        self._tables: dict[float, Numbers] = {}
        self._now = round(min(max(constant / (1 - phi) if phi != 1 else (low + high) / 2, low), high))

    @cached_property
    def transitions(self) -> Numbers:
        """The probability of each next key (column), given the last one (row)."""
        states = np.arange(self._low, self._high + 1)
        borders = np.concatenate([[-np.inf], states[:-1] + 0.5, [np.inf]])
        means = self._constant + self._phi * states
        scaled = (borders - means[:, None]) / (self._sigma * math.sqrt(2))
        below = np.array([[math.erf(value) for value in row] for row in scaled.tolist()])
        return np.diff(below, axis=1) / 2

    def table(self, alpha: float) -> Numbers:
        """H[x - low, v - low]."""
        table = self._tables.get(alpha)
        if table is None:
            chain = self.transitions
            inverse = np.linalg.inv(np.eye(len(chain)) - math.exp(-1 / alpha) * chain)
            table = self._tables[alpha] = (inverse - np.eye(len(chain))) / np.diag(inverse)
        return table

    def observe(self, key: Any) -> None:
        """The next one depends on this one only."""
        self._now = min(max(int(key), self._low), self._high)

    def number(self, key: Any) -> float:
        """See `Model.number`: the key itself."""
        return float(int(key))

    def benefit(self, numbers: Numbers, alpha: float, left: Numbers | None) -> Numbers:
        """See `Model.benefit`; a lifetime is not supported."""
        if left is not None:
            raise RequestError("expected no lifetime with the autoregressive model, got one; leave it out")
        values = numbers.astype(np.int64)
        known = (values >= self._low) & (values <= self._high)
        benefits = self.table(alpha)[self._now - self._low, np.clip(values, self._low, self._high) - self._low]
        return np.where(known, benefits, 0.0)

    def __copy__(self) -> Autoregressive:
        # The tables are shared: they follow from the parameters, and are slow to make.
        made = type(self).__new__(type(self))
        vars(made).update(vars(self))
        return made


class Known:
    """The future is known: HEEB is then OPT.

    Args:
        future: all keys in the order in which they will be asked for.

    Example:
        >>> model = Known("abcab")
        >>> for key in "abc":
        ...     model.observe(key)
        >>> numbers = np.array([model.number("a"), model.number("b")])
        >>> model.benefit(numbers, alpha=1, left=None).round(3).tolist()
        [0.368, 0.135]
    """

    is_stable = True

    def __init__(self, future: Iterable[Hashable]) -> None:
        self._next_use = next_uses(list(future))
        self._of_key: dict[Hashable, int] = {}
        self._now = -1

    def observe(self, key: Hashable) -> None:
        """One step on."""
        self._now += 1
        end = len(self._next_use)
        self._of_key[key] = self._next_use[self._now] if self._now < end else end

    def number(self, key: Hashable) -> float:
        """See `Model.number`: minus the position of the next use."""
        return -float(self._of_key.get(key, len(self._next_use)))

    def benefit(self, numbers: Numbers, alpha: float, left: Numbers | None) -> Numbers:
        """See `Model.benefit`."""
        ahead = np.where(-numbers < len(self._next_use), -numbers - self._now, np.inf)
        if left is not None:
            ahead[ahead > left] = np.inf
        benefits: Numbers = np.exp(-ahead / alpha)
        return benefits

    def __copy__(self) -> Known:
        return _with_own(self, "_of_key")


def _as_int(value: Any) -> Any:
    """NumPy's whole numbers as Python's; what is none unchanged."""
    return int(value) if isinstance(value, np.integer) else value


def _with_own(model: _T, name: str) -> _T:
    """A copy that shares what never changes."""
    made = type(model).__new__(type(model))
    vars(made).update(vars(model))
    vars(made)[name] = copy.copy(vars(model)[name])
    return made
