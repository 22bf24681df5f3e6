"""The pattern query ``A+ -> B{m,}`` over (MaxSRD, StackSize): is there a size beyond which more cache buys nothing?

MaxSRD is the largest finite stack reuse distance so far, StackSize the number of distinct keys so far. A: MaxSRD rises. B: MaxSRD
stays and StackSize rises, which is what a stream does whose keys are local and whose locality moves on.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    I64 = npt.NDArray[np.int64]
    F64 = npt.NDArray[np.float64]

_REPEATS = 3.0  # times MaxSRD: of n keys, 2.9 n references have come again by the time at which a distance of 0.98 n does
# Times the root of the memory: of keys in no order, out of as many as memory holds, 12 have come again by then (their birthdays).
_FEWEST = 5.0
_COVERED = 0.85  # of the known keys: of n in no order so many come in 2 n references, less what is chance
_LONG = 32.0  # times the floor in references: by then it says nothing more; times the keys: by then the others come no more
_MOST_WAITING = 65_536  # references


class Phase(Enum):
    """Where the query stands.

    Attributes:
        SEARCHING: neither found nor given up.
        MATCHED: A, then m times B.
        CLOSED: neither MaxSRD nor StackSize has risen for long: all keys are known, as in a loop.
        FULL: StackSize has reached what memory can hold; there is no bound below it.
    """

    SEARCHING = "searching"
    MATCHED = "matched"
    CLOSED = "closed"
    FULL = "full"


@dataclass
class State:
    """What the matcher remembers.

    Attributes:
        phase: see `Phase`.
        max_srd: largest finite distance so far, -1 for none.
        stack_size: distinct keys so far.
        stack_at_rise: `stack_size` when `max_srd` last rose.
        repeats: references since then whose key was known and not the last one's; as of all keys, where they are sampled.
        quiet: references since either rose.
        references: all so far.
    """

    phase: Phase = Phase.SEARCHING
    max_srd: float = -1.0
    stack_size: float = 0.0
    stack_at_rise: float = 0.0
    repeats: float = 0.0
    quiet: float = 0.0
    references: float = 0.0


class Pattern:
    """The query as an incremental matcher: it is fed distances and stops by itself.

    Args:
        memory: entries that memory can hold; where StackSize reaches them the query gives up.
        growth: m, the length of B: by what share StackSize must grow after MaxSRD last rose.
        repeats: known keys that must have come during B, after other keys, so that a stream which hardly repeats is not taken
            for one that moves on; three times as many as MaxSRD at least, for a query that begins late in an interval has seen
            no large distances yet.
        quiet: rounds over all keys without a rise of either, after which the query is `CLOSED`, if most keys have come in them.
        floor: a distance that was seen before the query began: it ends at a smaller one only after 1 + m times as many keys, or as
            long a quiet as so many keys would need, or 32 times as many references.

    However few keys have come, the next may be of thousands: a query that has seen fewer than five times the root of the memory
    ends at nothing.

    Example:
        >>> import numpy as np
        >>> from srj.sizing import reuse_distances
        >>> keys = np.concatenate([100 * part + np.tile(np.arange(100), 5) for part in range(9)])
        >>> pattern = Pattern(memory=10_000)
        >>> pattern.add(reuse_distances(keys)), pattern.bound, pattern.state.stack_size
        (<Phase.MATCHED: 'matched'>, 100, 500.0)
    """

    def __init__(self, memory: int, *, growth: float = 0.5, repeats: int = 100, quiet: float = 2.0, floor: float = 0.0) -> None:
        self.memory, self.growth, self.repeats, self.quiet, self.floor = memory, growth, repeats, quiet, floor
        self.state, self._coverage = State(), _Coverage()

    @property
    def bound(self) -> int | None:
        """The cache's upper bound in entries, MaxSRD + 1; None while searching and where there is none below the memory."""
        found = self.state.phase in {Phase.MATCHED, Phase.CLOSED}
        return int(np.ceil(self.state.max_srd)) + 1 if found else None

    def add(self, distances: npt.NDArray[np.int64] | F64, weight: float = 1.0) -> Phase:
        """Take the distances of the next references; nothing happens once the query has stopped.

        Args:
            distances: other keys since the last reference to the same key, -1 for a first touch; scaled, if sampled.
            weight: references, and keys, that each stands for.

        Returns:
            The phase after them.
        """
        state = self.state
        if state.phase is not Phase.SEARCHING or not distances.size:
            return state.phase
        steps = np.arange(1, distances.size + 1)
        new = distances < 0
        stack = state.stack_size + weight * np.cumsum(new)
        largest = np.maximum.accumulate(np.maximum(distances, state.max_srd))
        rises = largest > np.append(state.max_srd, largest[:-1])
        at_rise = np.maximum.accumulate(np.where(rises, stack, state.stack_at_rise))
        # What comes twice running hits in any cache.
        repeats = weight * _since(distances > 0, rises, state.repeats / weight)
        quiet = weight * _since(np.ones(new.size, np.bool_), rises | new, state.quiet / weight)
        are_enough = repeats >= np.maximum(self.repeats * weight, _REPEATS * largest)
        fewest, floor = _FEWEST * self.memory**0.5, self._floor_after(np.asarray(weight * steps, np.float64))
        matched = (largest >= 0) & are_enough & (stack >= np.maximum(fewest, (1 + self.growth) * np.maximum(at_rise, floor)))
        closed = (largest >= 0) & (quiet >= np.maximum(fewest, self.quiet * np.maximum(stack, floor)))
        if closed.any():
            # What came once, before a loop began, is never covered.
            is_over = quiet >= _LONG * np.maximum(stack, floor)
            closed &= is_over | (self._coverage.at(distances, new, closed, weight) >= _COVERED * stack)
        else:
            self._coverage.skip(distances, new, weight)
        full = stack >= self.memory
        stops = np.flatnonzero(matched | closed | full)
        end = int(stops[0]) if stops.size else distances.size - 1
        state.max_srd, state.stack_size, state.stack_at_rise = float(largest[end]), float(stack[end]), float(at_rise[end])
        state.repeats, state.quiet = float(repeats[end]), float(quiet[end])
        state.references += weight * float(steps[end])
        if stops.size:
            state.phase = Phase.MATCHED if matched[end] else Phase.CLOSED if closed[end] else Phase.FULL
        return state.phase

    def _floor_after(self, references: F64) -> F64:
        return np.where(self.state.references + references < _LONG * self.floor, self.floor, 0.0)


class _Coverage:
    """How many keys have come since the last new one; counted only for whom it is asked, as most queries never do.

    A reference is its key's first in that time if and only if its distance is no less than their number. In the count each key is
    one step of a loop, each time that all have come.
    """

    def __init__(self) -> None:
        self._count, self._held = 0.0, 0
        self._waiting: list[tuple[npt.NDArray[np.int64] | F64, float]] = []

    def skip(self, distances: npt.NDArray[np.int64] | F64, new: npt.NDArray[np.bool_], weight: float) -> None:
        """Go on past these references, each of which stands for so many keys."""
        start = int(np.flatnonzero(new)[-1]) if new.any() else -1
        if start >= 0:
            self._count, self._waiting, self._held = weight, [], 0
        self._waiting.append((distances[start + 1 :], weight))
        self._held += distances.size - start - 1
        if self._held > _MOST_WAITING:
            self._catch_up()

    def at(
        self, distances: npt.NDArray[np.int64] | F64, new: npt.NDArray[np.bool_], asked: npt.NDArray[np.bool_], weight: float
    ) -> F64:
        """The number up to and with each place where it is asked, and the last; at others it may be 0."""
        self._catch_up()
        covered, ends = np.zeros(distances.size), np.append(np.flatnonzero(new), distances.size)
        for number in np.unique(np.append(np.searchsorted(ends, np.flatnonzero(asked), side="right"), ends.size - 1)).tolist():
            start, end = (int(ends[number - 1]) if number else 0), int(ends[number])
            if number:
                self._count = weight
            covered[start:end] = self._counted(distances[start:end], weight)
        return covered

    def _catch_up(self) -> None:
        for distances, weight in self._waiting:
            self._counted(distances, weight)
        self._waiting, self._held = [], 0

    def _counted(self, distances: npt.NDArray[np.int64] | F64, weight: float) -> F64:
        """The number at each of these places, none of which is new but, it may be, the first; it counts already."""
        steps = np.zeros(distances.size)
        for place in np.flatnonzero(distances >= self._count).tolist():
            if distances[place] >= self._count:
                self._count += weight
                steps[place] = weight
        return np.asarray(self._count - steps.sum() + np.cumsum(steps))


def _since(counted: npt.NDArray[np.bool_], resets: npt.NDArray[np.bool_], before: float) -> F64:
    """How many were counted after the last reset, up to and with each place; `before` of them earlier."""
    total = before + np.cumsum(counted)
    base: F64 = np.maximum.accumulate(np.where(resets, total, 0.0))
    return total - base
