"""The rows of one batch that have not left yet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

import numpy as np
import pyarrow as pa

from srj.lookup.joined import Joined, concat_rows, run_starts
from srj.lookup.probe import KNOWN

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from srj.lookup.flight import Flight
    from srj.lookup.keys import Keys
    from srj.lookup.operator import RowsOf
    from srj.lookup.probe import Probe

    Bools = npt.NDArray[np.bool_]
    I64 = npt.NDArray[np.int64]
    U64 = npt.NDArray[np.uint64]

T = TypeVar("T")

_BYTES_OF_A_ROW = 90  # of the arrays below
_LOOKS = 16  # how often it is looked what a part's flights hold, while they land
# Rows are copied out of flights that hold so many bytes, and so many keys for each of the rows.
_WORTH_BYTES, _MANY_MORE = 1_000_000, 4


class Pending(Generic[T]):
    """Rows of one batch, in the order of their arrival; those that leave are taken out.

    Args:
        rows: the caller's batch.
        rows_of: how to handle it.
        probe: what became of its keys.
        begin: arrival number of its first row.
        nbytes: memory that it takes now.
        expected: bytes that a row which waits is expected to bring.
        sections, times: of each row: see `Windows.sections`; its event time. None where nobody asks.

    Attributes:
        arrivals: int64, arrival numbers.
        flights: what rows wait for.
        flight: which of them a row waits for or has waited for; `KNOWN`: none.
        ready: whether its matches are known.
        behind: whether it stays nevertheless, for an earlier row of the same key is still waiting.
        first: int64, the number, from 1, of the first later row that left before it; 0: none yet.
        hash: uint64, of a row's key, where it has been asked for; 0: it has no key.
        rows, found: the caller's rows, and the matches that the cache knew; some may be of rows that have left.
        place: int64, where a row's matches begin in `found`, or its key's place in its flight.
    """

    def __init__(
        self,
        rows: T,
        rows_of: RowsOf[T],
        probe: Probe,
        begin: int,
        nbytes: int,
        expected: float = 0.0,
        sections: I64 | None = None,
        times: I64 | None = None,
    ) -> None:
        length = probe.length
        self.rows, self._rows_of = rows, rows_of
        self._keys: Keys | None = probe.keys
        self.found = probe.admitted.found.rows
        self.flights: list[Flight | None] = list(probe.admitted.flights)
        self.begin = begin
        self._expected = expected
        self._at = np.arange(length)  # where a row stands in `rows`
        self.arrivals = self._at + begin
        # The counts are of rows that the cache knew.
        self.flight, self._key, self._counts, self.place = probe.by_row()
        self.ready = self.flight == KNOWN
        self.behind = np.zeros(length, bool)
        self.first = np.zeros(length, np.int64)
        self.hash = np.zeros(length, np.uint64)
        self.hash_rows(np.flatnonzero(~self.ready))
        self.sections = np.zeros(length, np.int64) if sections is None else sections
        self.times = times
        self._all_known = int(np.count_nonzero(self.ready))  # whose matches `found` holds, in their order
        self._held = length  # rows of `rows`
        self._landed = self._looked_at = 0  # flights; how many they were when it was last looked what they hold
        self.nbytes = nbytes + self._of_waiting()

    def __len__(self) -> int:
        return len(self.arrivals)

    @property
    def going(self) -> Bools:
        """Which rows may leave as far as their own keys go."""
        going: Bools = self.ready & ~self.behind
        return going

    def land(self, flight: Flight) -> None:
        """Know the matches of the rows that waited for this flight, and what they really take."""
        mine = self.flight == self.flights.index(flight)
        self.ready |= mine
        self._landed += 1
        brought = flight.landed_rows.nbytes / max(1, len(flight))
        self.nbytes += round(int(np.count_nonzero(mine)) * (brought - self._expected))

    def forget_keys(self) -> None:
        """Free the keys, whose hashes are known where they will be asked for."""
        self._keys = None

    @property
    def lowest(self) -> int:
        """The smallest arrival number, when there is one."""
        return int(self.arrivals[0])

    def awaited(self) -> list[Flight]:
        """The flights that rows wait for."""
        flights = [self.flights[number] for number in _distinct(self.flight[~self.ready])]
        return [flight for flight in flights if flight is not None]

    def waits_other_than(self, flight: Flight | None) -> Bools:
        """Which rows stay for the sake of their own keys, save those that wait for this flight."""
        stays: Bools = ~self.going
        if flight is not None and flight in self.flights:
            stays &= self.flight != self.flights.index(flight)
        return stays

    def hash_rows(self, rows: I64) -> None:
        """Fill in the hashes of the keys of these rows."""
        rows = rows[self._key[rows] >= 0]
        if self._keys is not None and len(rows):
            self.hash[rows] = self._keys.encoded.hashes[self._key[rows]]

    def leave(self, chosen: I64) -> tuple[T, Joined]:
        """Take out rows whose matches are known: themselves and their matches."""
        rows = self.rows if len(chosen) == self._held else self._rows_of.take(self.rows, self._at[chosen])
        joined = self._joined(chosen)
        stay = np.ones(len(self), bool)
        stay[chosen] = False
        kept = stay.nonzero()[0]
        for name in _BY_ROW:
            setattr(self, name, getattr(self, name).take(kept))
        if self.times is not None:
            self.times = self.times[kept]
        if 2 * len(self) < self._held and len(self):
            self.compact()
        return rows, joined

    def let_flights_go(self) -> None:
        """Take the matches of rows that are pinned out of their flights, where those hold many more."""
        if self._landed - self._looked_at < len(self.flights) // _LOOKS:
            return  # each look is at all flights
        self._looked_at = self._landed
        number = np.bincount(self.flight[self.ready & (self.flight != KNOWN)], minlength=len(self.flights))
        flown = [flight for flight, rows in zip(self.flights, number, strict=True) if flight is not None and rows]
        nbytes, keys = sum(int(flight.landed_rows.nbytes) for flight in flown), sum(map(len, flown))
        if nbytes > _WORTH_BYTES and keys > _MANY_MORE * int(number.sum()):
            self.compact()

    def _joined(self, chosen: I64) -> Joined:
        flights = self.flight[chosen]
        if len(flights) and (flights == flights[0]).all():
            return self._from(int(flights[0]), chosen)
        counts, starts = np.zeros(len(chosen), np.int32), np.zeros(len(chosen), np.int64)
        sources: list[pa.RecordBatch] = []
        before = 0
        for flight in _distinct(flights):
            mine = flights == flight
            part = self._from(flight, chosen[mine])
            # Only the rows that are wanted: a flight's others may leave much later.
            sources.append(part.inner()[1])
            counts[mine] = part.counts
            starts[mine] = run_starts(part.counts) + before
            before += int(part.counts.sum())
        return Joined(counts, concat_rows(sources) if self.found.num_columns else self.found, starts)

    def _from(self, flight: int, chosen: I64) -> Joined:
        """Rows that have their matches from one place."""
        place = self.place[chosen]
        if flight != KNOWN:
            landed = self.flights[flight]
            if landed is None:
                raise AssertionError("a flight is kept as long as a row of it is here")
            return Joined(landed.counts[place], landed.landed_rows, landed.starts[place])
        counts = self._counts[chosen]
        return Joined(counts, self.found) if len(chosen) == self._all_known else Joined(counts, self.found, place)

    def compact(self) -> None:
        """Keep what the rows that are left need, and no more: of a flight that has landed the matches, not the others."""
        if len(self) < self._held:
            self.rows = self._rows_of.take(self.rows, self._at)
            self._at, self._held = np.arange(len(self)), len(self)
        ready = np.flatnonzero(self.ready)
        known = self._joined(ready) if len(ready) else Joined(self._counts[ready], _no_rows(self.found.schema))
        if self.found.num_columns:
            self.found = known.inner()[1]
        self._counts[ready], self.place[ready] = known.counts, run_starts(known.counts)
        self.flight[ready], self._all_known = KNOWN, len(ready)
        wanted = np.bincount(self.flight[self.flight != KNOWN], minlength=len(self.flights)) > 0
        self.flights = [flight if is_wanted else None for flight, is_wanted in zip(self.flights, wanted, strict=True)]
        self._measure()

    def absorb(self, others: Sequence[Pending[T]]) -> None:
        """Take in the rows of the parts behind this one, which are of no use then."""
        parts = (self, *others)
        for part in parts:
            part.compact()
        flights = list(dict.fromkeys(flight for part in parts for flight in part.flights if flight is not None))
        numbers: dict[Flight | None, int] = {flight: number for number, flight in enumerate(flights)}
        before = 0
        for part in parts:
            part.place[part.flight == KNOWN] += before
            before += part.found.num_rows
            # Each flight's new number; the last is for `KNOWN`, which is -1.
            part.flight = np.array([*(numbers.get(flight, KNOWN) for flight in part.flights), KNOWN], np.int32)[part.flight]
        self.rows = self._rows_of.concat([part.rows for part in parts])
        if self.found.num_columns:
            self.found = concat_rows([part.found for part in parts])
        for name in _BY_ROW:
            setattr(self, name, np.concatenate([getattr(part, name) for part in parts]))
        if self.times is not None:
            self.times = np.concatenate([part.times for part in parts if part.times is not None])
        self.flights = [*flights]
        self._at, self._held, self._all_known = np.arange(len(self)), len(self), int(np.count_nonzero(self.flight == KNOWN))
        self._measure()

    def _measure(self) -> None:
        self.nbytes = self._rows_of.nbytes(self.rows) + int(self.found.nbytes) + _BYTES_OF_A_ROW * len(self) + self._of_waiting()

    def _of_waiting(self) -> int:
        return round(int(np.count_nonzero(~self.ready)) * self._expected)


def _distinct(flights: npt.NDArray[np.int32]) -> list[int]:
    """The numbers among these, `KNOWN` first: there are few, and all are small, so that to count is faster than to sort."""
    return (np.flatnonzero(np.bincount(flights - KNOWN)) + KNOWN).tolist() if len(flights) else []


def _no_rows(schema: pa.Schema) -> pa.RecordBatch:
    """Unlike an empty slice, it keeps nobody's memory."""
    return pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in schema], schema=schema)


_BY_ROW = ("_at", "arrivals", "flight", "_key", "_counts", "place", "ready", "behind", "first", "hash", "sections")
