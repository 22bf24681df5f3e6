"""What a cache offers to the operator: `Cache`, and what a probe of it finds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    from srj.lookup.keys import Keys


@dataclass(frozen=True)
class Found:
    """What a cache knows of n keys.

    Attributes:
        hit: bool, n: the cache knows the key's answer, be it rows or the fact that there are none (a negative entry).
        counts: int32, n: rows of each key; 0 for a miss and for a negative entry.
        rows: the rows of all hits in the order of the keys, ``counts.sum()`` in all, in memory of their own.
    """

    hit: npt.NDArray[np.bool_]
    counts: npt.NDArray[np.int32]
    rows: pa.RecordBatch


@dataclass(frozen=True)
class CacheStats:
    """A cache's state and what has happened to it since it was made.

    Attributes:
        entries: keys held now, negative entries included.
        capacity: keys it can hold.
        bytes_used, bytes_reserved: memory in use and in all.
        evictions: entries removed to make room.
        refused: answers too large to be kept, or found no place: served, not cached.
        bypasses: probes and inserts that did without the cache, for another process kept it for too long.
        outside, outside_room: bytes that values take outside their views, and that they could.
        heaviest: the most that those of one key have taken.
        pages, pages_used: for the further rows of keys with several, in all and in use.
    """

    entries: int
    capacity: int
    bytes_used: int
    bytes_reserved: int
    evictions: int
    refused: int
    bypasses: int = 0
    outside: int = 0
    outside_room: int = 0
    heaviest: int = 0
    pages: int = 0
    pages_used: int = 0


class Cache(Protocol):
    """Remembers the rows of keys, and which keys have none, for a time, within a bound of memory.

    Not thread-safe: its user holds a lock. Never returns another key's rows: stored keys are compared in full.
    """

    def lookup(self, keys: Keys, now: float) -> Found:
        """Probe all keys (doubles allowed) and copy out the rows of those that are known and not expired at `now`."""
        ...

    def insert(self, keys: Keys, counts: npt.NDArray[np.int32], rows: pa.RecordBatch, started: float) -> None:
        """Remember the answers of distinct keys, found by a lookup that started at `started`.

        An entry expires `ttl` after `started` (`missing_ttl` where ``counts`` is 0). A key already present is replaced,
        unless the entry present comes from a lookup that started later.

        Args:
            keys: n distinct keys.
            counts: rows of each key, n.
            rows: ``counts.sum()`` rows, in the order of the keys, with the Arrow types of the table's columns.
            started: seconds, on the clock that `lookup` is given.
        """
        ...

    @property
    def most_hits(self) -> int:
        """Keys that a probe can bring out at once; where more are known, the rest count as misses."""
        ...

    @property
    def notes(self) -> npt.NDArray[np.float64] | None:
        """Numbers that live as long as the entries do, for whoever uses the cache, zero at first and not forgotten by `clear`."""
        ...

    def clear(self) -> None:
        """Forget everything."""
        ...

    def stats(self) -> CacheStats:
        """Its present state."""
        ...
