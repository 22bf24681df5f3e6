"""How many keys go into a lookup, and how many lookups are sent at a time: as the user says, or as their costs tell.

The size comes from the cost model: the smallest at which a key costs hardly more than in an endless batch, within the limits. The
number in flight is tried out, for what a database does with several lookups at a time no line tells: twice as many, or half as
many, are kept where they answer more keys a second. A trial takes a few lookups, and comes ever less often.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from srj.lookup.cost import CostModel, Line

if TYPE_CHECKING:
    import numpy.typing as npt

    from srj.options import Batch

FIRST_SIZE = 1000  # before anything is known; near the best for a database nearby
_EXCESS = 0.02  # what a key may cost more than in an endless batch
_OWN = 0.0004  # seconds that srj itself takes for a lookup, whatever its size
_LEAST_AUTO = 100  # no database answers smaller lookups so much faster that these would pay; lines through noise may say so
_PROBES = 4  # how much smaller than the best a lookup is that shows what size costs
_PROBE_EVERY = 16
_FIRST_PROBE_EVERY = 3
_AHEAD = 2  # lookups to be cut from what is waiting, for each connection
_SAME = 1.5  # sizes that differ by no more are as good as equal
_SHARE_OF_TIMEOUT = 0.25
_WINDOW = 8  # lookups that tell how fast a number in flight is, at least; four a connection
_BETTER = 1.04  # times as many keys a second make up for twice as many connections
_BETTER_WITH_FEWER = 1.03  # and so many times as many are a reason for half as many; less, in either case, may be noise
_REST = 8  # windows until the next trial; twice as many after each that changed nothing
_LONGEST_REST = 64
_MORE_AFTER = 100  # lookups until one connection more is tried than could be had


class Limits(NamedTuple):
    """What holds whatever the costs are.

    Attributes:
        least, most: keys in a lookup.
        seconds: that a lookup may take.
        least_in_flight, most_in_flight: lookups at a time.
    """

    least: int
    most: int
    seconds: float
    least_in_flight: int
    most_in_flight: int

    @staticmethod
    def of(batch: Batch, lookup_timeout: float) -> Limits:
        """Those of the settings."""
        seconds = lookup_timeout * _SHARE_OF_TIMEOUT
        return Limits(*batch.sizes, min(seconds, batch.goal or math.inf), *batch.flights)


class Batching:
    """The size of the next lookup and the number in flight. Used in one process, by several threads.

    Args:
        limits: of both.
        memory: of the cost model (`CostModel.WORDS` numbers) and one more, the number in flight; shared or one's own.
    """

    WORDS = CostModel.WORDS + 1

    def __init__(self, limits: Limits, memory: npt.NDArray[np.float64] | None = None) -> None:
        self._limits = limits
        self._has_one_size = limits.least == limits.most
        self._is_fixed = self._has_one_size and limits.least_in_flight == limits.most_in_flight
        memory = np.zeros(self.WORDS) if memory is None else memory
        self.model, self._shared = CostModel(memory[:-1]), memory[-1:]
        self._ceiling, self._until_more = limits.most_in_flight, _MORE_AFTER
        self._filled = 0
        self._usual = self._trial_size = 0.0  # the latest size, and the one with which the number in flight is tried out
        self._trials = _Trials(limits.least_in_flight, limits.most_in_flight)
        if not self._shared[0]:
            self._shared[0] = min(max(2, limits.least_in_flight), limits.most_in_flight)

    def detach(self) -> None:
        """Go on with a copy of the memory, which is about to end."""
        self.model.detach()
        self._shared = self._shared.copy()

    def attach(self, memory: npt.NDArray[np.float64]) -> None:
        """Go on in other memory, which holds the same numbers."""
        self.model.attach(memory[:-1])
        self._shared = memory[-1:]

    @property
    def in_flight(self) -> int:
        """Lookups to be sent at a time."""
        # In this order, whatever stands in the map, NaN included.
        return int(min(self._ceiling, self._limits.most_in_flight, max(self._limits.least_in_flight, float(self._shared[0]))))

    def size(self, most: int, waiting: int = 0, idle: int = 0) -> int:
        """Keys to be put into the next lookup.

        Args:
            most: by the memory that their rows take.
            waiting: keys that are to be sent now; they are shared among connections that are idle.
            idle: how many these are.
        """
        limits = self._limits
        if self._has_one_size:
            return min(limits.most, most)
        line = self.model.line() if self.model.is_known else None
        self._filled += 1
        best, roof = self._best(line, waiting, idle), min(self._most(line), most)
        if self._filled % (_PROBE_EVERY if self.model.is_sure else _FIRST_PROBE_EVERY) == 1:
            # None where all that may be is far below the best, unless these take too long: of one size only, they don't tell why.
            is_slow = line is not None and not self.model.is_sure and line(roof) > limits.seconds
            best = min(best, 2 * roof) / _PROBES if is_slow else best / _PROBES
        else:
            # Lookups are cut before they can be sent, and can't be made larger then: many small ones would keep others back.
            best = max(best, waiting / (_AHEAD * self.in_flight))
            self._usual = min(best, limits.most, most)
        return max(1, min(int(max(min(best, roof), limits.least)), most))

    def _most(self, line: Line | None) -> float:
        """The most keys that a lookup shall have."""
        if line is None:
            return self._limits.most
        # Where what no size changes takes the most of the goal's time, smaller lookups would only be more.
        seconds = max(self._limits.seconds, line.fixed + self._limits.seconds / 2)
        return min(self._limits.most, line.within(seconds))

    @property
    def best_size(self) -> int:
        """The size at which lookups are cheapest, or nearly, by what is known; rows may make it smaller."""
        line = self.model.line()
        return max(1, int(max(min(self._best(line, 0, 0), self._most(line)), self._limits.least)))

    def _best(self, line: Line | None, waiting: int, idle: int) -> float:
        """The size at which lookups are cheapest, or nearly; smaller where connections would be idle."""
        if line is None:
            return min(FIRST_SIZE, self._limits.most)
        line = Line(line.fixed + _OWN, line.each)
        best = max(line.size(_EXCESS), _LEAST_AUTO)
        if idle > 1 and waiting:
            best = min(best, max(line.size(1.0), math.ceil(waiting / idle)))
        return best

    def landed(self, keys: int, seconds: float, now: float, *, flying: int, is_busy: bool) -> None:
        """Learn from a lookup that was answered.

        Args:
            keys, seconds: what was asked, and how long it took.
            now: when it was answered.
            flying: lookups under way when it was sent, itself included.
            is_busy: whether more were waiting to be sent.
        """
        if self._ceiling < self._limits.most_in_flight:
            self._until_more -= 1
            if not self._until_more:
                self._ceiling, self._until_more = self._ceiling + 1, _MORE_AFTER
                self._trials.most = self._ceiling
        if not keys or self._is_fixed:
            return
        is_change = self.model.observe(keys, seconds, is_steady=flying == self.in_flight)
        usual = self._usual or keys
        if is_change or not usual / _SAME <= self._trial_size <= usual * _SAME:
            # What was found before, or with other sizes, says nothing now.
            self._trial_size = usual
            self._trials.begin(soon=is_change)
        is_ripe = self._has_one_size or (self.model.is_known and keys * _PROBES * _SAME >= usual)
        if is_busy and is_ripe and flying == self.in_flight:
            chosen = self._trials.next(flying, keys, now)
            if chosen != flying:
                self._shared[0] = chosen
        else:
            self._trials.disturb()

    def timed_out(self) -> None:
        """A lookup was given up: what is believed of costs is wrong, and the next would be as large, and end alike."""
        self.model.forget()
        self._trials.disturb()

    def refused(self, flying: int) -> None:
        """No more connections than these can be had: the database takes no more, or other workers have the rest."""
        # For this process alone: others may have more.
        self._ceiling, self._until_more = max(1, flying), _MORE_AFTER
        self._trials.rest(self._ceiling)


class _Trials:
    """Which number in flight is the fastest.

    Args:
        least, most: of them; the second may change.
    """

    def __init__(self, least: int, most: int) -> None:
        self._least, self.most = least, most
        self._landed: list[tuple[float, int]] = []  # when, and how many keys
        self._before: tuple[int, float] | None = None  # the number and its rate that the present one is compared with
        self._upwards = True
        self._pause, self._pauses = 0, _REST

    def next(self, flying: int, keys: int, now: float) -> int:
        """The number to go on with, after one more lookup of so many keys."""
        self._landed.append((now, keys))
        if len(self._landed) <= max(_WINDOW, 4 * flying):
            return flying
        (begin, _), *rest = self._landed
        found = sum(keys for _, keys in rest) / max(now - begin, 1e-9)
        self._landed = []
        if self._before is not None:
            return self._judge(flying, found, *self._before)
        if self._pause > 0:
            self._pause -= 1
            return flying
        return self._try(flying, found)

    def disturb(self) -> None:
        """There was not enough to do just now: what was counted tells nothing."""
        self._landed = []

    def begin(self, *, soon: bool) -> None:
        """Forget what was found, and perhaps try soon."""
        self._before, self._landed = None, []
        if soon:
            self._upwards, self._pause, self._pauses = True, 0, _REST

    def rest(self, most: int) -> None:
        """Try nothing for as long as it gets, and no more than these then."""
        self.most, self._before, self._landed = most, None, []
        self._pause = self._pauses = _LONGEST_REST

    def _try(self, now: int, found: float) -> int:
        for _ in range(2):
            other = min(2 * now, self.most) if self._upwards else max(now // 2, self._least)
            self._upwards = not self._upwards
            if other != now:
                self._before = now, found
                return other
        self._pause = self._pauses
        return now

    def _judge(self, now: int, found: float, before: int, rate: float) -> int:
        self._before = None
        is_kept = found > rate * _BETTER if now > before else found >= rate * _BETTER_WITH_FEWER
        if is_kept:
            # On in this direction at once.
            self._pauses, self._pause = _REST, 0
            self._upwards = now > before
            return self._try(now, found)
        self._pause = self._pauses
        self._pauses = min(2 * self._pauses, _LONGEST_REST)
        return before
