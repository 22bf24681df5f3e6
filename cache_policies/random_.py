"""RANDOM: any entry leaves, each as likely as the others."""

from __future__ import annotations

import random

import cachetools

from srj.cache_policies.policy import Policy


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


RANDOM = Policy("random", exact=RandomCache)
