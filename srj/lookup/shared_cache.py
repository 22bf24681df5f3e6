"""A columnar cache in a map that all workers of an executor share."""

from __future__ import annotations

import time
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from srj.lookup.interface import CacheStats, Found
from srj.lookup.map_file import replace_map
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

_LOOK_AGAIN = 1.0  # seconds until a map that could not be had is looked for again


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
        self._look_again = float("-inf")
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
        self._follow()
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

    def stats(self) -> CacheStats:
        """Its present state; evictions, refused answers and bypasses are this process's own."""
        evictions, refused = self._own.tolist()
        return replace(self._cache.stats(), evictions=evictions, refused=refused, bypasses=self._bypasses)

    def resize(self, geometry: Geometry, nbytes: int, turn: AbstractContextManager[object]) -> bool:
        """Put a cache of another size in the place of this one, for all processes, with its entries as far as there is room.

        May be called beside the other methods, from a thread of its own; others wait for some milliseconds at a time.

        Args:
            geometry, nbytes: sizes of the new one, and of its block.
            turn: what this process's threads hold when they use the cache.

        Returns:
            Whether it was done: not where there is no room for both, or the cache can't be had just now.
        """
        new = old = self._cache
        lock = self._lock

        @contextmanager
        def reading() -> Iterator[bool]:
            with turn, lock.shared() as held:
                yield held and self._cache is old and not old.is_moved

        with ExitStack() as alone:

            def fill(memory: mmap.mmap) -> None:
                nonlocal new
                new = self._over(memory, geometry)
                move = Move(old, new)
                move.bulk(reading)
                alone.enter_context(turn)
                if not alone.enter_context(lock.exclusive()) or self._cache is not old or old.is_moved:
                    raise Abandoned
                move.rest()
                # Before the file has its name: who finds that nothing has that name yet goes on with the old one.
                old.is_moved = True

            try:
                made = replace_map(self._map_file.path, nbytes, fill)
            except Abandoned:
                return False
            except BaseException:
                old.is_moved = False
                raise
            if made is None:
                old.is_moved = False
                return False
            before = self._map_file
            self._begin(made, new)
        lock.close()
        before.close()
        return True

    def close(self) -> None:
        """Leave the map to the other processes."""
        self._lock.close()
        self._map_file.close()

    def _follow(self) -> None:
        """Open the map that has the name now, if it is another one."""
        if not self._cache.is_moved or time.monotonic() < self._look_again:
            return
        made = self._again()
        if made is not None and made.identity != self._map_file.identity:
            before, lock = self._map_file, self._lock
            self._begin(made, self._over(made.memory, None))
            lock.close()
            before.close()
            return
        # No room for it; or its maker was killed at the last moment. The old one serves this process still.
        self._look_again = time.monotonic() + _LOOK_AGAIN
        if made is not None:
            made.close()
            with self._lock.exclusive() as held:
                if held:
                    self._cache.is_moved = False

    def _change(self, change: Callable[[ColumnarCache], None]) -> None:
        self._follow()
        with self._lock.exclusive() as held:
            cache = self._cache
            if not held:
                self._bypasses += 1
                return
            if cache.is_torn:
                cache.clear()
            before = _counted(cache.stats())
            cache.is_torn = True
            change(cache)
            cache.is_torn = False
            self._own += np.subtract(_counted(cache.stats()), before)


def _counted(stats: CacheStats) -> Sequence[int]:
    return stats.evictions, stats.refused
