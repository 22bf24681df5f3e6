"""A cache over any `cachetools.Cache`: one Python object a key. Slower than the columnar cache, and plain to see through."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import cachetools
import numpy as np
import pyarrow as pa

from srj.errors import RequestError
from srj.lookup.interface import CacheStats, Found
from srj.lookup.keys import Keys

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    import numpy.typing as npt

# One for each cachetools cache in use, by its id: two lookups may be given the same, and cachetools has no locks.
_locks: WeakValueDictionary[int, Lock] = WeakValueDictionary()


@dataclass(frozen=True, slots=True)
class Entry:
    """What is known of a key: the values that a cachetools cache holds, and that its `getsizeof` is given.

    Attributes:
        started: seconds, when the lookup behind it started.
        rows: a tuple of values for each row; dates and times as Arrow's integers.
    """

    started: float
    rows: tuple[tuple[Any, ...], ...]


class ReferenceCache:
    """A `srj.lookup.interface.Cache` over a cache made by a factory, which decides what leaves.

    Args:
        factory: makes the `cachetools.Cache`, for example ``lambda: cachetools.LFUCache(100_000)``. It bounds the number of
            entries, or what its own `getsizeof` says of an `Entry`; bytes are neither bounded nor measured. Where it gives the
            same cache to several lookups, each has keys of its own there.
        columns: the rows' columns.
        ttl: seconds from the start of its lookup until an entry expires; None: never.
        missing_ttl: the same for keys that have no rows.

    Raises:
        RequestError: the factory makes something else, or a cache that can't hold an `Entry`.

    Example:
        >>> cache = ReferenceCache(lambda: cachetools.LRUCache(100), pa.schema({"name": pa.string()}), ttl=60.0, missing_ttl=1.0)
        >>> cache.insert(Keys((pa.array([7]),)), np.array([1], np.int32), pa.record_batch({"name": ["anna"]}), started=0.0)
        >>> cache.lookup(Keys((pa.array([7, 9]),)), now=0.5).hit.tolist()
        [True, False]
    """

    def __init__(
        self,
        factory: Callable[[], cachetools.Cache[Any, Entry]],
        columns: pa.Schema,
        *,
        ttl: float | None,
        missing_ttl: float | None,
    ) -> None:
        self._entries = factory()
        if not isinstance(self._entries, cachetools.Cache):
            raise RequestError(
                f"expected a factory that makes a cachetools.Cache, got one that makes a {type(self._entries).__name__}; "
                "give for example lambda: cachetools.LFUCache(100_000)"
            )
        self._columns = columns
        self._ttl = ttl
        self._missing_ttl = missing_ttl
        self._evictions = 0
        self._refused = 0
        self._own = object()  # a part of each key
        self._lock = _locks.setdefault(id(self._entries), Lock())
        self._try()

    def _try(self) -> None:
        """Find now, not in the stream, that the cache does not take entries: here that of a key without rows."""
        key = (self._own, None)
        try:
            with self._lock, suppress(ValueError):  # cachetools' word for a value larger than the whole cache
                self._entries[key] = Entry(0.0, ())
                self._entries.pop(key, None)
        except Exception as error:
            raise RequestError(
                "expected a cachetools cache that takes srj's entries, whose rows are the tuples in entry.rows, got "
                f"{type(error).__name__}: {error}; give a getsizeof such as lambda entry: len(entry.rows), or none"
            ) from error

    def lookup(self, keys: Keys, now: float) -> Found:
        """Probe all keys (doubles allowed) and copy out the rows of those that are known and not expired at `now`."""
        with self._lock:
            found = [self._find((self._own, key), now) for key in _plain_keys(keys)]
        hit = np.array([entry is not None for entry in found], np.bool_)
        counts = np.array([0 if entry is None else len(entry.rows) for entry in found], np.int32)
        rows = [row for entry in found if entry is not None for row in entry.rows]
        return Found(hit, counts, self._batch(rows))

    def _find(self, key: Hashable, now: float) -> Entry | None:
        try:
            entry = self._entries[key]
        except KeyError:
            return None
        ttl = self._ttl if entry.rows else self._missing_ttl
        if ttl is not None and entry.started + ttl <= now:
            self._entries.pop(key, None)
            return None
        return entry

    def insert(self, keys: Keys, counts: npt.NDArray[np.int32], rows: pa.RecordBatch, started: float) -> None:
        """Remember the answers of distinct keys (see `srj.lookup.interface.Cache.insert`)."""
        values = self._rows(rows)
        stops = counts.cumsum(dtype=np.int64)
        with self._lock:
            for key, start, stop in zip(_plain_keys(keys), (stops - counts).tolist(), stops.tolist(), strict=True):
                self._put((self._own, key), Entry(started, tuple(values[start:stop])))

    def _put(self, key: Hashable, entry: Entry) -> None:
        # The base class's own method, so that the policy does not take this for a use of the entry.
        present = cachetools.Cache.__getitem__(self._entries, key) if key in self._entries else None
        if present is not None and present.started > entry.started:
            return
        before = len(self._entries)
        try:
            self._entries[key] = entry
        except ValueError:  # cachetools' word for a value larger than the whole cache
            self._refused += 1
            self._entries.pop(key, None)
            return
        self._evictions += before + (present is None) - len(self._entries)

    @property
    def most_hits(self) -> int:
        """As many as one likes: the engine has seen all of their rows."""
        return 2**62

    @property
    def notes(self) -> None:
        """None: it has no memory of its own."""
        return None

    def clear(self) -> None:
        """Forget everything, other lookups' entries in the same cachetools cache included."""
        with self._lock:
            self._entries.clear()

    def stats(self) -> CacheStats:
        """Its present state; bytes are not measured and said to be 0."""
        return CacheStats(len(self._entries), int(self._entries.maxsize), 0, 0, self._evictions, self._refused)

    def _rows(self, rows: pa.RecordBatch) -> list[tuple[Any, ...]]:
        if not rows.num_columns:
            return [()] * rows.num_rows
        return list(zip(*(_plain(column).to_pylist() for column in rows.columns), strict=True))

    def _batch(self, rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
        if not len(self._columns):
            return pa.RecordBatch.from_arrays([pa.nulls(len(rows))], ["none"]).select([])
        columns = zip(*rows, strict=True) if rows else [()] * len(self._columns)
        arrays = [
            pa.array(values, _plain_type(field.type)).view(field.type) for values, field in zip(columns, self._columns, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._columns)


def _plain_type(type_: pa.DataType) -> pa.DataType:
    """Integers for dates and times: Python's own can't hold all that Arrow's can."""
    if pa.types.is_temporal(type_):
        return {32: pa.int32(), 64: pa.int64()}.get(type_.bit_width, type_)
    return type_


def _plain(column: pa.Array) -> pa.Array:
    plain = _plain_type(column.type)
    return column if plain == column.type else column.view(plain)


def _plain_keys(keys: Keys) -> list[Hashable]:
    return Keys(tuple(_plain(column) for column in keys.columns)).values()
