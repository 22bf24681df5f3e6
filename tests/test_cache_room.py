"""The memory of the columnar cache: all that was asked and no more, and what leaves when it is full."""

from __future__ import annotations

import resource
from pathlib import Path
from time import perf_counter
from typing import Any

import cachetools
import numpy as np
import pyarrow as pa
import pytest

from srj.cache_policies import Policy
from srj.errors import RequestError
from srj.lookup import cache as cache_module
from srj.lookup.cache import ColumnarCache
from srj.lookup.keys import Keys
from srj.lookup.layout import Contents, reserve
from srj.lookup.memory_limit import free_memory
from tests.cache_values import (
    ALL_COLUMNS,
    INT,
    NAME,
    Model,
    audit,
    make_cache,
    make_keys,
)


def test_a_tiny_heap_reclaims_its_segments_again_and_again_without_a_wrong_value() -> None:
    """Several hundred times the heap's bytes pass through it; hits stay right and a share of the keys stays cached."""
    types = (pa.string(),)
    schema = pa.schema({"a": pa.string(), "b": pa.int64(), "c": pa.binary()})
    cache = make_cache(types, schema, size_bytes=120_000, size_rows=None, widths=[100, 100, 0, 100], unique=False, rows_per_key=2)
    model = Model(types, schema, None, None)
    rng = np.random.default_rng(5)
    hits = 0
    for version in range(300):
        numbers = np.unique(rng.zipf(1.2, 150) % 500).tolist()
        hits += model.check(cache, numbers, 0.0)
        model.insert(cache, numbers, version, lambda number: number % 4, float(version))
        audit(cache)
    assert cache.stats().evictions > 1000
    assert hits > 5000
    assert cache.stats().bytes_used > 0.5 * cache.stats().bytes_reserved


def test_bytes_run_out_before_ways_do_and_the_entries_used_longest_ago_leave() -> None:
    """Values far wider than estimated: the cache keeps the most recently used keys."""
    cache = make_cache(size_rows=2000, widths=[0, 20])
    wide = lambda numbers: pa.record_batch({"name": [f"{number:0200d}" for number in numbers]})  # noqa: E731
    for start in range(0, 1000, 50):
        numbers = range(start, start + 50)
        cache.insert(Keys((pa.array(numbers),)), np.ones(50, np.int32), wide(numbers), 0.0)
        cache.lookup(Keys((pa.array(range(10)),)), 0.0)
    audit(cache)
    hit = cache.lookup(Keys((pa.array(range(1000)),)), 0.0).hit
    assert hit[:10].all()
    assert hit[-50:].all()
    assert not hit[10:500].any()


def insert_wide(cache: ColumnarCache, start: int, count: int, size: int) -> float:
    """Insert keys with values of so many bytes; seconds taken."""
    rows = pa.record_batch({"name": pa.array(["x" * size] * count)})
    keys = Keys((pa.array(np.arange(start, start + count)),))
    begin = perf_counter()
    cache.insert(keys, np.ones(count, np.int32), rows, 0.0)
    return perf_counter() - begin


@pytest.mark.parametrize("size", [1000, 10_000])
def test_values_far_wider_than_estimated_cost_little_more_and_fill_the_heap(size: int) -> None:
    """The price of a key depends on its bytes, not on the ways that stay empty; 85 % of the heap's bytes are in use."""
    medians = []
    for width in (size, 32):
        cache = make_cache(size_bytes=64_000_000, size_rows=None, widths=[0, width])
        count = 1_000_000 // size
        spent = [insert_wide(cache, number * count, count, size) for number in range(150)]
        medians.append(np.median(spent[80:]))
    geometry = cache.geometry
    assert medians[1] < 4 * medians[0]
    assert cache._entries.heap.live_bytes > 0.85 * geometry.segments * geometry.segment_bytes
    audit(cache)


def test_chains_of_pages_run_out_and_the_keys_used_longest_ago_leave() -> None:
    """Keys with several rows, among many more with one that need no pages."""
    cache = make_cache(schema=pa.schema({"n": pa.int64()}), unique=False, size_rows=8000)
    for start in range(0, 8000, 200):
        counts = np.where(np.arange(200) % 4 == 0, 9, 1).astype(np.int32)
        rows = pa.record_batch({"n": np.repeat(np.arange(start, start + 200), counts)})
        cache.insert(Keys((pa.array(range(start, start + 200)),)), counts, rows, 0.0)
        cache.lookup(Keys((pa.array(range(40)),)), 0.0)
        audit(cache)
    several = Keys((pa.array(range(0, 8000, 4)),))
    found = cache.lookup(several, 0.0)
    assert found.rows["n"].equals(pa.array(np.repeat(np.arange(0, 8000, 4), found.counts)))
    assert found.hit[:10].all()
    assert found.hit[-50:].all()
    assert not found.hit[50:1000].any()


def test_every_value_in_the_heap_is_found_from_its_segment() -> None:
    """The numbers beside the values name all views that point there, whose entries are those that hold them."""
    types, schema = (pa.string(), pa.binary()), pa.schema({"a": pa.string(), "b": pa.int32(), "c": pa.binary()})
    cache = make_cache(types, schema, size_bytes=300_000, size_rows=None, unique=False, rows_per_key=3.0)
    model = Model(types, schema, None, None)
    rng = np.random.default_rng(6)
    entries = cache._entries
    for version in range(40):
        model.insert(cache, rng.permutation(1500)[:300].tolist(), version, lambda number: number % 7, float(version))
        total = 0
        for segment in range(entries.heap.segments):
            numbers, lengths = entries.values_in(segment, entries.heap.numbers_in(segment))
            assert entries.placement.tags[entries.ways_of(numbers)].all()
            total += lengths.sum()
        assert total == entries.heap.live_bytes
    assert cache.stats().evictions > 1000


def test_reserved_statistics_cost_microseconds_at_any_size() -> None:
    """They are counters; the operator asks once a batch."""
    cache = make_cache(size_rows=1_000_000)
    for start in range(0, 900_000, 50_000):
        insert_wide(cache, start, 50_000, 20)
    spent = []
    for _ in range(200):
        begin = perf_counter()
        cache.stats()
        spent.append(perf_counter() - begin)
    assert cache.stats().entries > 850_000
    assert np.median(spent) < 50e-6


@pytest.mark.parametrize(("unique", "rows_per_key", "keys"), [(True, 1.0, 5_000), (False, 1.0, 5_000), (False, 10.0, 504)])
def test_a_size_in_rows_has_room_for_their_keys(unique: bool, rows_per_key: float, keys: int) -> None:
    """The rows that are spared where nothing promises one row a key are none of them."""
    contents = Contents.of(INT, NAME, unique=unique, rows_per_key=rows_per_key)
    assert contents.fit(None, 5_000).ways == keys


def test_whether_a_size_is_enough_is_found_without_reserving_it() -> None:
    """The driver asks; the sizes and the refusals are those of the cache itself."""
    made = make_cache(size_bytes=1_000_000, size_rows=None).geometry
    contents = Contents.of(INT, NAME, unique=True)
    assert contents.fit(1_000_000, None) == made
    assert contents.fit(2**50, None).ways > 2**30
    with pytest.raises(RequestError, match="got 500; give a larger size"):
        contents.fit(500, None)


def test_a_value_larger_than_a_segment_is_refused_and_the_old_one_forgotten() -> None:
    """It neither empties the cache nor leaves an outdated row behind."""
    cache = make_cache(size_bytes=100_000, size_rows=None)
    small = pa.record_batch({"name": [f"a name of some length {number}" for number in range(100)]})
    cache.insert(Keys((pa.array(range(100)),)), np.ones(100, np.int32), small, 0.0)
    huge = pa.record_batch({"name": ["x" * 1_000_000, "new"]})
    cache.insert(Keys((pa.array([3, 4]),)), np.ones(2, np.int32), huge, 1.0)
    found = cache.lookup(Keys((pa.array(range(100)),)), 1.0)
    assert found.hit.tolist() == [number != 3 for number in range(100)]
    assert found.rows["name"].to_pylist()[3] == "new"
    assert (cache.stats().refused, cache.stats().evictions) == (1, 0)


def test_a_run_of_very_many_rows_is_refused_never_cut() -> None:
    """Runs up to the limit come back whole and in order."""
    cache = make_cache(schema=pa.schema({"n": pa.int32()}), unique=False, rows_per_key=2.0, size_rows=4000)
    counts = np.array([1, 30, 3000, 0, 100], np.int32)
    rows = pa.record_batch({"n": pa.array(np.arange(counts.sum()), pa.int32())})
    cache.insert(Keys((pa.array(range(5)),)), counts, rows, 0.0)
    found = cache.lookup(Keys((pa.array([4, 2, 1, 3, 0]),)), 0.0)
    assert found.hit.tolist() == [True, False, True, True, True]
    assert found.counts.tolist() == [100, 0, 30, 0, 1]
    assert found.rows["n"].to_pylist() == [*range(3031, 3131), *range(1, 31), 0]
    assert cache.stats().refused == 1


def test_a_batch_larger_than_the_cache_fills_it_with_the_batch_s_last_keys() -> None:
    """The others are served, not cached, and counted."""
    numbers = pa.schema({"n": pa.int32()})
    cache = make_cache(schema=numbers, size_rows=64)
    model = Model(INT, numbers, None, None)
    model.insert(cache, list(range(1000)), 1, lambda _: 1, 0.0)
    hit = cache.lookup(make_keys(INT, list(range(1000))), 0.0).hit
    assert not hit[:-64].any()
    assert hit[-64:].sum() >= 50
    stats = cache.stats()
    assert (stats.entries, stats.refused) == (hit.sum(), 1000 - hit.sum())
    model.check(cache, list(range(1000)), 0.0)


@pytest.mark.parametrize("size", [100_000, 1_000_000, 128_000_000])
@pytest.mark.parametrize("schema", [NAME, ALL_COLUMNS, pa.schema([])], ids=len)
@pytest.mark.parametrize("unique", [True, False])
def test_memory_is_what_was_asked_within_a_tenth(size: int, schema: pa.Schema, unique: bool) -> None:
    """All of it is reserved at the start."""
    cache = make_cache(schema=schema, size_bytes=size, size_rows=None, unique=unique, rows_per_key=3.0)
    assert 0.9 * size <= cache.stats().bytes_reserved <= size


def test_memory_is_the_process_s_own_from_the_start_and_does_not_grow() -> None:
    """Resident memory rises by the size when the cache is made, and no further when it is filled many times over."""

    def resident() -> int:
        return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * resource.getpagesize()

    def fill(cache: ColumnarCache, until: int) -> None:
        for start in range(0, until, 20_000):
            numbers = np.arange(start, start + 20_000)
            rows = pa.record_batch({"name": pa.array(np.char.mod("the name of %d", numbers))})
            cache.insert(Keys((pa.array(numbers),)), np.ones(numbers.size, np.int32), rows, 0.0)

    # What numpy and Arrow keep for temporary arrays is there before the measurement starts.
    fill(make_cache(size_rows=5000), 200_000)
    size = 100_000_000
    before = resident()
    cache = make_cache(size_bytes=size, size_rows=None)
    made = resident()
    assert abs(made - before - size) < 0.1 * size
    fill(cache, 3_000_000)
    assert cache.stats().evictions > 500_000
    assert resident() - made < 0.1 * size


def test_rows_bound_the_number_of_rows() -> None:
    """A size in rows holds that many, rounded up to whole sets."""
    assert make_cache(size_rows=10_000).stats().capacity == 10_000
    assert make_cache(size_rows=10_000, size_bytes=200_000).stats().bytes_reserved <= 200_000
    several = make_cache(size_rows=10_000, unique=False, rows_per_key=5.0)
    assert 10_000 <= several.geometry.rows <= 15_000


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size_bytes": 500, "size_rows": None}, r"expected at least [\d,]+ bytes .* got 500; give a larger size"),
        ({"size_rows": None}, "got neither bytes nor rows"),
        ({"size_rows": 0}, "at least one row, got 0"),
        ({"size_bytes": 2**60, "size_rows": None}, "bytes of memory for the cache"),
        ({"schema": pa.schema({"a": pa.list_(pa.int8())})}, r"list<.*>; cast the column"),
        ({"policy": Policy("exact-only", cachetools.LRUCache)}, "'exact-only', which has only its exact form"),
    ],
)
def test_a_cache_that_can_t_be_made_says_why_in_one_sentence(options: Any, message: str) -> None:
    """A size without room, an unsupported type, a policy without a rule."""
    with pytest.raises(RequestError, match=message):
        make_cache(**options)


def test_more_memory_than_is_free_is_refused_before_it_is_touched() -> None:
    """Else the system would end the process once it fills it."""
    free = free_memory()
    assert free is not None
    with pytest.raises(
        RequestError, match=r"^expected .* bytes of memory for the cache, got .* that are free; give a smaller size"
    ):
        reserve(2 * free)


@pytest.mark.parametrize("nbytes", [1_000_000, 3_000_000, 2**25 + 1])
def test_memory_begins_where_huge_pages_do_and_is_no_more_than_was_asked(nbytes: int) -> None:
    # Other threads may take some meanwhile, and some systems count a few pages late.
    statm, page = Path("/proc/self/statm"), resource.getpagesize()
    before = int(statm.read_text().split()[1])
    memory = reserve(nbytes)
    taken = page * (int(statm.read_text().split()[1]) - before)
    assert nbytes - 500_000 <= taken <= nbytes + 500_000
    assert memory.nbytes == nbytes
    if nbytes > 2**21:
        assert np.frombuffer(memory, np.uint8).ctypes.data % 2**21 == 0


def test_rows_so_large_that_they_would_not_fit_into_one_answer_are_misses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another worker may have stored them, so that the one who asks does not know their size."""
    monkeypatch.setattr(cache_module, "_MOST_BYTES", 100_000)
    cache = ColumnarCache(
        [pa.int64()],
        pa.schema({"v": pa.string()}),
        size_bytes=1_000_000,
        size_rows=None,
        ttl=None,
        missing_ttl=None,
        unique=True,
        widths=[8, 10_000],
    )
    assert cache.most_hits > 10_000
    values = [chr(65 + key) * 10_000 for key in range(8)]
    cache.insert(Keys((pa.array(range(8)),)), np.ones(8, np.int32), pa.record_batch({"v": values}), 0.0)
    keys = np.arange(25) % 9
    found = cache.lookup(Keys((pa.array(keys),)), 0.0)
    hits = found.hit.nonzero()[0]
    assert 5 <= len(hits) == cache.most_hits <= 10
    assert 8 not in keys[hits]
    assert found.counts.tolist() == found.hit.astype(int).tolist()
    assert found.rows["v"].to_pylist() == [values[key] for key in keys[hits]]
