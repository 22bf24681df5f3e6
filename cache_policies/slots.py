"""Keys at positions 0 to n-1, so that what is known of them can stand in arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Hashable

    import numpy.typing as npt


class Slots:
    """A set of keys, each with a row of numbers; a removed key's place is taken by the last one.

    Args:
        widths: numbers a key.

    Example:
        >>> slots = Slots(1)
        >>> slots.add("a", 1.0)
        >>> slots.add("b", 2.0)
        >>> slots.remove("a")
        >>> slots.keys, slots.numbers.tolist()
        (['b'], [[2.0]])
    """

    def __init__(self, widths: int) -> None:
        self.keys: list[Hashable] = []
        self._at: dict[Hashable, int] = {}
        self._numbers = np.zeros((16, widths))

    @property
    def numbers(self) -> npt.NDArray[np.float64]:
        """Shape (keys, widths), in the order of `keys`; a view."""
        return self._numbers[: len(self.keys)]

    def __contains__(self, key: Hashable) -> bool:
        return key in self._at

    def add(self, key: Hashable, *numbers: float) -> None:
        """Add a new key."""
        at = self._at[key] = len(self.keys)
        self.keys.append(key)
        if at == len(self._numbers):
            self._numbers = np.concatenate([self._numbers, np.zeros_like(self._numbers)])
        self._numbers[at] = numbers

    def set(self, key: Hashable, column: int, number: float) -> None:
        """Change one of a key's numbers."""
        self._numbers[self._at[key], column] = number

    def remove(self, key: Hashable) -> None:
        """Take a key out."""
        at, last = self._at.pop(key), self.keys.pop()
        if last != key:
            self.keys[at] = last
            self._at[last] = at
            self._numbers[at] = self._numbers[len(self.keys)]

    def __copy__(self) -> Self:
        made = type(self).__new__(type(self))
        vars(made).update({name: value.copy() for name, value in vars(self).items()})
        return made
