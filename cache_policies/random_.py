"""RANDOM: any entry leaves, each as likely as the others."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import cachetools
import numpy as np

from srj.cache_policies.policy import Policy

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

    from srj.cache_policies.policy import Fields

_MIX = (np.uint32(0x9E3779B1), np.uint32(0x85EBCA6B), np.uint32(0xC2B2AE35))
_SHIFT = np.uint32(15)


class RandomCache(cachetools.RRCache[object, object]):
    """Random replacement, the same from run to run.

    Args:
        maxsize: entries held at most.
        seed: of the random numbers.

    Example:
        >>> cache = RandomCache(2)
        >>> cache["a"] = cache["b"] = cache["c"] = 0
        >>> len(cache), "c" in cache
        (2, True)
    """

    def __init__(self, maxsize: float, seed: int = 0) -> None:
        super().__init__(maxsize, choice=random.Random(seed).choice)  # noqa: S311  not a secret


class Drawn:
    """The vectorised rule: each entry is given a number by its way and tick; mixed with the present tick it draws the victim."""

    @property
    def fields(self) -> Mapping[str, np.dtype[Any]]:
        """One 32-bit number."""
        return {"number": np.dtype(np.uint32)}

    def on_hit(self, fields: Fields, ways: npt.NDArray[np.int64], ticks: npt.NDArray[np.uint32]) -> None:
        """A hit changes nothing."""

    def on_insert(self, fields: Fields, ways: npt.NDArray[np.int64], ticks: npt.NDArray[np.uint32]) -> None:
        """A number of its own."""
        fields["number"][ways] = _mixed(ways.astype(np.uint32) * _MIX[0] ^ ticks)

    def victim(self, fields: Fields, tick: int) -> npt.NDArray[np.uint32]:
        """A new draw at each tick."""
        return _mixed(fields["number"] ^ np.uint32(tick * int(_MIX[0]) & 0xFFFFFFFF))


def _mixed(numbers: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    for factor in _MIX[1:]:
        numbers = (numbers ^ (numbers >> _SHIFT)) * factor
    return numbers ^ (numbers >> _SHIFT)


RANDOM = Policy("random", exact=RandomCache, rule=Drawn())
