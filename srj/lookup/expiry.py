"""Stamps: when the lookup behind an entry started, and until when the entry may be used."""

from __future__ import annotations

from math import floor
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    I64 = npt.NDArray[np.int64]

_TICKS = 2**20  # a second; about a microsecond each
_LONGEST = 2**40  # seconds, 34,000 years: more would leave the stamps' 63 bits
_EVER = np.iinfo(np.int64).min
NO_END = np.iinfo(np.int64).max


class Expiry:
    """Turns times into stamps: 64-bit numbers that hold the start of a lookup and, in the lowest bit, that it found no row.

    Args:
        ttl, missing_ttl: seconds that an entry with rows (without any) may be used, from the start of its lookup; None: for ever.
    """

    def __init__(self, ttl: float | None, missing_ttl: float | None) -> None:
        self._lives = [None if seconds is None else floor(min(seconds, _LONGEST) * _TICKS) for seconds in (ttl, missing_ttl)]
        self.is_needed = ttl is not None or missing_ttl is not None
        self.shortest = min((life for life in self._lives if life is not None), default=_LONGEST) << 1  # as a difference of stamps

    @staticmethod
    def stamp(time: float) -> int:
        """The stamp of an entry with rows, found by a lookup that started at `time` (seconds)."""
        return floor(time * _TICKS) << 1

    def alive_from(self, now: int) -> I64:
        """The lowest stamps of entries with rows and of entries without that may be used at the stamp `now`."""
        return np.array([_EVER if life is None else ((now >> 1) - life + 1) << 1 for life in self._lives], np.int64)

    def alive_to(self, stamps: I64) -> int:
        """The last stamp `now` at which all entries of these stamps may be used.

        >>> expiry, stamps = Expiry(2.0, None), np.array([0])
        >>> last = expiry.alive_to(stamps)
        >>> [bool(expiry.alive(stamps, now).all()) for now in (last, last + 1)]
        [True, False]
        """
        latest = int(NO_END)
        for of_kind, life in zip((stamps[stamps & 1 == 0], stamps[stamps & 1 == 1]), self._lives, strict=True):
            if of_kind.size and life is not None:
                latest = min(latest, (((int(of_kind.min()) >> 1) + life) << 1) - 1)
        return latest

    def alive(self, stamps: I64, now: int) -> npt.NDArray[np.bool_]:
        """Whether entries of these stamps may be used at the stamp `now`."""
        with_rows, without = self.alive_from(now)
        alive: npt.NDArray[np.bool_] = stamps >= with_rows
        if with_rows != without:
            negative = np.flatnonzero(stamps & 1)
            alive[negative] = stamps[negative] >= without
        return alive
