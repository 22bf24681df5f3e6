"""How fast the columnar cache is, next to cachetools' LRU for finding keys and to Arrow's own `take` for copying rows out.

A million entries, batches of 10,000 keys that are all hits, seven alternating pairs, medians. Run it as
``python benchmarks/cache_speed.py``; it takes about a minute.
"""

from __future__ import annotations

from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING

import cachetools
import numpy as np
import pyarrow as pa

from srj.lookup.cache import ColumnarCache
from srj.lookup.keys import Keys

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

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


def nanoseconds(work: Callable[[int], object]) -> float:
    """Mean time a key of `BATCHES` batches."""
    begin = perf_counter()
    for number in range(BATCHES):
        work(number)
    return (perf_counter() - begin) / (BATCHES * BATCH) * 1e9


def compare(title: str, ours: Callable[[int], object], theirs: Callable[[int], object]) -> None:
    """Alternate the two and print medians and the median ratio."""
    pairs = [(nanoseconds(ours), nanoseconds(theirs)) for _ in range(PAIRS + 1)][1:]
    ratio = median(b / a for a, b in pairs)
    a, b = (median(side) for side in zip(*pairs, strict=True))
    print(f"{title:<58} {a:7.0f} ns {b:7.0f} ns   ratio {ratio:5.2f}")


def compare_probe(title: str, keys: Keys, picks: Sequence[np.ndarray]) -> None:
    """Probe and touch, without columns, against a lookup in cachetools' LRU."""
    cache, _ = filled(NOTHING, keys)
    exact: cachetools.LRUCache[object, int] = cachetools.LRUCache(2 * ENTRIES)
    for position, key in enumerate(keys.values()):
        exact[key] = position
    batches = [keys.take(pick) for pick in picks]
    values = [batch.values() for batch in batches]
    compare(title, lambda number: cache.lookup(batches[number], 1.0), lambda number: [exact[key] for key in values[number]])


def main() -> None:
    """Print one line a comparison: ours, theirs, theirs / ours."""
    rng = np.random.default_rng(1)
    numbers = rng.permutation(np.arange(ENTRIES) * 7919)
    integers = Keys((pa.array(numbers),))
    texts = Keys((pa.array(np.char.mod("%016d", numbers)),))
    picks = [rng.integers(0, ENTRIES, BATCH) for _ in range(BATCHES)]
    batches = [integers.take(pick) for pick in picks]
    print(f"{'ns a key':<58} {'ours':>10} {'theirs':>10}")
    compare_probe("probe + touch, int64 keys; cachetools.LRUCache", integers, picks)
    compare_probe("probe + touch, 16-byte string keys; cachetools.LRUCache", texts, picks)
    cache, spent = filled(COLUMNS, integers)
    entries = cache._entries  # noqa: SLF001 - the gather alone
    ways = [entries.placement.find(cache.encode(batch)).ways for batch in batches]
    table = rows_of(np.arange(ENTRIES))
    # Arrow takes from rows in the very order in which the cache holds them, so both read the same places of memory.
    held = table.take(pa.array(np.argsort(entries.placement.find(cache.encode(integers)).ways)))
    ranks = np.argsort(np.argsort(entries.placement.find(cache.encode(integers)).ways))
    indices = [pa.array(ranks[pick]) for pick in picks]
    compare(
        "gather of string, double, int32; pyarrow take",
        lambda number: entries.columns.gather(ways[number]),
        lambda number: [column.take(indices[number]) for column in held.columns],
    )
    compare(
        "whole lookup with 3 columns; pyarrow take alone",
        lambda number: cache.lookup(batches[number], 1.0),
        lambda number: [column.take(indices[number]) for column in held.columns],
    )
    print(f"{'insert with 3 columns':<58} {spent / ENTRIES * 1e9:7.0f} ns")


if __name__ == "__main__":
    main()
