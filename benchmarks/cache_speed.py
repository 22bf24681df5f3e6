"""How fast the columnar cache is, next to Python's LRU caches for finding keys and to Arrow's own `take` for copying rows out.

A million entries, batches of 10,000 keys that are all hits, medians of seven turns. Run it as
``python benchmarks/cache_speed.py``; it takes a minute or two.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Any

import cachebox
import cachetools
import lru
import numpy as np
import pyarrow as pa

from srj.lookup.cache import ColumnarCache
from srj.lookup.keys import Keys
from srj.lookup.layout import Contents
from srj.lookup.map_file import open_map
from srj.lookup.shared_cache import SharedCache

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Work = Callable[[int], object]
    Rival = tuple[str, Callable[[int], Any]]

ENTRIES = 1_000_000
BATCH = 10_000
BATCHES = 30
PAIRS = 7
COLUMNS = pa.schema({"name": pa.string(), "price": pa.float64(), "stock": pa.int32()})
NOTHING = pa.schema([])


def rows_of(numbers: np.ndarray) -> pa.RecordBatch:
    """A string of 16 bytes, a double and an integer for each number."""
    name = pa.array(np.char.mod("product %08d", numbers))
    return pa.record_batch([name, pa.array(numbers * 1.5), pa.array(numbers, pa.int32())], schema=COLUMNS)


def filled(columns: pa.Schema, keys: Keys) -> tuple[ColumnarCache, float]:
    """A cache that knows all keys, and seconds that the inserts took."""
    options = {"size_bytes": None, "ttl": 600.0, "missing_ttl": 60.0, "unique": True}
    cache = ColumnarCache([column.type for column in keys.columns], columns, size_rows=2 * ENTRIES, **options)
    spent = 0.0
    for start in range(0, ENTRIES, BATCH):
        part = keys.slice(start, BATCH)
        rows = rows_of(np.arange(start, start + BATCH))
        if not len(columns):
            rows = rows.select([])
        begin = perf_counter()
        cache.insert(part, np.ones(BATCH, np.int32), rows, started=0.0)
        spent += perf_counter() - begin
    if cache.stats().entries != ENTRIES:
        raise AssertionError("every key has to be in the cache")
    return cache, spent


def nanoseconds(work: Work) -> float:
    """Mean time a key of `BATCHES` batches."""
    begin = perf_counter()
    for number in range(BATCHES):
        work(number)
    return (perf_counter() - begin) / (BATCHES * BATCH) * 1e9


def compare(title: str, ours: Work, *theirs: Work, bar: float | None = None) -> bool:
    """Take turns, print medians and the median ratio to the faster of the others, and say whether that reaches the bar."""
    turns = [[nanoseconds(work) for work in (ours, *theirs)] for _ in range(PAIRS + 1)][1:]
    ratio = median(min(others) / own for own, *others in turns)
    own, *others = (median(side) for side in zip(*turns, strict=True))
    is_reached = bar is None or ratio >= bar
    verdict = "" if bar is None else f"  bar {bar:.2f}{'' if is_reached else ', MISSED'}"
    print(f"{title:<58} {own:7.0f} {min(others):7.0f}   ratio {ratio:5.2f}{verdict}", flush=True)
    return is_reached


def shared_cache(folder: Path, keys: Keys) -> SharedCache:
    """The executor's cache, in a map and behind its lock, that knows all keys."""
    types, size = [column.type for column in keys.columns], {"size_bytes": None, "size_rows": 2 * ENTRIES}

    def over(memory: Any) -> ColumnarCache:
        return ColumnarCache(types, NOTHING, ttl=600.0, missing_ttl=60.0, unique=True, memory=memory, **size)

    map_file = open_map(folder, "one", Contents.of(types, NOTHING, unique=True).nbytes(**size), over)
    if map_file is None:
        raise OSError(f"expected room for a cache in {folder}, got none")
    cache = SharedCache(map_file, lambda memory, _: over(memory))
    for start in range(0, ENTRIES, BATCH):
        cache.insert(keys.slice(start, BATCH), np.ones(BATCH, np.int32), rows_of(np.arange(BATCH)).select([]), started=0.0)
    if cache.stats().entries != ENTRIES:
        raise AssertionError("every key has to be in the cache")
    return cache


def compare_probe(title: str, keys: Keys, picks: Sequence[np.ndarray], *rivals: tuple[float, list[Rival]]) -> bool:
    """Probe and touch the shared cache, without columns, against lookups one by one in the fastest form that Python has for them.

    Args:
        title: what the line begins with.
        keys: all that are stored.
        picks: positions of the keys of each batch.
        rivals: bars, each with the caches of whose faster one the time is at least that many times ours.
    """
    with tempfile.TemporaryDirectory() as folder:
        return _compare_probe(shared_cache(Path(folder) / "srj", keys), title, keys, picks, *rivals)


def _compare_probe(
    cache: SharedCache, title: str, keys: Keys, picks: Sequence[np.ndarray], *rivals: tuple[float, list[Rival]]
) -> bool:
    batches = [keys.take(pick) for pick in picks]
    # Every key is an object of its own, as those of a stream are.
    values = [batch.values() for batch in batches]
    reached = True
    for bar, several in rivals:
        lookups = [rival_lookup(make, keys, values) for _, make in several]
        name = " or ".join(name for name, _ in several)
        reached &= compare(f"{title}; {name}", lambda number: cache.lookup(batches[number], 1.0), *lookups, bar=bar)
    return reached


def rival_lookup(make: Callable[[int], Any], keys: Keys, values: list[list[Any]]) -> Work:
    """Look up a batch in a cache of the same entries."""
    rival = make(2 * ENTRIES)
    for position, key in enumerate(keys.values()):
        rival[key] = position
    get = rival.__getitem__
    return lambda number: list(map(get, values[number]))


def compare_gather(integers: Keys, picks: Sequence[np.ndarray]) -> bool:
    """Copy rows out, alone and after a probe, against `take` of the same rows."""
    cache, spent = filled(COLUMNS, integers)
    batches = [integers.take(pick) for pick in picks]
    entries = cache._entries  # noqa: SLF001 - the gather alone
    ways = [entries.placement.find(cache.encode(batch)).ways for batch in batches]
    # Arrow takes from rows in the very order in which the cache holds them, so both read the same places of memory.
    order = np.argsort(entries.placement.find(cache.encode(integers)).ways)
    held = rows_of(np.arange(ENTRIES)).take(pa.array(order))
    ranks = np.argsort(order)
    indices = [pa.array(ranks[pick]) for pick in picks]

    def take(number: int) -> list[pa.Array]:
        return [column.take(indices[number]) for column in held.columns]

    title = "gather of string, double, int32; pyarrow take"
    reached = compare(title, lambda number: entries.columns.gather(ways[number]), take, bar=1 / 1.5)
    compare("whole lookup with 3 columns; pyarrow take alone", lambda number: cache.lookup(batches[number], 1.0), take)
    print(f"{'insert with 3 columns':<58} {spent / ENTRIES * 1e9:7.0f}")
    return reached


def main() -> int:
    """Print one line a comparison: ours, theirs, theirs / ours; 1 if a bar is missed."""
    rng = np.random.default_rng(1)
    numbers = rng.permutation(np.arange(ENTRIES) * 7919)
    integers = Keys((pa.array(numbers),))
    texts = Keys((pa.array(np.char.mod("%016d", numbers)),))
    picks = [rng.integers(0, ENTRIES, BATCH) for _ in range(BATCHES)]
    exact: list[Rival] = [("cachetools", cachetools.LRUCache)]
    compiled: list[Rival] = [("cachebox", cachebox.LRUCache), ("lru-dict", lru.LRU)]
    print(f"{'ns a key':<58} {'ours':>7} {'theirs':>7}")
    reached = compare_probe("probe + touch, int64 keys", integers, picks, (6.0, exact), (2.0, compiled))
    reached &= compare_probe("probe + touch, 16-byte string keys", texts, picks, (3.0, exact))
    reached &= compare_gather(integers, picks)
    return not reached


if __name__ == "__main__":
    sys.exit(main())
