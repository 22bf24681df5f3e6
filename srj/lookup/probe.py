"""A batch of stream rows after its keys were probed: what is known now, what waits for which flight."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from srj.lookup.joined import Joined, concat_rows, run_starts

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from srj.lookup.engine import Admitted
    from srj.lookup.flight import Flight

Number = TypeVar("Number", bound="np.generic")


@dataclass(frozen=True)
class Missing:
    """Rows of a batch that wait for one flight.

    Attributes:
        flight: what carries their keys.
        positions: which rows of the batch, ascending.
        position_in: for each of them, its key's position in the flight.
    """

    flight: Flight
    positions: npt.NDArray[np.int64]
    position_in: npt.NDArray[np.int64]

    def joined(self) -> Joined:
        """Their matches, once the flight has landed."""
        return Joined(self.flight.counts[self.position_in], self.flight.landed_rows, self.flight.starts[self.position_in])


@dataclass(frozen=True)
class Probe:
    """n stream rows, of which m had a key that can be asked.

    Attributes:
        length: n.
        asked: which rows had such a key, ascending; None: all.
        admitted: what became of the m keys.
    """

    length: int
    asked: npt.NDArray[np.int64] | None
    admitted: Admitted

    @property
    def is_landed(self) -> bool:
        """Whether every row's matches are known."""
        return all(flight.landed for flight in self.admitted.flights)

    @property
    def nbytes(self) -> int:
        """Memory that it holds while it waits, landed rows not counted."""
        return int(self.admitted.found.rows.nbytes) + 32 * self.length

    def known(self) -> tuple[npt.NDArray[np.int64] | None, Joined]:
        """The rows whose matches the cache knew, and those without an askable key: their positions (None: all), their matches."""
        found, missed = self.admitted.found, self.admitted.missed
        counts = self._over_all_rows(found.counts)
        if not len(missed):
            return None, Joined(counts, found.rows)
        known = np.ones(self.length, bool)
        known[self._row_of(missed)] = False
        positions = known.nonzero()[0]
        # A miss counts no rows, so the found rows belong to the known ones, in their order.
        return positions, Joined(counts[positions], found.rows)

    def missing(self) -> Iterator[Missing]:
        """The other rows, a part a flight."""
        admitted = self.admitted
        if not admitted.flights:
            return
        rows = self._row_of(admitted.missed)
        if len(admitted.flights) == 1:
            yield Missing(admitted.flights[0], rows, admitted.position_in)
            return
        order = np.argsort(admitted.flight_of, kind="stable")  # stable: rows of a key stay in the order of their arrival
        ends = np.cumsum(np.bincount(admitted.flight_of, minlength=len(admitted.flights)))
        for flight, part in zip(admitted.flights, np.split(order, ends[:-1]), strict=True):
            yield Missing(flight, rows[part], admitted.position_in[part])

    def joined(self) -> Joined:
        """All n rows with their matches, once every flight has landed."""
        found, missed = self.admitted.found, self.admitted.missed
        if not len(missed):
            return Joined(self._over_all_rows(found.counts), found.rows)
        counts, starts = found.counts.copy(), run_starts(found.counts)
        sources = [found.rows]
        before = found.rows.num_rows
        for missing in self._missing_keys():
            part = missing.joined()
            counts[missing.positions] = part.counts
            starts[missing.positions] = missing.flight.starts[missing.position_in] + before
            sources.append(part.source)
            before += part.source.num_rows
        source = concat_rows(sources) if found.rows.num_columns else found.rows
        return Joined(self._over_all_rows(counts), source, self._over_all_rows(starts))

    def _missing_keys(self) -> Iterator[Missing]:
        """`missing`, with positions among the m keys instead of the n rows."""
        return Probe(len(self.admitted.found.hit), None, self.admitted).missing()

    def _row_of(self, keys: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        return keys if self.asked is None else self.asked[keys]

    def _over_all_rows(self, values: npt.NDArray[Number]) -> npt.NDArray[Number]:
        """Values of the m keys, at the places of their rows; 0 for the others."""
        if self.asked is None:
            return values
        spread = np.zeros(self.length, values.dtype)
        spread[self.asked] = values
        return spread
