"""The reference cache: the cache's contract over any cachetools cache, and the oracle of the columnar one."""

from __future__ import annotations

from typing import Any

import cachetools
import numpy as np
import pyarrow as pa
import pytest

from srj.errors import RequestError
from srj.lookup.cache import ColumnarCache
from srj.lookup.keys import Keys
from srj.lookup.reference_cache import ReferenceCache
from tests.cache_values import COLUMN_TYPES, KEY_TYPES, Model, key_numbers, make_keys, make_rows

INT = (pa.int64(),)
NAME = pa.schema([pa.field("name", pa.string())])
ALL_COLUMNS = pa.schema([pa.field(str(type_), type_) for type_ in COLUMN_TYPES])


def make_cache(schema: pa.Schema = NAME, size: int = 1000, **lives: float | None) -> ReferenceCache:
    """A cache over cachetools' LRU."""
    return ReferenceCache(lambda: cachetools.LRUCache(size), schema, **{"ttl": None, "missing_ttl": None, **lives})


@pytest.mark.parametrize("types", KEY_TYPES, ids=lambda types: ",".join(map(str, types)))
def test_every_key_of_every_type_is_found_with_its_own_rows(types: Any) -> None:
    """The rows come back as they were, in their order, however far a date is."""
    numbers = list(range(min(key_numbers(types), 60)))
    cache = make_cache(ALL_COLUMNS)
    model = Model(types, ALL_COLUMNS, None, None)
    for version in range(2):
        model.insert(cache, numbers, version, lambda number: number % 4, float(version))
        assert model.check(cache, [*numbers, *numbers[:1]], 9.0, complete=True) == len(numbers) + 1


@pytest.mark.parametrize(
    "factory",
    [
        lambda: cachetools.LFUCache(20),
        lambda: cachetools.FIFOCache(20),
        lambda: cachetools.RRCache(20),
        lambda: cachetools.LRUCache(20),
    ],
)
def test_any_cachetools_cache_keeps_its_bound_and_counts_what_leaves(factory: Any) -> None:
    """Its policy decides what leaves; what stays is right."""
    cache = ReferenceCache(factory, NAME, ttl=None, missing_ttl=None)
    model = Model(INT, NAME, None, None)
    for version in range(10):
        model.insert(cache, list(range(version, version + 15)), version, lambda number: number % 3, float(version))
        model.check(cache, list(range(30)), 10.0)
    stats = cache.stats()
    assert (stats.entries, stats.capacity) == (20, 20)
    assert stats.evictions > 0


def test_a_value_larger_than_the_cache_is_refused_and_the_old_one_forgotten() -> None:
    """A getsizeof of the user's own bounds what he likes."""
    cache = ReferenceCache(
        lambda: cachetools.LRUCache(10, getsizeof=lambda entry: len(entry.rows)), NAME, ttl=None, missing_ttl=None
    )
    cache.insert(make_keys(INT, [1, 2]), np.array([1, 1], np.int32), make_rows(NAME, [1, 2]), 0.0)
    cache.insert(make_keys(INT, [1]), np.array([11], np.int32), make_rows(NAME, list(range(11))), 1.0)
    assert cache.lookup(make_keys(INT, [1, 2]), 1.0).hit.tolist() == [False, True]
    assert cache.stats().refused == 1


def test_entries_expire_and_later_answers_stay() -> None:
    """As in the columnar cache."""
    cache = make_cache(ttl=10.0, missing_ttl=2.0)
    model = Model(INT, NAME, 10.0, 2.0)
    model.insert(cache, [1, 2], 1, lambda number: number % 2, 5.0)
    model.insert(cache, [1, 2], 2, lambda number: number % 2, 4.0)
    hits = [model.check(cache, [1, 2], now, complete=True) for now in (6.0, 6.75, 7.0, 14.75, 15.0)]
    assert hits == [2, 2, 1, 1, 0]


def test_a_factory_of_something_else_is_refused() -> None:
    """One sentence says what to give."""
    with pytest.raises(RequestError, match=r"makes a dict; give for example"):
        ReferenceCache(dict, NAME, ttl=None, missing_ttl=None)  # type: ignore[arg-type]


def test_lookups_that_are_given_one_cache_keep_their_entries_apart() -> None:
    """Neither answers with the other's rows, and the bound is that of both together."""
    shared: cachetools.LRUCache[Any, Any] = cachetools.LRUCache(4)
    caches = [ReferenceCache(lambda: shared, NAME, ttl=None, missing_ttl=None) for _ in range(2)]
    for seed, cache in enumerate(caches):
        cache.insert(make_keys(INT, [1]), np.ones(1, np.int32), make_rows(NAME, [seed + 1]), 0.0)
    for seed, cache in enumerate(caches):
        assert cache.lookup(make_keys(INT, [1]), 0.0).rows.equals(make_rows(NAME, [seed + 1]))
    caches[0].insert(make_keys(INT, [2, 3, 4, 5]), np.zeros(4, np.int32), make_rows(NAME, []), 0.0)
    assert not caches[1].lookup(make_keys(INT, [1]), 0.0).hit.any()


@pytest.mark.parametrize("getsizeof", [len, lambda entry: len(entry.rows[0])])
def test_a_cache_that_can_t_hold_an_entry_is_refused_when_it_is_made(getsizeof: Any) -> None:
    """One sentence instead of a failed stream."""
    with pytest.raises(RequestError, match=r"rows are the tuples in entry.rows, got \w+Error: .*; give a getsizeof such as"):
        ReferenceCache(lambda: cachetools.LRUCache(100, getsizeof=getsizeof), NAME, ttl=None, missing_ttl=None)


def test_with_ample_memory_both_caches_answer_alike() -> None:
    """The same inserts, waits and lookups give equal hits, counts and rows."""
    types = (pa.string(), pa.int32())
    lives = {"ttl": 7.0, "missing_ttl": 3.0}
    reference = make_cache(ALL_COLUMNS, 100_000, **lives)
    columnar = ColumnarCache(types, ALL_COLUMNS, size_bytes=None, size_rows=20_000, unique=False, rows_per_key=3.0,
                             widths=[150] * (2 + len(ALL_COLUMNS)), **lives)  # fmt: skip
    rng = np.random.default_rng(8)
    for step in range(60):
        numbers = rng.permutation(300)[: rng.integers(1, 80)].tolist()
        counts = rng.integers(0, 6, len(numbers)).astype(np.int32)
        rows = make_rows(ALL_COLUMNS, rng.integers(0, 2**31, int(counts.sum())).tolist())
        for cache in (reference, columnar):
            cache.insert(make_keys(types, numbers), counts, rows, step - float(step % 3))
        asked = make_keys(types, rng.integers(0, 300, 200).tolist())
        expected, got = reference.lookup(asked, float(step)), columnar.lookup(asked, float(step))
        assert expected.hit.tolist() == got.hit.tolist()
        assert expected.counts.tolist() == got.counts.tolist()
        assert expected.rows.equals(got.rows)
    assert columnar.stats().entries >= reference.stats().entries
    columnar.clear()
    reference.clear()
    assert not columnar.lookup(Keys(asked.columns), 0.0).hit.any()
    assert not reference.lookup(asked, 0.0).hit.any()
