"""Policies by name: those of the package and a user's own."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import TYPE_CHECKING, Any

from srj.cache_policies.arc import ARC
from srj.cache_policies.clock import CLOCK
from srj.cache_policies.fifo import FIFO
from srj.cache_policies.heeb import HEEB
from srj.cache_policies.lfu import LFU
from srj.cache_policies.life import LIFE
from srj.cache_policies.lru import LRU
from srj.cache_policies.opt import OPT
from srj.cache_policies.policy import Policy
from srj.cache_policies.prob import PROB
from srj.cache_policies.random_ import RANDOM
from srj.cache_policies.s3fifo import S3FIFO
from srj.cache_policies.sieve import SIEVE
from srj.cache_policies.twoq import TWOQ
from srj.cache_policies.wtinylfu import WTINYLFU
from srj.errors import RequestError
from srj.quantities import near_to, number_from, shown

if TYPE_CHECKING:
    from collections.abc import Mapping

    import cachetools

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
        RequestError: one of the package's policies has this name, or it is no policy.

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
    if not isinstance(policy, Policy):
        raise RequestError(f"expected a Policy, got {shown(policy)}; make one with srj.cache_policies.Policy")
    if any(own.name == policy.name and own != policy for own in _OWN):
        raise RequestError(f"expected a policy with a name of its own, got another {policy.name!r}; choose a different name")
    _policies[policy.name] = policy
    return policy


def by_name(name: str, *, with_rule: bool = False) -> Policy:
    """The policy of this name.

    Args:
        name: its name.
        with_rule: whether the error, if there is none of this name, lists only the policies that the columnar cache can follow.

    Raises:
        RequestError: there is none.

    Example:
        >>> by_name("sieve").name
        'sieve'
        >>> by_name("lruu", with_rule=True)  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        ...
        srj.errors.RequestError: expected the name of a policy (lru, fifo, lfu, ...), got 'lruu'; did you mean 'lru'?
    """
    policy = _policies.get(name) if isinstance(name, str) else None
    if policy is None:
        usable = [known.name for known in _policies.values() if known.rule is not None or not with_rule]
        near = near_to(str(name), usable)
        advice = "choose one of these" if near is None else f"did you mean {near!r}?"
        raise RequestError(f"expected the name of a policy ({', '.join(usable)}), got {shown(name)}; {advice}")
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
        RequestError: there is no such policy, it has no such parameter, or the capacity is no number from 0 on.
    """
    return made(by_name(name), capacity, parameters)


def made(policy: Policy, capacity: float, parameters: Mapping[str, Any]) -> cachetools.Cache[Any, Any]:
    """An exact cache of a policy, as `make` makes it."""
    number_from("the capacity", capacity, 0)
    try:
        cache = policy.exact(capacity, **parameters)
    except RequestError:
        raise
    except (TypeError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise RequestError(
            f"expected parameters that the policy {policy.name!r} takes, got {sorted(parameters)}: {reason}"
        ) from error
    except (OverflowError, MemoryError) as error:
        raise RequestError(
            f"expected a capacity for which the policy {policy.name!r} finds memory, got {shown(capacity)}; give a smaller one"
        ) from error
    if not isinstance(cache, MutableMapping):
        raise RequestError(f"expected exact of the policy {policy.name!r} to make a cachetools cache, got {shown(cache)}")
    return cache
