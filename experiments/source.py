"""A stream whose rows fall due at a constant rate, and how many of them wait."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import numpy.typing as npt

    I64 = npt.NDArray[np.int64]

_TICK = 0.001  # seconds between two pieces of a stream whose rows are more frequent
_PIECE = 0.02  # seconds of the stream in a piece, at most: who is too slow learns soon that the trial is over
_LARGEST = 10_000  # rows of a piece, as in Spark's batches
GIVEN_PIECE = 1000  # rows
_AT_ONCE = 1e9  # rows a second, more than anything carries
_HOPELESS = 8  # times the growth that is allowed: no pause of the machine explains it


@dataclass(frozen=True)
class Trial:
    """An input rate to be tried.

    Attributes:
        rate: rows a second.
        seconds: that it lasts.
        waiting: rows that wait at its beginning, so that lookups are full from then on.
        growth: rows more that may wait at its end.
    """

    rate: float
    seconds: float
    waiting: int
    growth: int


class PacedSource:
    """The rows of a trial. Iterated once, by the thread that says with `leave` how many have left the join.

    Args:
        keys: of the stream, which goes round.
        start: the position of the first.
        trial: the rate, and how long.
        clock: seconds.
        sleep: waits so many seconds.

    Attributes:
        taken, left: rows that were taken from it, and that have left the join.
        waiting_at_end: rows that had come and not left when the trial ended.
    """

    def __init__(
        self,
        keys: I64,
        start: int,
        trial: Trial,
        *,
        clock: Callable[[], float] = time.perf_counter,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._keys, self._start, self.trial = keys, start, trial
        self._clock, self._sleep = clock, sleep
        self._piece = int(min(max(trial.rate * _PIECE, 1), _LARGEST))
        self._begun: float | None = None
        self.taken = self.left = 0
        self.waiting_at_end: int | None = None
        self._has_ended = False

    @property
    def is_carried(self) -> bool:
        """Whether the trial has ended, and no more rows waited than are allowed."""
        return self.waiting_at_end is not None and self.waiting_at_end <= self.trial.waiting + self.trial.growth

    def __iter__(self) -> Iterator[I64]:
        self._begun = self._clock()
        while not self._look():
            due = self._due() - self.taken
            if due <= 0:
                self._sleep(max(_TICK, 1 / self.trial.rate))
                continue
            count = min(due, self._piece)
            positions = np.arange(self._start + self.taken, self._start + self.taken + count)
            self.taken += count
            yield self._keys.take(positions, mode="wrap")

    def leave(self, rows: int) -> None:
        """So many rows have left the join."""
        self._look()
        self.left += rows

    def given(self) -> I64:
        """All rows that were taken."""
        return self._keys.take(np.arange(self._start, self._start + self.taken), mode="wrap")

    def _due(self) -> int:
        elapsed = 0.0 if self._begun is None else self._clock() - self._begun
        return self.trial.waiting + int(self.trial.rate * min(elapsed, self.trial.seconds))

    def _look(self) -> bool:
        """Whether the trial has ended; nothing has left since the last time, so what waited at its end waits now."""
        if self._has_ended:
            return True
        waiting = self._due() - self.left
        is_hopeless = waiting > self.trial.waiting + _HOPELESS * self.trial.growth
        is_over = self._begun is not None and self._clock() - self._begun >= self.trial.seconds
        if is_hopeless or is_over:
            self._has_ended = True
            self.waiting_at_end = waiting
        return self._has_ended


class GivenSource(PacedSource):
    """So many rows, all there from the beginning; in small pieces, for a small queue.

    Args:
        keys: of the stream, which goes round.
        start: the position of the first.
        rows: how many.
    """

    def __init__(self, keys: I64, start: int, rows: int) -> None:
        super().__init__(keys, start, Trial(_AT_ONCE, 0.0, rows, 0))

    def __iter__(self) -> Iterator[I64]:
        while self.taken < self.trial.waiting:
            count = min(GIVEN_PIECE, self.trial.waiting - self.taken)
            positions = np.arange(self._start + self.taken, self._start + self.taken + count)
            self.taken += count
            yield self._keys.take(positions, mode="wrap")
