"""A heap of keys whose priorities change: the lowest is found in O(log n)."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Hashable

_LEAST_CLEANUP = 64


class KeyHeap:
    """The lowest of a set of keys by a priority; equal ones leave in the order in which they were last set.

    Example:
        >>> heap = KeyHeap()
        >>> for key, priority in (("a", 2), ("b", 1), ("c", 1), ("b", 3)):
        ...     heap.set(key, priority)
        >>> heap.lowest()
        'c'
    """

    def __init__(self) -> None:
        self._heap: list[tuple[Any, int, Hashable]] = []
        self._serial: dict[Hashable, int] = {}
        self._sets = 0

    def set(self, key: Hashable, priority: Any) -> None:
        """Add a key, or give it another priority."""
        self._sets += 1
        self._serial[key] = self._sets
        heapq.heappush(self._heap, (priority, self._sets, key))
        # What is out of date stays until it comes to the top or outnumbers the rest.
        if len(self._heap) > 4 * len(self._serial) + _LEAST_CLEANUP:
            self._heap = [entry for entry in self._heap if self._serial.get(entry[2]) == entry[1]]
            heapq.heapify(self._heap)

    def remove(self, key: Hashable) -> None:
        """Take a key out."""
        del self._serial[key]

    def lowest(self) -> Hashable:
        """The key of the lowest priority; there must be one."""
        while self._serial.get(self._heap[0][2]) != self._heap[0][1]:
            heapq.heappop(self._heap)
        return self._heap[0][2]

    def __copy__(self) -> Self:
        made = type(self)()
        vars(made).update(_heap=self._heap.copy(), _serial=self._serial.copy(), _sets=self._sets)
        return made
