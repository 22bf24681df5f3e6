"""The waiting queue: rows that have come and not left, and which of them leave when."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from srj.lookup.flight import Flight
    from srj.lookup.joined import Joined
    from srj.lookup.order import Rule
    from srj.lookup.pending import Pending

    I64 = npt.NDArray[np.int64]
    U64 = npt.NDArray[np.uint64]

T = TypeVar("T")
_SLOTS = np.uint64(0xFFFF)
NEVER = 2**63 - 1
# Small parts are put together when so many more have come, and become as large as this: to join larger ones would copy more than
# it saves.
_MORE_PARTS = 16
_MOST_ROWS = 4_096
_MOST_BYTES = 4_000_000


@dataclass(frozen=True)
class Leaving(Generic[T]):
    """Rows that leave now, in the order of their arrival.

    Attributes:
        rows: the caller's.
        joined: their matches.
        arrivals: their arrival numbers.
        lowest: the smallest arrival number that has not left when they all have.
        times: their event times, if anybody asks.
        oldest: the smallest event time that has not left when they all have.
    """

    rows: T
    joined: Joined
    arrivals: I64
    lowest: int
    times: I64 | None
    oldest: int

    def all_left_below(self) -> I64:
        """For each row, the smallest arrival number that has not left when it has: everything below has left."""
        below: I64 = np.minimum(np.append(self.arrivals[1:], NEVER), self.lowest)
        return below

    def pending_since(self) -> I64:
        """For each row, the smallest event time that has not left when it has; `NEVER` where all have."""
        if self.times is None:
            raise AssertionError("event times are asked for only where the buffer was given them")
        later = np.minimum.accumulate(np.append(self.times[1:], NEVER)[::-1])[::-1]
        return np.minimum(later, self.oldest)


class ReorderBuffer(Generic[T]):
    """Rows that have not left, in the order of their arrival, a part a batch.

    Rows of one key leave in the order of their arrival, whatever the rule: another worker may have put the key of a waiting row
    into the cache, and later rows of that key must not overtake it.

    Args:
        rule: how far rows may overtake others; None: as far as they can.

    Attributes:
        length: how many rows are here; nbytes: what they and their matches take.
        arrived, left: how many have come and gone.
        largest_distance: the maximum scrambling distance so far.
    """

    def __init__(self, rule: Rule | None) -> None:
        self._rule = rule
        self._parts: deque[Pending[T]] = deque()
        self._waiting_for: dict[Flight, list[Pending[T]]] = {}
        self._changed: list[Pending[T]] = []
        self._not_overtaken: deque[Pending[T]] = deque()  # parts with rows that no later row has overtaken
        self._is_any_behind = False
        self._most_parts = _MORE_PARTS  # before small ones are put together
        self._unready = 0
        self.nbytes = 0
        self.length = 0
        self.arrived = 0
        self.left = 0
        self.largest_distance = 0

    def __bool__(self) -> bool:
        return self.length > 0

    @property
    def pinned(self) -> int:
        """How many rows are ready and may not leave."""
        return self.length - self._unready

    def add(self, part: Pending[T]) -> None:
        """Take a batch in, behind the others."""
        if len(self._parts) >= self._most_parts and not self._changed:
            self._put_together()
        if self._parts:
            part.behind |= self._is_behind(part)
            self._is_any_behind |= bool(part.behind.any())
        self._expect(part)
        part.forget_keys()
        self.arrived += len(part)
        self.length += len(part)
        if len(part):
            self._parts.append(part)
            self._not_overtaken.append(part)
            self._changed.append(part)
            self._unready += int(np.count_nonzero(~part.ready))
            self.nbytes += part.nbytes

    def pass_by(self, rows: T, joined: Joined, times: I64 | None) -> Leaving[T]:
        """A batch that leaves as it came, where nothing waits: it is not taken in."""
        arrivals = np.arange(self.arrived, self.arrived + len(joined.counts))
        self.arrived += len(arrivals)
        self.left += len(arrivals)
        return Leaving(rows, joined, arrivals, self.arrived, times, NEVER)

    def land(self, flight: Flight) -> None:
        """Know the matches of the rows that wait for a flight."""
        for part in self._waiting_for.pop(flight, []):
            before, unready = part.nbytes, int(np.count_nonzero(~part.ready))
            part.land(flight)
            self.nbytes += part.nbytes - before
            self._unready -= unready - int(np.count_nonzero(~part.ready))
            self._changed.append(part)

    def retire(self) -> Iterator[Leaving[T]]:
        """What may leave."""
        if self._is_any_behind:
            self._free()
        changed, self._changed = self._changed, []
        if self._rule is None:
            # A part that changed more than once is empty the next time.
            for part in sorted(changed, key=lambda one: one.begin):
                if len(chosen := np.flatnonzero(part.going)):
                    yield self._leave(part, chosen)
        else:
            yield from self._retire_bounded(self._rule)
        for part in changed:
            if len(part):
                before = part.nbytes
                part.let_flights_go()
                self.nbytes += part.nbytes - before

    def _retire_bounded(self, rule: Rule) -> Iterator[Leaving[T]]:
        parts = self._head(rule)
        if not parts:
            return
        going, first, sections = (
            np.concatenate([getattr(part, name) for part in parts]) for name in ("going", "first", "sections")
        )
        count = rule.may_leave(going, first, sections, self.left)
        if not count:
            return
        begin = 0
        for part in parts:
            end = begin + len(part)
            chosen = np.flatnonzero(going[begin:end])[:count]
            count, begin = count - len(chosen), end
            if len(chosen):
                yield self._leave(part, chosen)
            if not count:
                return

    def _expect(self, part: Pending[T]) -> None:
        for flight in part.awaited():
            self._waiting_for.setdefault(flight, []).append(part)

    def _put_together(self) -> None:
        """Make few parts of many small ones: each batch looks through all of them."""
        groups: list[list[Pending[T]]] = []
        rows = nbytes = 0
        for part in self._parts:
            if not groups or rows + len(part) > _MOST_ROWS or nbytes + part.nbytes > _MOST_BYTES:
                groups.append([])
                rows = nbytes = 0
            groups[-1].append(part)
            rows, nbytes = rows + len(part), nbytes + part.nbytes
        for first, *others in groups:
            if others:
                first.absorb(others)
        self._parts = deque(group[0] for group in groups)
        self._most_parts = len(groups) + _MORE_PARTS
        self._not_overtaken = deque(part for part in self._parts if not part.first[-1])
        self._waiting_for = {}
        for part in self._parts:
            self._expect(part)
        self.nbytes = sum(part.nbytes for part in self._parts)

    def _head(self, rule: Rule) -> list[Pending[T]]:
        """The oldest parts, as many as can matter now."""
        parts: list[Pending[T]] = []
        ahead, oldest = 0, None
        for part in self._parts:
            parts.append(part)
            going = part.going
            if oldest is None and not going.all():
                at = int(going.argmin())
                oldest, going = part.sections[at], going[at:]
            if oldest is not None:
                ahead += int(np.count_nonzero(going))
                if rule.is_decided(ahead, crossed=part.sections[-1] != oldest):
                    break
        return parts

    def _leave(self, part: Pending[T], chosen: I64) -> Leaving[T]:
        arrivals, first = part.arrivals[chosen], part.first[chosen]
        if first.any():
            distances = np.arange(self.left + 1, self.left + 1 + len(chosen)) - first
            self.largest_distance = max(self.largest_distance, int(distances[first > 0].max()))
        times = None if part.times is None else part.times[chosen]
        before = part.nbytes
        rows, joined = part.leave(chosen)
        self.nbytes -= before
        if len(part):
            self.nbytes += part.nbytes
        else:
            self._parts.remove(part)
        self._overtake(arrivals)
        self.left += len(chosen)
        self.length -= len(chosen)
        oldest = NEVER
        if times is not None:
            oldest = min((int(one.times.min()) for one in self._parts if one.times is not None), default=NEVER)
        return Leaving(rows, joined, arrivals, self._parts[0].lowest if self._parts else self.arrived, times, oldest)

    def _overtake(self, arrivals: I64) -> None:
        """Note, for rows that stay, the first later one that leaves."""
        last = int(arrivals[-1])
        done = []
        for part in self._not_overtaken:
            if not len(part) or part.first[-1]:  # where the last row was overtaken all before it were
                done.append(part)
                continue
            if part.lowest > last:
                break
            stay = np.flatnonzero((part.first == 0) & (part.arrivals < last))
            part.first[stay] = self.left + 1 + np.searchsorted(arrivals, part.arrivals[stay], "right")
        for part in done:
            self._not_overtaken.remove(part)

    def _is_behind(self, part: Pending[T]) -> npt.NDArray[np.bool_]:
        """Which rows of a new part have the key of a row that waits, and do not wait for the same flight."""
        behind = np.zeros(len(part), bool)
        # A key is asked again while it is on its way only when its flight is too old to join.
        asked_again = any(flight.is_overtaken for flight in self._waiting_for)
        for number in [-1, *range(len(part.flights))] if asked_again else [-1]:
            flight = part.flights[number] if number >= 0 else None
            waiting = [one.hash[one.waits_other_than(flight)] for one in self._parts]
            mine = np.flatnonzero(part.flight == number)
            if len(mine) and any(map(len, waiting)):
                part.hash_rows(mine)
                behind[mine] = _common(part.hash[mine], np.concatenate(waiting))
        return behind

    def _free(self) -> None:
        """Let rows go whose key no earlier row waits for any more."""
        waiting = [(part.hash[~part.ready], part.arrivals[~part.ready]) for part in self._parts]
        hashes, arrivals = (np.concatenate(columns) for columns in zip(*waiting, strict=True)) if waiting else ((), ())
        # In the order of arrival, so the first of a hash is the oldest.
        hashes, first = np.unique(hashes, return_index=True)
        self._is_any_behind = False
        for part in self._parts:
            rows = np.flatnonzero(part.behind)
            if not len(rows):
                continue
            if len(hashes):
                at = np.minimum(np.searchsorted(hashes, part.hash[rows]), len(hashes) - 1)
                held = (hashes[at] == part.hash[rows]) & (arrivals[first[at]] < part.arrivals[rows])
            else:
                held = np.zeros(len(rows), bool)
            if not held.all():
                part.behind[rows[~held]] = False
                self._changed.append(part)
            self._is_any_behind |= bool(held.any())


def _common(these: U64, those: U64) -> npt.NDArray[np.bool_]:
    """Which of these hashes are among those; few are, and most are told apart by 16 bits."""
    table = np.zeros(int(_SLOTS) + 1, bool)
    table[those & _SLOTS] = True
    found: npt.NDArray[np.bool_] = table[these & _SLOTS]
    if found.any():
        table[:] = False
        table[these[found] & _SLOTS] = True
        found[found] = np.isin(these[found], those[table[those & _SLOTS]])
    return found
