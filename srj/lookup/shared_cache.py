"""A columnar cache in a map that all workers of an executor share."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from srj.lookup.interface import CacheStats, Found
from srj.lookup.map_lock import MapLock

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy.typing as npt
    import pyarrow as pa

    from srj.lookup.cache import ColumnarCache
    from srj.lookup.keys import Keys
    from srj.lookup.map_file import MapFile


class SharedCache:
    """A `srj.lookup.interface.Cache` that several processes read and fill.

    Each change is made alone and marked while it goes on: who finds the mark without its maker, which was killed, empties the
    cache. So a killed worker costs a cold cache, and never a wrong row. Who can't get at the cache in time, because its holder is
    stopped, does without: its keys are asked of the database.

    Args:
        cache: over the map's memory.
        map_file: the map.
        patience: seconds to wait for another process.
    """

    def __init__(self, cache: ColumnarCache, map_file: MapFile, patience: float = 0.25) -> None:
        self._cache = cache
        self._map_file = map_file
        self._lock = MapLock(map_file, patience)
        self._own = np.zeros(2, np.int64)  # evictions and refused answers of this process
        self._bypasses = 0

    def lookup(self, keys: Keys, now: float) -> Found:
        """Probe all keys; all are misses when another process keeps the cache for too long."""
        with self._lock.shared() as held:
            if held and not self._cache.is_torn:
                return self._cache.lookup(keys, now)
        if held:
            self._change(lambda: None)
        else:
            self._bypasses += 1
        return Found(np.zeros(len(keys), np.bool_), np.zeros(len(keys), np.int32), self._cache.no_rows())

    def insert(self, keys: Keys, counts: npt.NDArray[np.int32], rows: pa.RecordBatch, started: float) -> None:
        """Remember answers, unless another process keeps the cache for too long."""
        self._change(lambda: self._cache.insert(keys, counts, rows, started))

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
        self._change(self._cache.clear)

    def stats(self) -> CacheStats:
        """Its present state; evictions, refused answers and bypasses are this process's own."""
        evictions, refused = self._own.tolist()
        return replace(self._cache.stats(), evictions=evictions, refused=refused, bypasses=self._bypasses)

    def close(self) -> None:
        """Leave the map to the other processes."""
        self._lock.close()
        self._map_file.close()

    def _change(self, change: Callable[[], None]) -> None:
        cache = self._cache
        with self._lock.exclusive() as held:
            if not held:
                self._bypasses += 1
                return
            if cache.is_torn:
                cache.clear()
            before = _counted(cache.stats())
            cache.is_torn = True
            change()
            cache.is_torn = False
            self._own += np.subtract(_counted(cache.stats()), before)


def _counted(stats: CacheStats) -> Sequence[int]:
    return stats.evictions, stats.refused
