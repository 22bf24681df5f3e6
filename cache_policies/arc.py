"""ARC: an LRU list of keys seen once and one of keys seen again; what would have been hits moves the border between them."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from srj.cache_policies.bookkeeping import PolicyCache
from srj.cache_policies.policy import Policy

if TYPE_CHECKING:
    from collections.abc import Hashable

    Keys = OrderedDict[Hashable, None]


class ArcCache(PolicyCache):
    """ARC (Megiddo and Modha, "ARC: a self-tuning, low overhead replacement cache", FAST 2003, figure 4).

    T1 holds keys seen once, T2 keys seen again; B1 and B2 remember what left them. A key found in B1 raises T1's target size p,
    one found in B2 lowers it, by real division and at least by 1. T1 gives up its least recently used if it is longer than p,
    or as long and the key was in B2; else T2. O(1). It has no vectorised rule: a set of ways has no ghosts to learn from.

    Args:
        maxsize: entries held at most.

    Example:
        >>> cache = ArcCache(2)
        >>> cache["a"] = cache["b"] = 0
        >>> _ = cache["a"]
        >>> cache["c"] = cache["b"] = 0
        >>> sorted(cache), cache.target
        (['b', 'c'], 1.0)
    """

    def _start(self) -> None:
        self._size = int(self.maxsize)
        self._t1: Keys = OrderedDict()
        self._t2: Keys = OrderedDict()
        self._b1: Keys = OrderedDict()
        self._b2: Keys = OrderedDict()
        self._target = 0.0
        self._was_ghost = self._was_b2 = self._is_filling = False

    @property
    def target(self) -> float:
        """T1's target size, p in the paper."""
        return self._target

    def _hit(self, key: Hashable) -> None:
        self._t1.pop(key, None)
        self._t2[key] = None
        self._t2.move_to_end(key)

    def _miss(self, key: Hashable) -> None:
        b1, b2, size = self._b1, self._b2, self._size
        self._was_b2 = key in b2
        self._was_ghost = self._was_b2 or key in b1
        if self._was_b2:
            self._target = max(0.0, self._target - max(1.0, len(b1) / len(b2)))
            del b2[key]
        elif self._was_ghost:
            self._target = min(float(size), self._target + max(1.0, len(b2) / len(b1)))
            del b1[key]
        elif len(self._t1) + len(b1) >= size:
            if b1:
                b1.popitem(last=False)
            else:
                # T1 fills the whole cache: its oldest leaves and is not remembered.
                self._is_filling = True
        elif len(self) + len(b1) + len(b2) >= 2 * size:
            b2.popitem(last=False)

    def _admit(self, key: Hashable) -> None:
        (self._t2 if self._was_ghost else self._t1)[key] = None
        self._was_ghost = self._was_b2 = self._is_filling = False

    def _remove(self, key: Hashable) -> None:
        (self._t1 if key in self._t1 else self._t2).pop(key)

    def _victim(self) -> Hashable:
        t1 = self._t1
        if self._is_filling:
            return next(iter(t1))
        if t1 and (not self._t2 or len(t1) > self._target or (self._was_b2 and len(t1) == self._target)):
            key = next(iter(t1))
            self._b1[key] = None
        else:
            key = next(iter(self._t2))
            self._b2[key] = None
        return key


ARC = Policy("arc", exact=ArcCache)
