"""What a policy would do on a sequence of keys: its hits and misses, exactly or as the columnar cache does it."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from srj.cache_policies.policy import Policy
from srj.cache_policies.registry import by_name, made
from srj.errors import RequestError
from srj.quantities import shown

if TYPE_CHECKING:
    from collections.abc import Hashable

    import cachetools
    import numpy.typing as npt


@dataclass(frozen=True)
class Simulation:
    """What came out.

    Attributes:
        hits, misses: references of each kind.
    """

    hits: int
    misses: int

    @property
    def miss_ratio(self) -> float:
        """Misses as a share of all references; 0 where there are none."""
        return self.misses / max(self.hits + self.misses, 1)


def simulate(
    keys: npt.NDArray[Any],
    capacity: int,
    policy: str | Policy,
    vectorised: bool = False,
    *,
    batch_size: int = 1000,
    **parameters: Any,
) -> Simulation:
    """Replay a sequence of references against a cache of so many entries.

    The vectorised form is the columnar cache itself, with exactly `capacity` ways: it has whole sets of eight, and those beyond the
    capacity are closed. It sees the keys as an operator does: a batch is probed at once, then its missing keys, made distinct,
    are stored; a key that is missing twice in one batch is therefore one miss and one hit.

    Args:
        keys: one-dimensional; whole numbers of any type, or strings; without any there are neither hits nor misses.
        capacity: entries held at most.
        policy: its name, or the policy.
        vectorised: use the policy's rule in the columnar cache instead of its exact form.
        batch_size: keys of a batch of the vectorised form.
        parameters: the policy's own, of the exact form. An offline policy is given the keys as its future.

    Raises:
        RequestError: no such policy, parameter or rule, a capacity below 1 or too large for the memory, or keys of another type.

    Example:
        >>> keys = np.array([1, 2, 3, 1, 2, 3])
        >>> simulate(keys, 2, "lru")
        Simulation(hits=0, misses=6)
        >>> simulate(keys, 2, "opt").miss_ratio
        0.6666666666666666
        >>> simulate(keys, 3, "lru", vectorised=True, batch_size=3)
        Simulation(hits=3, misses=3)
    """
    chosen = policy if isinstance(policy, Policy) else by_name(policy)
    size = _at_least_one("capacity", capacity)
    distinct, codes = _factorised(keys)
    if vectorised:
        from srj.lookup.simulated import MissCounter  # noqa: PLC0415  policies can be read and used without the cache

        if parameters:
            raise RequestError(
                f"expected no parameters for a rule, got {sorted(parameters)}; leave them out or set vectorised=False"
            )
        if chosen.rule is None:
            raise RequestError(
                f"expected a policy with a rule for vectorised=True, got {chosen.name!r}, which has only its exact form; "
                "leave vectorised out"
            )
        counter = MissCounter(size, chosen, _at_least_one("batch_size", batch_size))
        counter.take(codes)
        return Simulation(len(codes) - counter.misses, counter.misses)
    # One object a key: a dictionary then finds it by its identity.
    objects = distinct.tolist()
    sequence = [objects[code] for code in codes.tolist()]
    if chosen.offline:
        parameters = {"future": sequence, **parameters}
    hits = _replay(sequence, made(chosen, size, parameters))
    return Simulation(hits, len(sequence) - hits)


def _replay(sequence: list[Hashable], cache: cachetools.Cache[Any, Any]) -> int:
    hits = 0
    for key in sequence:
        if key in cache:
            cache[key]
            hits += 1
        else:
            cache[key] = None
    return hits


def _at_least_one(name: str, value: object) -> int:
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        number = 0
    if number < 1 or isinstance(value, bool):
        raise RequestError(f"expected {name} as a whole number of at least 1, got {shown(value)}")
    return number


def _factorised(keys: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
    """The distinct keys, and each key's position among them."""
    try:
        array = np.asarray(keys)
    except ValueError as error:
        raise RequestError(
            f"expected a one-dimensional array of whole numbers or strings, got what is no array: {error}"
        ) from error
    if array.shape == (0,):  # NumPy takes an empty list for one of floating point
        array = array.astype(np.int64)
    texts = array.dtype.kind in "UT" or (array.dtype == object and all(isinstance(key, str) for key in array.ravel()))
    if array.ndim != 1 or not (texts or np.issubdtype(array.dtype, np.integer)):
        raise RequestError(f"expected a one-dimensional array of whole numbers or strings, got {array.ndim} of {array.dtype}")
    distinct, codes = np.unique(array, return_inverse=True)
    return distinct, codes.astype(np.int64)
