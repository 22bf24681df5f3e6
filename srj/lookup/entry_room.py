"""What an entry of the cache takes, by what the cache holds and by what has been answered, and a geometry for so many."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from srj.lookup.layout import WAYS

if TYPE_CHECKING:
    from collections.abc import Callable

    from srj.lookup.interface import CacheStats
    from srj.lookup.layout import Contents, Geometry

_PARTS = 8  # of the memory of values, as it is divided: each has to hold the heaviest entry
_ENOUGH = 500  # entries that tell how long values are: of so many the mean is right within 5 % where they spread as far as it
_MARGIN = 1.3  # times that mean is made room for, as later ones may be longer
_ROOMY = 1.5  # times that, where there is room: the fuller the memory of values, the more of them are moved for a new one
_MANY_SETS = 10_000  # by which the bytes of an entry are told
_NEARLY = 1.1  # times the room: what takes more is no matter of rounding
_CROWDED = 0.1  # of the answers found no room: then what the cache holds does not tell what rows take
_OTHER = 1.25  # times what rows took: then they are others


class Answered(NamedTuple):
    """What has been answered so far.

    Attributes:
        keys: how many.
        rows: of these keys, and of one more that the table's description lets expect.
        nbytes: that these rows take in Arrow.
    """

    keys: int
    rows: float
    nbytes: float

    def since(self, before: Answered) -> tuple[float, float]:
        """The bytes and the rows of a key, on average of those answered after the others."""
        keys = self.keys - before.keys
        return (self.nbytes - before.nbytes) / keys, (self.rows - before.rows) / keys


_NOTHING = Answered(-1, 0.0, 0.0)


class Measured(Protocol):
    """A cache that tells its state."""

    def stats(self) -> CacheStats:
        """The present one."""
        ...


class EntryRoom:
    """What a cache's entries take.

    Args:
        cache: as it is, whoever has made it so.
        contents: what it holds.
        answered: what has been.

    Attributes:
        nbytes: of the cache.
        entries: that it has room for, their values too.
        per_entry: bytes.
        outside, heaviest: bytes of an entry's values outside their views, with a margin; and of the heaviest so far.
        paged: pages of an entry, with a margin; None: no key has several rows.
        is_crowded: of late much of what was answered found no room.
    """

    def __init__(self, cache: Measured, contents: Contents, answered: Callable[[], Answered]) -> None:
        self._cache, self._contents, self._answered = cache, contents, answered
        self._late = answered().since(_NOTHING)
        self._divided = self._fitted = 0.0, 0.0
        self.begin()
        self.measure()

    def look(self) -> None:
        """Only how large the cache is."""
        self.nbytes = self._cache.stats().bytes_reserved

    @property
    def is_known(self) -> bool:
        """Whether any row has been seen: before, there is only the table's description."""
        return bool(self._answered().keys or self._cache.stats().entries)

    def measure(self) -> None:
        """Look at the cache, and at what its rows take."""
        stats = self._cache.stats()
        self.nbytes, self.entries = stats.bytes_reserved, stats.capacity
        self._note(stats)
        # Its present rows say better than the description's estimates what a value takes, and how many a key has.
        outside, paged = (stats.outside / stats.entries, stats.pages_used / stats.entries) if stats.entries else (0.0, 0.0)
        if stats.entries < _ENOUGH or self.is_crowded:
            # What was answered says it too: a cache that is too small for such rows keeps none, and would stay so.
            nbytes, rows = self._late if self.is_crowded else self._answered().since(_NOTHING)
            answered, pages = max(nbytes - rows * self._contents.inline_bytes, 0.0), self._contents.pages_of(rows)
            outside = max(outside, answered)
            paged = max(paged, pages)
        # Where the heaviest so far is hardly more than the others, later ones will not be either; if it was kept, that is.
        margin = min(_MARGIN, stats.heaviest / outside) if 0 < outside <= stats.heaviest and not self.is_crowded else _MARGIN
        self.outside, self.heaviest = margin * outside, stats.heaviest
        self.paged = _MARGIN * paged if paged else None
        if outside and stats.outside_room:
            self.entries = min(self.entries, int(stats.outside_room / outside))
        if paged:
            self.entries = min(self.entries, int(stats.pages / paged))
        geometry = self._contents.geometry(_MANY_SETS, self.outside, paged=self.paged)
        self.per_entry = self._contents.size(geometry) / (WAYS * _MANY_SETS)

    def begin(self) -> None:
        """What found no room until now says nothing of what will."""
        self._noted, self._refused, self.is_crowded = self._answered(), self._cache.stats().refused, False

    def moved(self) -> None:
        """The cache has the last `geometry`."""
        self._fitted = self._divided
        self.begin()

    def for_such_rows(self) -> int | None:
        """As many entries as the cache's present bytes hold, divided for the rows of late; None: they were already, for such."""
        of_rows = self.outside, self.paged or 0.0
        is_fit = all(new <= _OTHER * old for new, old in zip(of_rows, self._fitted, strict=True))
        return None if is_fit else max(int(self.nbytes / self.per_entry), 1)

    def geometry(self, entries: int, most: int, *, least_waiting: float, is_ample: bool) -> tuple[Geometry, int] | None:
        """The sizes of a cache for so many, and its bytes.

        Args:
            entries: wanted.
            most: bytes.
            least_waiting: bytes: for an entry of which eight take more no part of the memory of values is made.
            is_ample: give values more room than they need.

        Returns:
            None where even a few take more.
        """
        self._divided = self.outside, self.paged or 0.0
        sets = max(2, -(-entries // WAYS))
        # Of whole sets a few entries may be more than have room for their values.
        outside = self.outside * (_ROOMY if is_ample else 1.0) * min(entries / (sets * WAYS), 1.0)
        heaviest = self.heaviest if self.heaviest * _PARTS <= least_waiting else 0
        geometry = self._contents.geometry(sets, outside, heaviest, self.paged)
        while most < (nbytes := self._contents.size(geometry)) <= _NEARLY * most and sets > 2:
            # Where all is wanted that memory holds, whole sets and pages take a little more than their entries.
            sets -= max(1, sets // 64)
            geometry = self._contents.geometry(sets, outside, heaviest, self.paged)
        return (geometry, nbytes) if nbytes <= most else None

    def _note(self, stats: CacheStats) -> None:
        """What has been answered of late, and whether much of it found no room."""
        answered = self._answered()
        keys = answered.keys - self._noted.keys
        if keys >= _ENOUGH:
            self._late = answered.since(self._noted)
            self.is_crowded = stats.refused - self._refused >= _CROWDED * keys
            self._noted, self._refused = answered, stats.refused
