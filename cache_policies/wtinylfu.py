"""W-TinyLFU: who leaves a small window enters the main cache only if it was asked for more often than who would leave that."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from srj.cache_policies.bookkeeping import PolicyCache
from srj.cache_policies.policy import Policy
from srj.cache_policies.sketch import CountMinSketch

if TYPE_CHECKING:
    from collections.abc import Hashable

    Keys = OrderedDict[Hashable, None]


class WTinyLfuCache(PolicyCache):
    """W-TinyLFU (Einziger, Friedman and Manes, "TinyLFU: a highly efficient cache admission policy", ACM TOS 2017).

    The window is an LRU list of 1 % of the capacity, at least one entry. The main cache is a segmented LRU list: a key enters its
    probation part, a hit there moves it to the protected part (80 % of the main cache), whose least recently used goes back to
    probation when it is too long. The frequencies are a count-min sketch's, halved every 10 references an entry. The window's least
    recently used enters if its frequency is higher than that of the main cache's victim; else it leaves. O(1). It has no vectorised
    rule: a rule must place every new entry, and has no memory for a sketch.

    Args:
        maxsize: entries held at most.

    Example:
        >>> cache = WTinyLfuCache(3)
        >>> for key in "aabbcdcdefgh":
        ...     cache[key] = 0
        >>> sorted(cache)
        ['a', 'b', 'h']
    """

    def _start(self) -> None:
        size = int(self.maxsize)
        self._window_size = max(int(size * 0.01), 1)
        self._main_size = size - self._window_size
        self._protected_size = int(self._main_size * 0.8)
        self._window: Keys = OrderedDict()
        self._probation: Keys = OrderedDict()
        self._protected: Keys = OrderedDict()
        self._sketch = CountMinSketch(max(size, 1))

    def _hit(self, key: Hashable) -> None:
        self._sketch.add(key)
        if key in self._window:
            self._window.move_to_end(key)
        elif key in self._protected:
            self._protected.move_to_end(key)
        elif self._protected_size:
            del self._probation[key]
            self._protected[key] = None
            if len(self._protected) > self._protected_size:
                self._probation[self._protected.popitem(last=False)[0]] = None
        else:
            self._probation.move_to_end(key)

    def _miss(self, key: Hashable) -> None:
        self._sketch.add(key)

    def _admit(self, key: Hashable) -> None:
        self._window[key] = None
        if len(self._window) > self._window_size:
            self._probation[self._window.popitem(last=False)[0]] = None

    def _remove(self, key: Hashable) -> None:
        for part in (self._window, self._probation, self._protected):
            if key in part:
                del part[key]
                return

    def _victim(self) -> Hashable:
        main = self._probation or self._protected
        if not self._window or not main:
            return next(iter(self._window or main))
        candidate, victim = next(iter(self._window)), next(iter(main))
        if self._sketch.count(candidate) <= self._sketch.count(victim):
            return candidate
        del self._window[candidate]
        self._probation[candidate] = None
        return victim


WTINYLFU = Policy("wtinylfu", exact=WTinyLfuCache)
