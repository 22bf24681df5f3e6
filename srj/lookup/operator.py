"""The out-of-order thread: probe whole batches, pass hits on, let misses wait for the database.

Rows leave in one of two ways. `out_of_order`: hits at once, misses when they land. `in_order`: batch after batch as they
came, reading ahead while lookups are under way, as a processor executes out of order and retires in order.
"""

from __future__ import annotations

import queue
import time
from collections import deque
from typing import TYPE_CHECKING, Protocol, TypeVar

import numpy as np

from srj.databases.conversion import convert_key
from srj.errors import DatabaseError, SrjError
from srj.lookup.keys import Keys
from srj.lookup.metrics import Metrics
from srj.lookup.order import Windows, rule_of
from srj.lookup.pending import Pending
from srj.lookup.probe import Probe
from srj.lookup.reorder_buffer import Leaving, ReorderBuffer

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import numpy.typing as npt
    import pyarrow as pa

    from srj.lookup.engine import Engine
    from srj.lookup.flight import Arrivals, Flight
    from srj.lookup.joined import Joined
    from srj.lookup.order import Order

T = TypeVar("T")

# What may wait at a time in one operator: enough to read far ahead of a few slow misses, little beside a worker's memory.
WAITING_BYTES = 64_000_000
# Reading ahead so far, in lookups for each that is sent at a time, keeps the database busy; further, and answers only pile up.
_FLIGHTS_AHEAD = 2
# A key that waits: itself, as a Python value too, and its place among those in flight.
_BYTES_OF_A_KEY = 200
# How long to wait for a flight before looking whether the batch thread is still there.
_PATIENCE_SECONDS = 5.0


class RowsOf(Protocol[T]):
    """How to handle the caller's batches, which the operator does not look into."""

    def take(self, rows: T, positions: npt.NDArray[np.int64]) -> T:
        """The rows at these positions."""
        ...

    def concat(self, parts: Sequence[T]) -> T:
        """The rows of several batches, one after the other."""
        ...

    def nbytes(self, rows: T) -> int:
        """The memory they take."""
        ...

    def positions(self, rows: T) -> npt.NDArray[np.int64]:
        """Where they stand, for `Windows(position=…)`."""
        ...

    def times(self, rows: T) -> npt.NDArray[np.int64] | None:
        """Their event times, where punctuation is to tell which are pending."""
        ...


class _NoRows:
    """For batches of which only the keys are there."""

    def take(self, rows: None, positions: npt.NDArray[np.int64]) -> None:
        """Nothing of nothing."""

    def concat(self, parts: Sequence[None]) -> None:
        """Nothing of nothing."""

    def nbytes(self, rows: None) -> int:  # noqa: ARG002  the Protocol's
        """Nothing."""
        return 0

    def positions(self, rows: None) -> npt.NDArray[np.int64]:  # noqa: ARG002  the Protocol's
        """None."""
        return np.zeros(0, np.int64)

    def times(self, rows: None) -> None:
        """None."""


class Operator:
    """Joins one partition's batches with the table. Used once, by one thread.

    Args:
        engine: cache and fetcher.
        waiting_bytes: bound on what waits, the rows that are expected to land for it included; when it is reached, no more
            input is read until something has landed.

    Attributes:
        metrics: what was counted and not yet taken.
        columns: the table's columns that come back.
    """

    def __init__(self, engine: Engine, waiting_bytes: int = WAITING_BYTES) -> None:
        self.metrics = Metrics()
        self._engine = engine
        self.columns = engine.spec.columns
        self._keys = engine.spec.description.key
        self._waiting_bytes = waiting_bytes
        self._awaited: set[Flight] = set()
        self._started, self._lookup_seconds = engine.clock(), 0.0  # the slowest lookup so far
        self._arrivals: Arrivals = queue.SimpleQueue()
        self._cache_before = engine.cache_stats()

    def out_of_order(
        self, batches: Iterable[tuple[T, tuple[pa.Array, ...]]], rows_of: RowsOf[T], order: Order = "any"
    ) -> Iterator[Leaving[T]]:
        """Rows leave as soon as their matches are known and `order` lets them; those of one key in the order of their arrival.

        Args:
            batches: the caller's rows with their key columns, arrays of one length.
            rows_of: how to take some of the caller's rows, and their positions where `order` is by a column's.
            order: how far rows may leave out of their order.

        Yields:
            Stream rows, in pieces of any length, with their matches.
        """
        buffer: ReorderBuffer[T] = ReorderBuffer(rule_of(order))
        for batch, keys in self._cut(batches, rows_of):
            probe = self._probe(keys)
            # What landed before the probe may hold older rows of the same keys.
            landed = self._land(buffer)
            yield from self._leaving(buffer)
            sections = self._sections(order, batch, rows_of, buffer.arrived, probe.length)
            if not buffer and probe.is_known:
                joined = probe.joined()
                self._count(joined)
                yield buffer.pass_by(batch, joined, rows_of.times(batch))
                continue
            size, expected = rows_of.nbytes(batch) + probe.nbytes, _BYTES_OF_A_KEY + self._engine.bytes_per_key
            buffer.add(Pending(batch, rows_of, probe, buffer.arrived, size, expected, sections, rows_of.times(batch)))
            for flight in landed:  # this batch may have joined them
                buffer.land(flight)
            yield from self._leaving(buffer)
            if buffer.pinned:
                self._engine.hurry()
            self._bound(buffer.length, buffer.nbytes, hits_wait=False)
            while buffer and self._is_full(buffer.nbytes):
                if buffer.nbytes > self._waiting_bytes:
                    self._engine.flush()  # it may all wait for one flight that is still being filled
                self._land(buffer, self._next_arrival())
                yield from self._leaving(buffer)
        self._engine.flush()
        while buffer:
            self._land(buffer, self._next_arrival())
            yield from self._leaving(buffer)

    def in_order(self, batches: Iterable[tuple[pa.Array, ...]]) -> Iterator[Joined]:
        """Batches leave whole and in their order; the next ones are probed, and asked, while the first waits.

        Args:
            batches: the key columns of each batch, arrays of one length.

        Yields:
            Each batch's matches.
        """
        pending: deque[tuple[Probe, int]] = deque()
        pending_bytes = pending_rows = 0
        for keys in self._cut_keys(batches):
            probe = self._probe(keys)
            size = probe.nbytes + self._expected(len(probe.admitted.missed))
            pending.append((probe, size))
            pending_bytes += size
            pending_rows += probe.length
            self._bound(pending_rows, pending_bytes, hits_wait=True)
            self._take_arrivals()
            while pending and (pending[0][0].is_landed or self._is_full(pending_bytes)):
                if pending[0][0].is_landed:
                    first, size = pending.popleft()
                    pending_bytes -= size
                    pending_rows -= first.length
                    yield self._retire(first)
                else:
                    # Not all of the first batch at once: the next one is probed while the last flights of this are on their way.
                    if pending_bytes > self._waiting_bytes:
                        self._engine.flush()
                    self._count_flight(self._next_arrival())
        while pending:
            yield self._retire(pending.popleft()[0])

    def take_metrics(self) -> list[int]:
        """What was counted since they were last taken, and what is chosen now, in the order of `METRICS`."""
        now, before = self._engine.cache_stats(), self._cache_before
        self.metrics.evictions += now.evictions - before.evictions
        self.metrics.uncached += now.refused - before.refused
        self.metrics.bypasses += now.bypasses - before.bypasses
        self.metrics.resizes += self._engine.take_resizes()
        self._cache_before = now
        # By the clock on the wall, for the tasks of a micro-batch may run on several machines.
        return [time.time_ns() // 1000, *self.metrics.take(), *self._engine.chosen(now)]

    def _cut(
        self, batches: Iterable[tuple[T, tuple[pa.Array, ...]]], rows_of: RowsOf[T]
    ) -> Iterator[tuple[T, tuple[pa.Array, ...]]]:
        """The batches, in parts where very large rows of the table could come out."""
        for batch, keys in batches:
            length, begin = len(keys[0]), 0
            while begin < length:
                most = self._engine.most_keys
                if begin == 0 and length <= most:
                    yield batch, keys
                else:
                    positions = np.arange(begin, min(begin + most, length))
                    yield rows_of.take(batch, positions), tuple(column.slice(begin, most) for column in keys)
                begin += most

    def _cut_keys(self, batches: Iterable[tuple[pa.Array, ...]]) -> Iterator[tuple[pa.Array, ...]]:
        """`_cut` for keys alone."""
        for _, keys in self._cut(((None, keys) for keys in batches), _NoRows()):
            yield keys

    def _probe(self, columns: tuple[pa.Array, ...]) -> Probe:
        """Convert the keys to the table's types, leave out those that can't be asked, probe the rest."""
        converted = [convert_key(array, key) for array, key in zip(columns, self._keys, strict=True)]
        length = len(columns[0])
        asked, keys = None, Keys.of([array for array, _ in converted])
        if any(array.null_count for array in keys.columns):
            asked = np.flatnonzero(
                np.logical_and.reduce([array.is_valid().to_numpy(zero_copy_only=False) for array in keys.columns])
            )
            keys = keys.take(asked)
            impossible = np.zeros(length, bool)
            for _, mask in converted:
                if mask is not None:
                    impossible |= mask
            null = np.logical_or.reduce([array.is_null().to_numpy(zero_copy_only=False) for array in columns])
            self.metrics.null_keys += int(null.sum())
            self.metrics.impossible_keys += int((impossible & ~null).sum())
        admitted = self._engine.admit(keys, self._arrivals)
        self._awaited.update(flight for flight in admitted.flights if not flight.landed)
        self.metrics.rows += length
        self.metrics.hits += len(keys) - len(admitted.missed)
        self.metrics.misses += len(admitted.missed)
        # A row without an askable key is not absent: the table was never asked.
        self.metrics.absent -= length - len(keys)
        return Probe(length, keys, asked, admitted)

    @staticmethod
    def _sections(order: Order, batch: T, rows_of: RowsOf[T], arrived: int, length: int) -> npt.NDArray[np.int64] | None:
        if not isinstance(order, Windows):
            return None
        return order.sections(arrived + np.arange(length) if order.position is None else rows_of.positions(batch))

    def _land(self, buffer: ReorderBuffer[T], *awaited: Flight) -> list[Flight]:
        """Let the buffer know of these flights, and of all that have landed meanwhile."""
        landed = list(awaited)
        while not self._arrivals.empty():
            landed.append(self._arrivals.get_nowait())
        for flight in landed:
            self._count_flight(flight)
            buffer.land(flight)
        return landed

    def _leaving(self, buffer: ReorderBuffer[T]) -> Iterator[Leaving[T]]:
        for leaving in buffer.retire():
            self._count(leaving.joined)
            self.metrics.distance = max(self.metrics.distance, buffer.largest_distance)
            yield leaving
        if buffer:
            self.metrics.pinned = max(self.metrics.pinned, buffer.pinned)
            self.metrics.waiting = max(self.metrics.waiting, buffer.length)
            self.metrics.predicted_distance = max(self.metrics.predicted_distance, self._predicted(buffer.arrived))

    def _predicted(self, arrived: int) -> int:
        """The thesis's maximum scrambling distance: the cost of each waiting lookup over the interval between rows."""
        elapsed = self._engine.clock() - self._started
        # Before the clock has moved there is no rate to predict from.
        return round(len(self._awaited) * self._lookup_seconds * arrived / elapsed) if elapsed > 0 else 0

    def _retire(self, probe: Probe) -> Joined:
        """The batch's matches, awaited if need be."""
        if any(not flight.sealed for flight in probe.admitted.flights):
            self._engine.flush()
        while not probe.is_landed:
            self._count_flight(self._next_arrival())
        self._take_arrivals()
        # Again, for a flight counts as landed a moment before it arrives here, and it may have landed with an error.
        for flight in probe.admitted.flights:
            self._count_flight(flight)
        joined = probe.joined()
        # Spark puts the matches beside the rows by their places alone: one too few would misjoin all that follow.
        if len(joined.counts) != probe.length:
            raise AssertionError(f"expected matches for {probe.length} rows, got them for {len(joined.counts)}")
        self._count(joined)
        return joined

    def _bound(self, rows: int, nbytes: int, *, hits_wait: bool) -> None:
        """Let the engine say what may wait now, if it divides the memory."""
        bound = self._engine.waiting_bytes(rows, nbytes, hits_wait=hits_wait)
        if bound is not None:
            self._waiting_bytes = bound

    def _is_full(self, waiting_bytes: int) -> bool:
        """Whether something must land before more input is read."""
        return waiting_bytes > self._waiting_bytes or len(self._awaited) > _FLIGHTS_AHEAD * self._engine.in_flight

    def _expected(self, keys: int) -> int:
        """What these missed keys, their places and their rows are expected to take."""
        return round(keys * (_BYTES_OF_A_KEY + self._engine.bytes_per_key))

    def _take_arrivals(self) -> None:
        while not self._arrivals.empty():
            self._count_flight(self._arrivals.get_nowait())

    def _next_arrival(self) -> Flight:
        while True:
            try:
                return self._arrivals.get(timeout=_PATIENCE_SECONDS)
            except queue.Empty:
                if not self._engine.is_alive:
                    raise DatabaseError("expected an answer from the database, but srj's batch thread has ended") from None

    def _count(self, joined: Joined) -> None:
        matched = int(np.count_nonzero(joined.counts))
        self.metrics.absent += len(joined.counts) - matched
        self.metrics.matches += int(joined.counts.sum())

    def _count_flight(self, flight: Flight) -> None:
        """Add a landed flight to the metrics, or raise its error."""
        self._awaited.discard(flight)
        self._lookup_seconds = max(self._lookup_seconds, flight.seconds)
        if flight.error is not None:
            if isinstance(flight.error, SrjError):
                # A copy: several operators may raise the same flight's error, each with its own traceback.
                raise type(flight.error)(*flight.error.args) from flight.error
            raise flight.error
        if flight.take_count():
            self.metrics.batches += 1
            self.metrics.keys += len(flight)
            self.metrics.database_us += round(flight.seconds * 1e6)
            self.metrics.retries += flight.retries
