"""A columnar cache in a map that all workers of an executor share."""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from srj.lookup.interface import CacheStats, Found
from srj.lookup.map_file import unnamed_map
from srj.lookup.map_lock import MapLock
from srj.lookup.moving import Abandoned, Move

if TYPE_CHECKING:
    import mmap
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager

    import numpy.typing as npt
    import pyarrow as pa

    from srj.lookup.cache import ColumnarCache
    from srj.lookup.keys import Keys
    from srj.lookup.layout import Geometry
    from srj.lookup.map_file import MapFile

_LOOK_AGAIN = 10.0  # seconds until a map that could not be had is looked for again


class SharedCache:
    """A `srj.lookup.interface.Cache` that several processes read and fill.

    Each change is made alone and marked while it goes on: who finds the mark without its maker, which was killed, empties the
    cache. So a killed worker costs a cold cache, and never a wrong row. Who can't get at the cache in time, because its holder is
    stopped, does without: its keys are asked of the database.

    A cache of another size takes the name of the one before, which says so in its header; every process then opens the new one.

    Args:
        map_file: the map.
        over: the cache over a map's memory; of these sizes, if the memory is new.
        again: opens the map that has the name now; None where it can't be had.
        patience: seconds to wait for another process.

    Attributes:
        maps: how many this process has had; the arrays of an earlier one are out of use.
    """

    def __init__(
        self,
        map_file: MapFile,
        over: Callable[[mmap.mmap, Geometry | None], ColumnarCache],
        again: Callable[[], MapFile | None] = lambda: None,
        patience: float = 0.25,
    ) -> None:
        self._over, self._again, self._patience = over, again, patience
        self._look_again, self._gives_up = float("-inf"), False
        self.maps = 0
        self._own = np.zeros(2, np.int64)  # evictions and refused answers of this process
        self._bypasses = 0
        self._begin(map_file, over(map_file.memory, None))

    def _begin(self, map_file: MapFile, cache: ColumnarCache) -> None:
        self._map_file, self._cache = map_file, cache
        self._lock = MapLock(map_file, self._patience)
        self.maps += 1

    def lookup(self, keys: Keys, now: float) -> Found:
        """Probe all keys; all are misses when another process keeps the cache for too long."""
        self._open_new()
        with self._lock.shared() as held:
            if held and not self._cache.is_torn:
                return self._cache.lookup(keys, now)
        if held:
            self._change(lambda _: None)
        else:
            self._bypasses += 1
        return Found(np.zeros(len(keys), np.bool_), np.zeros(len(keys), np.int32), self._cache.no_rows())

    def insert(self, keys: Keys, counts: npt.NDArray[np.int32], rows: pa.RecordBatch, started: float) -> None:
        """Remember answers, unless another process keeps the cache for too long."""
        self._change(lambda cache: cache.insert(keys, counts, rows, started))

    @property
    def most_hits(self) -> int:
        """Keys that a probe can bring out at once."""
        return self._cache.most_hits

    @property
    def notes(self) -> npt.NDArray[np.float64]:
        """Numbers that all processes see; nobody locks them."""
        return self._cache.notes

    def clear(self) -> None:
        """Forget everything, for all processes."""
        self._change(lambda cache: cache.clear())

    @property
    def geometry(self) -> Geometry:
        """Its present sizes."""
        return self._cache.geometry

    def stats(self) -> CacheStats:
        """Its present state; evictions, refused answers and bypasses are this process's own."""
        evictions, refused = self._own.tolist()
        return replace(self._cache.stats(), evictions=evictions, refused=refused, bypasses=self._bypasses)

    def resize(self, geometry: Geometry, nbytes: int, turn: AbstractContextManager[object]) -> bool:
        """Put a cache of another size in the place of this one, for all processes, with its entries as far as there is room.

        May be called beside the other methods, from a thread of its own; others wait for milliseconds at a time, at its end for
        some tens of them where the cache is large.

        Args:
            geometry, nbytes: sizes of the new one, and of its block.
            turn: what this process's threads hold when they use the cache.

        Returns:
            Whether it was done: not where there is no room for both, or the cache can't be had just now.
        """
        old, map_file, lock = self._cache, self._map_file, self._lock

        @contextmanager
        def reading() -> Iterator[bool]:
            with turn, lock.shared() as held:
                yield held and self._cache is old and not old.is_moved and not self._gives_up

        made = unnamed_map(map_file.path, nbytes)
        if made is None:
            return False
        try:
            new = self._over(made.memory, geometry)
            move = Move(old, new)
            move.bulk(reading)
            with turn, lock.exclusive() as held:
                if not held or self._cache is not old or old.is_moved or self._gives_up or not map_file.has_name:
                    raise Abandoned
                move.rest()
                # Before the name: who finds that nothing new has the name yet goes on with the old one.
                old.is_moved = True
                try:
                    made.take_name()
                except OSError:
                    old.is_moved = False
                    raise Abandoned from None
                self._begin(made, new)
        except Abandoned:
            made.close()
            return False
        except BaseException:
            made.close()
            raise
        lock.close()
        map_file.close()
        return True

    def give_up_resizing(self) -> None:
        """A change of size that goes on ends at its next part."""
        self._gives_up = True

    def close(self) -> None:
        """Leave the map to the other processes."""
        self._gives_up = True
        self._lock.close()
        self._map_file.close()

    def _open_new(self) -> None:
        """Open the map that has the name now, if this one is out of use."""
        if not self._cache.is_moved or time.monotonic() < self._look_again:
            return
        if self._map_file.has_name:
            # Its successor's maker was killed at the last moment, or is about to give it the name.
            with self._lock.exclusive() as held:
                if held and self._map_file.has_name:
                    self._cache.is_moved = False
            return
        made = self._again()
        if made is None:  # no room for it: the old one serves this process still
            self._look_again = time.monotonic() + _LOOK_AGAIN
            return
        before, lock = self._map_file, self._lock
        self._begin(made, self._over(made.memory, None))
        lock.close()
        before.close()

    def _change(self, change: Callable[[ColumnarCache], None]) -> None:
        while True:
            self._open_new()
            with self._lock.exclusive() as held:
                cache = self._cache
                if not held:
                    self._bypasses += 1
                    return
                if cache.is_moved and time.monotonic() >= self._look_again:
                    continue  # while this process waited
                if cache.is_torn:
                    cache.clear()
                before = _counted(cache.stats())
                cache.is_torn = True
                change(cache)
                cache.is_torn = False
                self._own += np.subtract(_counted(cache.stats()), before)
                return


def _counted(stats: CacheStats) -> Sequence[int]:
    return stats.evictions, stats.refused
