"""2Q: a key has to come back after it left before it is taken for one that is used often."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from srj.cache_policies.bookkeeping import PolicyCache
from srj.cache_policies.policy import Policy

if TYPE_CHECKING:
    from collections.abc import Hashable


class TwoQCache(PolicyCache):
    """The full version of 2Q (Johnson and Shasha, VLDB 1994).

    Their paper is "2Q: a low overhead high performance buffer management replacement algorithm". A new key enters A1in, a queue of
    a quarter of the capacity, where hits change nothing. Who leaves it is remembered in A1out, keys without values, half the
    capacity. A key that is found there enters Am, an LRU list of the rest. A1in gives up its oldest while it is longer than its
    share, else Am its least recently used. O(1). It has no vectorised rule: a set of ways can't keep queues of given lengths,
    nor ghosts.

    Args:
        maxsize: entries held at most.

    Example:
        >>> cache = TwoQCache(4)
        >>> for key in "abcde":
        ...     cache[key] = 0
        >>> cache["a"] = 0
        >>> sorted(cache), cache.frequent
        (['a', 'c', 'd', 'e'], ['a'])
    """

    def _start(self) -> None:
        size = int(self.maxsize)
        self._in_size, self._out_size = int(size * 0.25), int(size * 0.5)
        self._in: OrderedDict[Hashable, None] = OrderedDict()
        self._out: OrderedDict[Hashable, None] = OrderedDict()
        self._am: OrderedDict[Hashable, None] = OrderedDict()
        self._was_out = False

    @property
    def frequent(self) -> list[Hashable]:
        """The keys in Am, least recently used first."""
        return list(self._am)

    def _hit(self, key: Hashable) -> None:
        if key in self._am:
            self._am.move_to_end(key)

    def _miss(self, key: Hashable) -> None:
        self._was_out = key in self._out
        if self._was_out:
            del self._out[key]

    def _admit(self, key: Hashable) -> None:
        (self._am if self._was_out else self._in)[key] = None

    def _remove(self, key: Hashable) -> None:
        (self._am if key in self._am else self._in).pop(key)

    def _victim(self) -> Hashable:
        if len(self._in) <= self._in_size and self._am:
            return next(iter(self._am))
        key = next(iter(self._in))
        if self._out_size:
            if len(self._out) >= self._out_size:
                self._out.popitem(last=False)
            self._out[key] = None
        return key


TWOQ = Policy("twoq", exact=TwoQCache)
