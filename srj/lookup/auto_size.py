"""``cache="auto"``: how much of the memory the cache has, and how much the rows that wait, as the stream's keys show it."""

from __future__ import annotations

import threading
import time
import warnings
from typing import TYPE_CHECKING, Protocol

from srj.lookup.entry_room import EntryRoom
from srj.sizing.pattern import Phase
from srj.sizing.split import FLOOR, SLACK, Costs, best_size
from srj.sizing.watch import Watch

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    import numpy as np
    import numpy.typing as npt

    from srj.lookup.batching import Batching
    from srj.lookup.entry_room import Answered
    from srj.lookup.interface import CacheStats
    from srj.lookup.key_log import KeyLog
    from srj.lookup.layout import Contents, Geometry
    from srj.sizing.curve import MissRatioCurve

    U64 = npt.NDArray[np.uint64]

# Times what it took: so long there is none after it, and so this is the share of the time that it takes at most.
_REST = 200.0  # a decision: 0.5 %
_REST_AFTER_MOVE = 20.0  # a move that the model advises: 5 %, a third of what it has to save
_REST_FOR_NEWS = 2.0  # a move to a new bound, which is certain and rare
_REST_AFTER_FAILURE = 10.0  # seconds: for want of memory, which others may give back
_FIRST_REFERENCES = 50_000  # from one decision by the curve to the next
_WHILE_ASLEEP = 500_000  # from one decision to the next, where no other worker has to be heard
_ROUNDS = 7  # times what memory holds
# Times the entries that it was made larger for: so many keys are seen before it is made smaller again. Three intervals of ten
# references a key: what comes again after a pause of two finds its rows.
_STAYS = 32
_TOO_LARGE = 1.25  # times the entries wanted: it is made smaller
_GROWTH = 1.5  # at least, where it is not known yet how far
_FURTHER = 2.0  # times the entries that fit: so many keys are looked at before the search is given up
_AMPLE = 1.5  # entries for each of a working set, where there is room
_SLACK_IF_CHEAP = 1.25  # where lookups hardly cost more for it; where all keys are known: the tighter, the nearer to the processor
_HARDLY = 1.02  # times the seconds a row
_NOTION = 1.25  # times the keys that fit: a notion so wrong is put right
_LEAST = 1_024  # entries, or as many as a sixteenth of the memory holds: a smaller cache would leave what waits hardly more
_NEARLY = 1.1  # times the entries that it has: not worth a move
# Of the seconds a row, for a move that only the model advises: it is right within a sixth (Zipf 1, half to three quarters of the
# memory: 9 % less foreseen, 12 % more measured, for it knows nothing of what a lookup costs the worker whatever its size).
_BETTER = 0.85


class Resizable(Protocol):
    """A cache whose size can be changed."""

    @property
    def geometry(self) -> Geometry:
        """Its present sizes."""
        ...

    def stats(self) -> CacheStats:
        """Its present state."""
        ...

    def resize(self, geometry: Geometry, nbytes: int, turn: AbstractContextManager[object]) -> bool:
        """Change it; whether that was done."""
        ...

    def give_up_resizing(self) -> None:
        """A change of size that goes on ends soon."""
        ...


class AutoSize:
    """Watches the keys, and moves memory between the cache and what waits.

    The cache begins with half. Once the pattern query has found the size beyond which more buys nothing, the cache gets that, with
    slack. Where there is no such size within the memory, the model of `srj.sizing.split` is asked, or,
    before the cost of a lookup is known, the curve's knee. A move is made only where it is worth it, and takes its time in a thread
    of its own.

    Args:
        memory: bytes, for the cache and for what waits in all workers that share it.
        cache: to be resized.
        contents: what it holds.
        batching: what is known of the cost of lookups.
        turn: what this process's threads hold when they use the cache; held by who calls `see`.
        log: where other workers' keys are; None: there are none.
        answered: what has been.
        on_resize: called after a change, with the turn.
        compiled: as in `reuse_distances`.
    """

    def __init__(
        self,
        memory: int,
        cache: Resizable,
        contents: Contents,
        batching: Batching,
        turn: AbstractContextManager[object],
        *,
        log: KeyLog | None = None,
        answered: Callable[[], Answered],
        on_resize: Callable[[], None] = lambda: None,
        compiled: bool | None = None,
    ) -> None:
        self._memory, self._cache, self._batching, self._turn = memory, cache, batching, turn
        self._log, self._on_resize, self._compiled = log, on_resize, compiled
        self._room = EntryRoom(cache, contents, answered)
        self.watch: Watch | None = None
        self._moving: threading.Thread | None = None
        self._decided: tuple[Phase | None, int | None] = None, None
        self._resizes = 0
        self._references = self._looked_at = self._decided_at = self._measured_at = self._seen = 0
        self._is_scattered = False  # rows that are used together do not lie together, since a move
        self._advised = 0  # by the model, if it was asked at the last decision: 1 a larger cache, -1 a smaller one
        self._grown = 0, 0  # when the cache was last made larger, in keys seen, and to how many entries
        self._next = self._next_move = self._next_for_news = float("-inf")
        self._event, self._hits_wait, self._asked, self._batch = 0.0, False, 1.0, 0.0
        self._work = self._elsewhere = 0.0

    @property
    def waiting_bytes(self) -> int:
        """That may wait in one operator: its share of what the cache leaves."""
        workers = 1 if self._log is None else self._log.workers
        return max(int(max(self._memory - self._room.nbytes, self._memory * FLOOR) / workers), 1)

    def waited(self, rows: int, nbytes: int, *, hits_wait: bool) -> None:
        """So many rows wait in so many bytes; they are of all kinds (`hits_wait`), or only such as miss."""
        if rows:
            self._event, self._hits_wait = nbytes / rows, hits_wait

    def asked(self, keys: int, rows: int, seconds: float, elsewhere: float) -> None:
        """What a batch that missed asks, and what that takes.

        Args:
            keys: asked. rows: that missed.
            seconds: of the processor, for asking and for storing what has come.
            elsewhere: of the processor, in the batch thread so far.
        """
        self._asked += (keys / rows - self._asked) / 16
        work, self._elsewhere = (seconds + elsewhere - self._elsewhere) / keys, elsewhere
        self._work += (work - self._work) / 16

    def see(self, hashes: U64, missed: int) -> None:
        """Take the keys of a batch that was looked up.

        Args:
            hashes: of the keys.
            missed: how many of them the cache did not know.
        """
        references = hashes.size
        if not missed and self._sleeps_on(references):
            return
        self._batch += (references - self._batch) / 16
        if self._log is not None:
            read = self._log.exchange(hashes, missed)
            if read is None:
                self.watch = None  # another process reads
                self._room.look()
                return
            if read.is_new:
                self.watch = None
                self._room.begin()
            hashes, references, missed = read.hashes, read.references, read.missed
        self._seen += references
        if self.watch is not None:
            self._correct(self.watch)
        else:
            self._begin()
            assert self.watch is not None  # noqa: S101  for mypy
        self._references += references
        looked = self.watch.add(hashes, references, missed=missed)
        # Now and then while it sleeps: a move may have had to wait, and others may not have heard that nothing is looked at.
        if looked or self._references - self._looked_at >= _FIRST_REFERENCES:
            self._looked_at = self._references
            if self._log is not None:
                self._log.look_at(self.watch.rate)
            self._decide(self.watch)

    def _sleeps_on(self, references: int) -> bool:
        """Whether there is nothing to do but count: a batch that hits takes so little that all else would show."""
        if self._log is not None or self.watch is None or not self.watch.is_asleep:
            return False
        if self._references + references - self._looked_at >= _WHILE_ASLEEP:
            return False
        self._references += references
        self._seen += references
        return True

    def take_resizes(self) -> int:
        """How often the cache's size has changed since this was last asked; with the turn held."""
        resizes, self._resizes = self._resizes, 0
        return resizes

    def close(self) -> None:
        """End, also a move that goes on."""
        self._cache.give_up_resizing()
        if self._moving is not None:
            self._moving.join()
        if self._log is not None:
            self._log.close()

    def _begin(self) -> None:
        self.watch = Watch(self._watched, compiled=self._compiled)
        self._references = self._looked_at = self._decided_at = self._measured_at = 0

    def _decide(self, watch: Watch) -> None:
        now, news = time.monotonic(), (watch.phase, watch.bound)
        if watch.is_asleep and self._is_scattered and now >= self._next_move and not self._is_moving:
            self._is_scattered = False  # once, whether or not there is room for both
            self._resize(self._cache.geometry, self._cache.stats().bytes_reserved)
            return
        is_news = news != self._decided and watch.bound is not None and now >= self._next_for_news
        # A search that goes on says little before its keys have come round several times.
        is_late = watch.phase is not Phase.SEARCHING or self._references >= _ROUNDS * self._most
        is_due = is_late and self._references - self._decided_at >= _FIRST_REFERENCES and now >= self._next_move
        if not (is_news or is_due) or now < self._next or self._is_moving:
            return
        if not self._room.is_known:
            return  # nothing is known of the rows: a size by the description's estimates could be one that holds none
        self._decided, self._decided_at = news, self._references
        wanted = self._wanted(watch)
        if wanted is not None and wanted < self._room.entries and self._seen - self._grown[0] < _STAYS * self._grown[1]:
            wanted = None  # what comes and goes shall find its rows again
        self._next = time.monotonic() + _REST * (time.monotonic() - now)
        if wanted is not None:
            self._move(wanted)

    @property
    def _watched(self) -> int:
        """Keys beyond what fits: a bound within the memory is known for certain when half as many keys more have been seen."""
        return max(int(_FURTHER * self._most / SLACK), 1)

    def _correct(self, watch: Watch) -> None:
        """Tell it how many keys fit, where that is another number than it began with: rows had not been seen then."""
        if self._references - self._measured_at < _FIRST_REFERENCES:
            return
        self._measured_at = self._references
        if watch.bound is not None and watch.phase is not Phase.SEARCHING:
            return
        self._room.measure()
        if not watch.memory / _NOTION <= self._watched <= watch.memory * _NOTION:
            if watch.phase is Phase.SEARCHING:
                watch.hold(self._watched)
            else:
                self._begin()

    @property
    def _is_moving(self) -> bool:
        return self._moving is not None and self._moving.is_alive()

    def _wanted(self, watch: Watch) -> int | None:
        """The entries that the cache should have; None: as many as now."""
        self._room.measure()
        bound = watch.bound
        advised, self._advised = self._advised, 0
        if bound is not None and bound <= self._most:
            wanted = min(max(self._with_slack(bound, watch), self._least), self._most)
            if wanted == self._most and self._room.entries >= wanted / _NEARLY:
                return None  # it has all that there is, but for what whole sets take
            if watch.phase is Phase.SEARCHING:
                return self._by_search(wanted, bound)
            return wanted if not self._room.entries / _TOO_LARGE <= wanted <= self._room.entries else None
        costs = self._costs
        found = self._by_knee(watch.curve()) if costs is None else self._by_costs(watch.curve(), costs, advised)
        return self._room.for_such_rows() if found is None and self._room.is_crowded else found

    @property
    def _least(self) -> int:
        return min(_LEAST, int(self._memory * FLOOR / self._room.per_entry))

    def _by_search(self, wanted: int, seen: int) -> int | None:
        """The search goes on, and has seen larger distances already: ahead of its end, so that the stream need not wait for it.

        What holds these is not made a little larger each time that they rise.
        """
        present = self._room.entries
        return min(max(wanted, int(_GROWTH * present)), self._most) if SLACK * seen > present else None

    def _by_knee(self, curve: MissRatioCurve) -> int | None:
        present = self._room.entries
        knee = min(int(curve.knee(int(self._most / SLACK)) * SLACK), self._most)
        return knee if knee and not present / _TOO_LARGE <= knee <= present * _TOO_LARGE else None

    def _by_costs(self, curve: MissRatioCurve, costs: Costs, before: int) -> int | None:
        """What the model advises twice: a lookup's cost is known within tens of percent, and many sizes cost nearly the same."""
        best, present = best_size(curve, self._memory, costs), self._room.entries
        of_best, of_present = costs.seconds([best, present], curve.stretched(SLACK), self._memory)
        self._advised = (best > present) - (best < present) if of_best < _BETTER * of_present else 0
        return best if self._advised and self._advised == before else None

    @property
    def _costs(self) -> Costs | None:
        """None: not known yet."""
        line = self._batching.model.line()
        if line is None or not self._event:
            return None
        return Costs(
            self._room.per_entry,
            self._event,
            *line,
            in_flight=self._batching.in_flight,
            most_keys=self._batching.best_size,
            asked=self._asked,
            batch=self._batch,
            hits_wait=self._hits_wait,
            work=self._work,
        )

    def _with_slack(self, bound: int, watch: Watch) -> int:
        """Entries for so many keys: more than the least where what waits can spare them."""
        least, fair, ample = (int(slack * bound) + 1 for slack in (SLACK, _SLACK_IF_CHEAP, _AMPLE))
        # What is too small a change to be seen shall find room all the same: with few keys it may be two thirds.
        unseen = int(SLACK * (1 + watch.noise) * bound) + 1
        if watch.phase is Phase.CLOSED and least <= self._most:
            return max(fair, unseen) if self._is_ample(unseen) else min(fair, self._most)
        if self._is_ample(ample):
            return max(ample, unseen) if self._is_ample(unseen) else ample
        return fair if fair <= self._most and self._hardly_dearer(fair, least, watch.curve(), self._costs) else least

    def _hardly_dearer(self, entries: int, less: int, curve: MissRatioCurve, costs: Costs | None) -> bool:
        """Whether rows that wait can spare the room: lookups with fewer keys cost hardly more a row."""
        if costs is None:
            return False
        of_more, of_less = costs.seconds([entries, less], curve.stretched(SLACK), self._memory)
        return bool(of_more <= _HARDLY * of_less)

    @property
    def _most(self) -> int:
        """Entries that the memory holds beside the least that waits."""
        return int(self._memory * (1 - FLOOR) / self._room.per_entry)

    def _is_ample(self, entries: float) -> bool:
        return entries * self._room.per_entry <= self._memory / 2

    def _move(self, entries: int) -> None:
        most = max(self._room.nbytes, int(self._memory * (1 - FLOOR)))
        found = self._room.geometry(entries, most, least_waiting=self._memory * FLOOR, is_ample=self._is_ample(entries))
        if found is not None:
            self._resize(*found, entries)

    def _resize(self, geometry: Geometry, nbytes: int, entries: int | None = None) -> None:
        """Move the cache into one for so many entries; or, for None, of the same sizes: to put its rows into the order of use.

        While it was too small, rows came and left, so that those which come together lie far apart: once all hit, that is 4 to 8 %
        of the time that a batch takes.
        """
        grows, seen = nbytes > self._room.nbytes, self._seen

        def run() -> None:
            begin, done = time.monotonic(), False
            try:
                done = self._cache.resize(geometry, nbytes, self._turn)
            except Exception as error:  # the cache stays as it is, and serves
                warnings.warn(f"expected a cache of {nbytes:,} bytes, got {error}; it keeps its size for now", stacklevel=1)
            end = time.monotonic()
            with self._turn:
                self._next_for_news = end + _REST_FOR_NEWS * (end - begin)
                self._next_move = end + max(_REST_AFTER_MOVE * (end - begin), 0.0 if done else _REST_AFTER_FAILURE)
                self._room.measure()
                if done:
                    if entries is not None:
                        self._room.moved()
                        self._is_scattered, self._resizes = True, self._resizes + 1
                        if grows:
                            self._grown = seen, entries
                    self._on_resize()

        self._moving = threading.Thread(target=run, name="srj-resize", daemon=True)
        try:
            self._moving.start()
        except RuntimeError:  # no more threads to be had
            self._moving = None
