"""The columnar cache: never another key's row, never a stale one, never more memory than was asked."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from srj.lookup.layout import reserve
from srj.lookup.moving import Move
from tests.cache_values import (
    ALL_COLUMNS,
    INT,
    KEY_TYPES,
    NAME,
    Model,
    audit,
    key_numbers,
    make_cache,
    make_keys,
    make_rows,
)

if TYPE_CHECKING:
    from srj.lookup.interface import Cache

SCHEMAS = (
    ALL_COLUMNS,
    NAME,
    pa.schema([]),
    pa.schema([pa.field("a", pa.int32(), nullable=False), pa.field("b", pa.float64(), nullable=False)]),
    pa.schema([pa.field("a", pa.string()), pa.field("b", pa.bool_()), pa.field("c", pa.binary())]),
)


def constant_hash(words: np.ndarray) -> np.ndarray:
    """The weakest hash: all keys want the same two sets and have the same tag."""
    return np.full(len(words), 0x1234567890ABCDEF, np.uint64)


def poor_hash(words: np.ndarray) -> np.ndarray:
    """A hash of three values."""
    return (words[:, 0] % np.uint64(3)) * np.uint64(0x5555555555555555)


@pytest.mark.parametrize("types", KEY_TYPES, ids=lambda types: ",".join(map(str, types)))
@pytest.mark.parametrize("unique", [True, False])
def test_with_ample_memory_every_key_of_every_type_is_found_with_its_own_rows(types: Any, unique: bool) -> None:
    """Three rounds of inserts, the later ones replacing a part: nothing may be missing, nothing mixed up."""
    numbers = list(range(key_numbers(types)))
    cache = make_cache(types, ALL_COLUMNS, size_rows=16 * len(numbers) + 64, unique=unique, rows_per_key=5.0,
                       widths=[170] * (len(types) + len(ALL_COLUMNS)))  # fmt: skip
    model = Model(types, ALL_COLUMNS, None, None)
    rng = np.random.default_rng(1)
    for version, some in enumerate((numbers, numbers[::3], numbers[1::2])):
        for part in np.array_split(rng.permutation(some), max(len(some) // 700, 1)):
            model.insert(cache, part.tolist(), version, lambda number: number % (2 if unique else 9), float(version))
        assert model.check(cache, rng.permutation(numbers).tolist(), 9.0, complete=True) == len(numbers)
        audit(cache)
    assert cache.stats().evictions == cache.stats().refused == 0
    assert model.check(cache, [*numbers[:5], *numbers[:5], *numbers[:1] * 3], 9.0, complete=True) == 2 * len(numbers[:5]) + 3


@pytest.mark.parametrize("types", [INT, (pa.string(),), (pa.string(), pa.int32())], ids=str)
def test_keys_whose_hashes_all_collide_never_answer_for_each_other(types: Any) -> None:
    """With one hash for all, 16 keys have a place, and each still has only its own row."""
    cache = make_cache(types, hash_words=constant_hash)
    model = Model(types, NAME, None, None)
    for version in range(4):
        model.insert(cache, list(range(version * 7, version * 7 + 40)), version, lambda _: 1, 0.0)
        assert model.check(cache, list(range(100)), 0.0) == 16
    audit(cache)


class CacheMachine(RuleBasedStateMachine):
    """Random inserts, lookups, waits and clears on small caches of random types against a dictionary."""

    @initialize(
        types=st.sampled_from(KEY_TYPES),
        schema=st.sampled_from(SCHEMAS),
        unique=st.booleans(),
        size=st.sampled_from([16, 40, 200]),
        lives=st.tuples(st.sampled_from([None, 5.0]), st.sampled_from([None, 2.0])),
        hash_words=st.sampled_from([None, poor_hash]),
        width=st.sampled_from([1, 16, 80]),
        rows_per_key=st.sampled_from([1.0, 2.0, 6.0]),
    )
    def start(self, types: Any, schema: Any, unique: bool, size: int, lives: Any, hash_words: Any, width: int,
              rows_per_key: float) -> None:  # fmt: skip
        """Make a cache."""
        self.options: dict[str, Any] = {"unique": unique, "ttl": lives[0], "missing_ttl": lives[1], "rows_per_key": rows_per_key,
                                        "widths": [width] * (len(types) + len(schema))}  # fmt: skip
        if hash_words is not None:
            self.options["hash_words"] = hash_words
        self.cache = make_cache(types, schema, size_rows=size, **self.options)
        self.model = Model(types, schema, *lives)
        self.numbers = min(key_numbers(types), 150)
        self.most = 1 if unique else 12
        self.now, self.version = 0.0, 0

    @rule(seed=st.integers(0, 2**32), size=st.integers(1, 60), late=st.sampled_from([0.0, 0.0, 1.0, 3.0]))
    def insert(self, seed: int, size: int, late: float) -> None:
        """Insert answers of a lookup that started now, or some time ago."""
        rng = np.random.default_rng(seed)
        numbers = rng.permutation(self.numbers)[:size].tolist()
        self.version += 1
        counts = rng.integers(0, self.most, self.numbers, endpoint=True)
        self.model.insert(self.cache, numbers, self.version, lambda number: int(counts[number]), self.now - late)

    @rule(seed=st.integers(0, 2**32), size=st.integers(0, 100))
    def lookup(self, seed: int, size: int) -> None:
        """Look keys up, doubles among them."""
        self.model.check(self.cache, np.random.default_rng(seed).integers(0, self.numbers, size).tolist(), self.now)

    @rule(seconds=st.sampled_from([0.5, 2.0, 6.0]))
    def wait(self, seconds: float) -> None:
        """Let entries expire."""
        self.now += seconds

    @rule(size=st.sampled_from([16, 40, 200]), seed=st.integers(0, 2**32), stored=st.integers(0, 30))
    def resize(self, size: int, seed: int, stored: int) -> None:
        """Move to a cache of another size, while answers come in."""
        new = make_cache(self.model.types, self.model.schema, size_rows=size, **self.options)
        move = Move(self.cache, new)
        move.bulk(lambda: nullcontext(enter_result=True))
        self.now += 0.001  # two answers that started at the same moment are told apart by nothing
        if stored:
            self.insert(seed, stored, 0.0)
        move.rest()
        self.cache = new

    @rule()
    def clear(self) -> None:
        """Forget everything, which the dictionary need not."""
        self.cache.clear()
        assert self.cache.stats().entries == 0

    @invariant()
    def counts_agree(self) -> None:
        """The header agrees with the arrays."""
        if hasattr(self, "cache"):
            audit(self.cache)


TestCacheMachine = CacheMachine.TestCase
TestCacheMachine.settings = settings(
    max_examples=200, stateful_step_count=30, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)


def test_an_earlier_lookup_does_not_overwrite_a_later_one() -> None:
    """Answers may arrive in another order than their lookups started."""
    cache = make_cache()
    model = Model(INT, NAME, None, None)
    model.insert(cache, [1, 2], 7, lambda _: 1, 5.0)
    model.insert(cache, [1, 2, 3], 8, lambda _: 0, 4.0)
    model.check(cache, [1, 2, 3], 6.0, complete=True)
    model.insert(cache, [1], 9, lambda _: 0, 5.0)
    model.check(cache, [1, 2, 3], 6.0, complete=True)


def test_without_columns_only_the_number_of_rows_is_kept() -> None:
    """What semi and anti joins need, whatever the number is."""
    cache = make_cache(schema=pa.schema([]), unique=False)
    cache.insert(make_keys(INT, [1, 2, 3]), np.array([1, 0, 5000], np.int32), make_rows(pa.schema([]), [0] * 5001), 0.0)
    found = cache.lookup(make_keys(INT, [3, 2, 1, 9]), 0.0)
    assert (found.hit.tolist(), found.counts.tolist()) == ([True, True, True, False], [5000, 0, 1, 0])
    assert (found.rows.num_columns, found.rows.num_rows) == (0, 5001)


def test_what_a_lookup_returned_stays_as_it_was() -> None:
    """Rows are copied out: later inserts and clear() do not change them."""
    cache = make_cache(schema=ALL_COLUMNS)
    cache.insert(make_keys(INT, [1, 2]), np.ones(2, np.int32), make_rows(ALL_COLUMNS, [32, 999]), 0.0)
    found = cache.lookup(make_keys(INT, [1, 2]), 0.0)
    cache.clear()
    cache.insert(make_keys(INT, [1, 2]), np.ones(2, np.int32), make_rows(ALL_COLUMNS, [4444, 5555]), 0.0)
    assert found.rows.equals(make_rows(ALL_COLUMNS, [32, 999]))


def test_sliced_arrays_are_read_from_their_offset() -> None:
    """Keys and rows that are windows into larger arrays, NULLs included."""
    types = (pa.string(), pa.bool_())
    numbers = list(range(50))
    cache = make_cache(types, ALL_COLUMNS)
    rows = make_rows(ALL_COLUMNS, [number * 64000 for number in numbers])
    cache.insert(make_keys(types, numbers).slice(13, 20), np.ones(20, np.int32), rows.slice(13, 20), 0.0)
    found = cache.lookup(make_keys(types, numbers).slice(10, 30), 0.0)
    assert found.hit.tolist() == [False] * 3 + [True] * 20 + [False] * 7
    assert found.rows.equals(rows.slice(13, 20))


def test_an_insert_that_fails_midway_leaves_an_empty_cache() -> None:
    """Rows of a wrong type can't be stored; nothing half done may remain."""
    cache = make_cache(schema=pa.schema({"a": pa.int32(), "b": pa.int32()}))
    good = pa.record_batch({"a": pa.array([1], pa.int32()), "b": pa.array([1], pa.int32())})
    cache.insert(make_keys(INT, [1]), np.ones(1, np.int32), good, 0.0)
    with pytest.raises((ValueError, pa.ArrowException)):
        cache.insert(make_keys(INT, [1]), np.ones(1, np.int32), good.select(["a"]), 1.0)
    audit(cache)
    assert not cache.lookup(make_keys(INT, [1]), 1.0).hit.any()


def test_a_second_cache_over_the_same_memory_sees_the_same_entries() -> None:
    """Everything stands in the block: what one stores the other finds, evicts and replaces."""
    types, schema = (pa.string(),), pa.schema({"a": pa.string(), "b": pa.int32()})
    memory = reserve(2_000_000)
    caches = [make_cache(types, schema, size_bytes=500_000, size_rows=None, unique=False, memory=memory) for _ in range(2)]
    model = Model(types, schema, None, None)
    for version in range(40):
        numbers = list(range(version * 20, version * 20 + 150))
        model.insert(caches[version % 2], numbers, version, lambda number: number % 4, float(version))
        hits = [model.check(cache, numbers, float(version)) for cache in caches]
        assert hits[0] == hits[1] > 100
    audit(caches[0])
    assert caches[0].stats() == caches[1].stats()


def test_it_is_a_cache_as_the_operator_knows_it() -> None:
    """The Protocol is met, empty batches included."""
    cache: Cache = make_cache()
    found = cache.lookup(make_keys(INT, []), 0.0)
    assert (found.hit.size, found.counts.size, found.rows.num_rows) == (0, 0, 0)
    cache.insert(make_keys(INT, []), np.zeros(0, np.int32), make_rows(NAME, []), 0.0)
    assert cache.stats().entries == 0
