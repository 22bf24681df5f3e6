"""A columnar cache of one process alone whose size can be changed."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from srj.errors import RequestError
from srj.lookup.moving import Abandoned, Move

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    from srj.lookup.cache import ColumnarCache
    from srj.lookup.interface import CacheStats, Found
    from srj.lookup.keys import Keys
    from srj.lookup.layout import Geometry


class PrivateCache:
    """A `srj.lookup.interface.Cache` in memory of its own.

    Args:
        over: makes a cache of these sizes; None: of the size to begin with.

    Attributes:
        maps: how many caches it has been; the arrays of an earlier one are out of use.
    """

    def __init__(self, over: Callable[[None, Geometry | None], ColumnarCache]) -> None:
        self._over = over
        self._cache = over(None, None)
        self.maps = 1
        self._gives_up = False

    def lookup(self, keys: Keys, now: float) -> Found:
        """Probe all keys."""
        return self._cache.lookup(keys, now)

    def insert(self, keys: Keys, counts: npt.NDArray[np.int32], rows: pa.RecordBatch, started: float) -> None:
        """Remember answers."""
        self._cache.insert(keys, counts, rows, started)

    @property
    def most_hits(self) -> int:
        """Keys that a probe can bring out at once."""
        return self._cache.most_hits

    @property
    def notes(self) -> npt.NDArray[np.float64]:
        """Numbers that live as long as this cache."""
        return self._cache.notes

    def clear(self) -> None:
        """Forget everything."""
        self._cache.clear()

    @property
    def geometry(self) -> Geometry:
        """Its present sizes."""
        return self._cache.geometry

    def stats(self) -> CacheStats:
        """Its present state."""
        return self._cache.stats()

    def resize(self, geometry: Geometry, nbytes: int, turn: AbstractContextManager[object]) -> bool:  # noqa: ARG002  as a shared one's
        """Make it larger or smaller, with its entries as far as there is room; see `SharedCache.resize`."""
        try:
            new = self._over(None, geometry)
        except RequestError:  # no memory for both
            return False
        move = Move(self._cache, new)

        @contextmanager
        def reading() -> Iterator[bool]:
            with turn:
                yield not self._gives_up

        try:
            move.bulk(reading)
        except Abandoned:
            return False
        with turn:
            if self._gives_up:
                return False
            move.rest()
            self._cache = new
            self.maps += 1
        return True

    def give_up_resizing(self) -> None:
        """A change of size that goes on ends at its next part."""
        self._gives_up = True
