"""Policies by name: those of the package and a user's own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from srj.cache_policies.arc import ARC
from srj.cache_policies.clock import CLOCK
from srj.cache_policies.fifo import FIFO
from srj.cache_policies.heeb import HEEB
from srj.cache_policies.lfu import LFU
from srj.cache_policies.life import LIFE
from srj.cache_policies.lru import LRU
from srj.cache_policies.opt import OPT
from srj.cache_policies.prob import PROB
from srj.cache_policies.random_ import RANDOM
from srj.cache_policies.s3fifo import S3FIFO
from srj.cache_policies.sieve import SIEVE
from srj.cache_policies.twoq import TWOQ
from srj.cache_policies.wtinylfu import WTINYLFU
from srj.errors import RequestError
from srj.quantities import nearest

if TYPE_CHECKING:
    import cachetools

    from srj.cache_policies.policy import Policy

_OWN = (LRU, FIFO, LFU, RANDOM, CLOCK, SIEVE, S3FIFO, TWOQ, ARC, WTINYLFU, PROB, LIFE, HEEB, OPT)
_policies = {policy.name: policy for policy in _OWN}


def names() -> list[str]:
    """The names of all policies, in the order of their registration."""
    return list(_policies)


def register(policy: Policy) -> Policy:
    """Make a policy known by its name, in this process.

    Args:
        policy: with a name that none of the package's has; a policy of the user's own of this name is replaced.

    Returns:
        The policy.

    Raises:
        RequestError: one of the package's policies has this name.

    Example:
        A policy that gives up the newest entry, exact and as a rule for the columnar cache:

        >>> import cachetools, numpy as np
        >>> from srj.cache_policies import FIFO, Policy, register, simulate
        >>> class MostRecent(cachetools.Cache):
        ...     def popitem(self):
        ...         newest = list(self)[-1]
        ...         return newest, self.pop(newest)
        >>> class Newest(type(FIFO.rule)):
        ...     def victim(self, fields, tick):
        ...         return ~super().victim(fields, tick)
        >>> register(Policy("newest", exact=MostRecent, rule=Newest())).name
        'newest'
        >>> simulate(np.array([1, 2, 3, 1, 2, 3]), 2, "newest").misses
        5
    """
    if any(own.name == policy.name and own != policy for own in _OWN):
        raise RequestError(f"expected a policy with a name of its own, got another {policy.name!r}; choose a different name")
    _policies[policy.name] = policy
    return policy


def by_name(name: str) -> Policy:
    """The policy of this name.

    >>> by_name("sieve").name
    'sieve'

    Raises:
        RequestError: there is none.
    """
    policy = _policies.get(name)
    if policy is None:
        raise RequestError(f"expected the name of a policy, got {name!r}; {nearest(str(name), _policies)}")
    return policy


def make(name: str, capacity: float, **parameters: Any) -> cachetools.Cache[Any, Any]:
    """An exact cache of this policy.

    Args:
        name: of the policy.
        capacity: entries held at most.
        parameters: the policy's own; ``opt`` needs its ``future``.

    Example:
        >>> cache = make("lru", 2)
        >>> cache["a"] = cache["b"] = cache["c"] = 0
        >>> sorted(cache)
        ['b', 'c']

    Raises:
        RequestError: there is no such policy, or it has no such parameter.
    """
    policy = by_name(name)
    try:
        return policy.exact(capacity, **parameters)
    except TypeError as error:
        raise RequestError(f"expected parameters that the policy {name!r} takes, got {sorted(parameters)}: {error}") from error
