"""What the exact policies share: a cachetools cache that tells its policy of each use."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Self

import cachetools

if TYPE_CHECKING:
    from collections.abc import Hashable


class PolicyCache(cachetools.Cache[Any, Any], ABC):
    """A cache whose policy is four answers: what a hit changes, what an insert changes, what a removal changes, who leaves.

    Every entry counts 1, whatever its value. Storing a value under a key that is held is a hit. Not thread-safe.

    Args:
        maxsize: entries held at most.
    """

    def __init__(self, maxsize: float) -> None:
        super().__init__(maxsize)
        self._start()

    @abstractmethod
    def _start(self) -> None:
        """Begin with nothing known; `clear` too comes here."""

    @abstractmethod
    def _hit(self, key: Hashable) -> None:
        """Note a use of a key that is held."""

    @abstractmethod
    def _admit(self, key: Hashable) -> None:
        """Note a key that is now held."""

    @abstractmethod
    def _remove(self, key: Hashable) -> None:
        """Note that a key is no longer held, evicted or deleted."""

    @abstractmethod
    def _victim(self) -> Hashable:
        """The key, of at least one held, that leaves next; it is removed at once."""

    def _miss(self, key: Hashable) -> None:
        """Note a key that is going to be stored, before room is made for it."""

    def __getitem__(self, key: Hashable) -> Any:
        value = cachetools.Cache.__getitem__(self, key)
        self._hit(key)
        return value

    def __setitem__(self, key: Hashable, value: Any) -> None:
        if key in self:
            cachetools.Cache.__setitem__(self, key, value)
            self._hit(key)
            return
        if self.maxsize >= 1:
            self._miss(key)
            while len(self) + 1 > self.maxsize:
                self.popitem()
        cachetools.Cache.__setitem__(self, key, value)
        self._admit(key)

    def __delitem__(self, key: Hashable) -> None:
        cachetools.Cache.__delitem__(self, key)
        self._remove(key)

    def popitem(self) -> tuple[Any, Any]:
        """Remove and return the key and value that the policy gives up first."""
        if not len(self):
            raise KeyError(f"{type(self).__name__} is empty")
        key = self._victim()
        value = cachetools.Cache.__getitem__(self, key)
        del self[key]
        return key, value

    def clear(self) -> None:
        """Forget everything, ghosts and counts too."""
        for key in list(self):
            cachetools.Cache.__delitem__(self, key)
        self._start()

    def __copy__(self) -> Self:
        """A cache with the same entries that goes its own way from now on."""
        made = type(self).__new__(type(self))
        vars(made).update({name: _copied(value) for name, value in vars(self).items()})
        return made


def _copied(value: Any) -> Any:
    """A copy of what changes; other objects may be known by their identity."""
    return copy.copy(value) if isinstance(value, (dict, list)) or hasattr(type(value), "__copy__") else value
