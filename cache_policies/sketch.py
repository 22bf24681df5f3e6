"""A count-min sketch: about how often each of very many keys was seen lately, in a few bytes a key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Hashable

_MOST = 15  # what a counter of four bits holds
_COUNTERS_PER_ENTRY = 4
_LEAST_BITS = 10  # of a row's length: in 4 KB the sketch of a tiny cache hardly errs
_AGING = 10  # references an entry until all counters are halved
_MASK = 2**64 - 1
_SEEDS = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x27D4EB2F165667C5)
_HALVES = bytes(value >> 1 for value in range(256))


class CountMinSketch:
    """Four rows of counters up to 15; a key's count is the least of its four, so never too low before the first halving.

    Args:
        entries: entries of the cache it is for.

    Example:
        >>> sketch = CountMinSketch(100)
        >>> for _ in range(3):
        ...     sketch.add("a")
        >>> sketch.count("a"), sketch.count("b")
        (3, 0)
    """

    def __init__(self, entries: int) -> None:
        self._shift = 64 - max((_COUNTERS_PER_ENTRY * entries - 1).bit_length(), _LEAST_BITS)
        self._rows = [bytearray(1 << (64 - self._shift)) for _ in _SEEDS]
        self._until_aging = self._period = _AGING * entries

    def add(self, key: Hashable) -> None:
        """Count a reference."""
        number, shift = hash(key) & _MASK, self._shift
        number ^= number >> 32
        for row, seed in zip(self._rows, _SEEDS, strict=True):
            at = (number * seed & _MASK) >> shift
            if row[at] < _MOST:
                row[at] += 1
        self._until_aging -= 1
        if not self._until_aging:
            self._until_aging = self._period
            self._rows = [row.translate(_HALVES) for row in self._rows]

    def count(self, key: Hashable) -> int:
        """About how often it was added lately."""
        number, shift = hash(key) & _MASK, self._shift
        number ^= number >> 32
        return min(row[(number * seed & _MASK) >> shift] for row, seed in zip(self._rows, _SEEDS, strict=True))

    def __copy__(self) -> Self:
        made = type(self).__new__(type(self))
        vars(made).update({**vars(self), "_rows": [row.copy() for row in self._rows]})
        return made
