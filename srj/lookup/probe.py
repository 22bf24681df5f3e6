"""A batch of stream rows after its keys were probed: what is known now, what waits for which flight."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from srj.lookup.joined import Joined, concat_rows, run_starts

if TYPE_CHECKING:
    import numpy.typing as npt

    from srj.lookup.engine import Admitted
    from srj.lookup.keys import Keys

Number = TypeVar("Number", bound="np.generic")

KNOWN = -1  # in the place of a flight's index: the cache knew the row's matches, or there was nothing to ask


@dataclass(eq=False)
class Probe:
    """n stream rows, of which m had a key that can be asked.

    Attributes:
        length: n.
        keys: the m keys.
        asked: which rows had such a key, ascending; None: all.
        admitted: what became of the m keys.
    """

    length: int
    keys: Keys
    asked: npt.NDArray[np.int64] | None
    admitted: Admitted
    _landed: int = 0  # flights, from the first on, that were seen to have landed

    @property
    def is_landed(self) -> bool:
        """Whether every row's matches are known."""
        flights = self.admitted.flights
        # Asked after each landing: no flight is looked at again and again.
        while self._landed < len(flights) and flights[self._landed].landed:
            self._landed += 1
        return self._landed == len(flights)

    @property
    def nbytes(self) -> int:
        """Memory that it holds while it waits, landed rows not counted."""
        return int(self.admitted.found.rows.nbytes) + 32 * self.length

    @property
    def is_known(self) -> bool:
        """Whether the cache knew every row's matches."""
        return not self.admitted.flights

    def by_row(self) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64], npt.NDArray[np.int32], npt.NDArray[np.int64]]:
        """Four facts of each row.

        Returns:
            The index of the flight that it waits for, or `KNOWN`; its key's number among the m, or -1; how many matches the cache
            knew; where it finds its matches: its key's position in the flight, or where they begin among those found.
        """
        found, missed = self.admitted.found, self.admitted.missed
        flight = np.full(len(found.hit), KNOWN, np.int32)
        flight[missed] = self.admitted.flight_of
        place = run_starts(found.counts)
        place[missed] = self.admitted.position_in
        key = np.arange(len(found.hit))
        if self.asked is not None:
            flight, key = self._over_all_rows(flight, KNOWN), self._over_all_rows(key, -1)
        return flight, key, self._over_all_rows(found.counts), self._over_all_rows(place)

    def joined(self) -> Joined:
        """All n rows with their matches, once every flight has landed."""
        found, missed = self.admitted.found, self.admitted.missed
        if not len(missed):
            return Joined(self._over_all_rows(found.counts), found.rows)
        counts, starts = found.counts.copy(), run_starts(found.counts)
        sources = [found.rows]
        before = found.rows.num_rows
        for number, flight in enumerate(self.admitted.flights):
            mine = self.admitted.flight_of == number
            positions, position_in = missed[mine], self.admitted.position_in[mine]
            counts[positions] = flight.counts[position_in]
            starts[positions] = flight.starts[position_in] + before
            sources.append(flight.landed_rows)
            before += flight.landed_rows.num_rows
        source = concat_rows(sources) if found.rows.num_columns else found.rows
        return Joined(self._over_all_rows(counts), source, self._over_all_rows(starts))

    def _over_all_rows(self, values: npt.NDArray[Number], other: int = 0) -> npt.NDArray[Number]:
        """Values of the m keys, at the places of their rows; `other` for the others."""
        if self.asked is None:
            return values
        spread = np.full(self.length, other, values.dtype)
        spread[self.asked] = values
        return spread
