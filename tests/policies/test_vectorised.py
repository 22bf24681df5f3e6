"""The rules in the columnar cache miss hardly more than the exact policies of the same capacity."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from benchmarks.rule_misses import BARS, CAPACITIES, NEAR, extra, extra_near
from srj.cache_policies import RANDOM, by_name, names, simulate
from srj.lookup.cache import ColumnarCache
from srj.lookup.keys import Keys
from srj.lookup.simulated import BoundedCache, store
from tests.cache_values import Model, audit


@pytest.mark.parametrize("policy", [*BARS, "random"])
@pytest.mark.parametrize("name", CAPACITIES)
def test_a_rule_misses_hardly_more_than_its_exact_policy(policy: str, name: str) -> None:
    """Away from a loop's length, at three sizes."""
    for capacity in CAPACITIES[name]:
        assert extra(name, capacity, policy) <= BARS.get(policy, 0.01), capacity


@pytest.mark.parametrize(("name", "ratio"), [(name, ratio) for name, bars in NEAR.items() for ratio in bars])
def test_lru_needs_little_slack_to_hold_a_working_set(name: str, ratio: float) -> None:
    """What two sets of eight ways cost at 1 to 1.5 times the working set."""
    assert -0.001 <= extra_near(name, ratio) <= NEAR[name][ratio]


def test_every_policy_with_a_rule_is_compared() -> None:
    """None is registered that the test above does not know."""
    own = names()[:14]
    assert {name for name in own if by_name(name).rule is not None} == {*BARS, "random"}


@pytest.mark.parametrize("policy", [*BARS, "random"])
def test_with_every_rule_answers_are_right_where_bytes_run_out_and_entries_expire(policy: str) -> None:
    """Text in a tiny heap, several rows a key, absent keys, times to live: a policy chooses what leaves, nothing else."""
    types, schema = (pa.string(),), pa.schema({"a": pa.string(), "b": pa.int64()})
    cache = ColumnarCache(types, schema, size_bytes=60_000, size_rows=None, widths=[100, 100, 0], unique=False, rows_per_key=2,
                          ttl=20.0, missing_ttl=3.0, policy=by_name(policy))  # fmt: skip
    model, rng, hits = Model(types, schema, 20.0, 3.0), np.random.default_rng(5), 0
    for version in range(30):
        numbers = np.unique(rng.zipf(1.2, 150) % 500).tolist()
        hits += model.check(cache, numbers, float(version))
        model.insert(cache, numbers, version, lambda number: number % 4, float(version))
        audit(cache)
    assert cache.stats().evictions > 100
    assert hits > 200


@pytest.mark.parametrize("capacity", [1, 7, 8, 15, 16, 17, 100, 203])
def test_the_columnar_cache_holds_exactly_the_capacity(capacity: int) -> None:
    """Ways beyond it stay closed: after any number of keys exactly so many answer, or a few less where sets are not all full."""
    keys = np.arange(40 * capacity)
    assert simulate(keys, capacity, "lru", vectorised=True).misses == keys.size
    cache = BoundedCache(capacity, RANDOM)
    held = _fill(cache, keys)
    assert held <= capacity
    assert held >= 0.98 * capacity


def test_a_closed_way_answers_no_key() -> None:
    """Not even key 0 or the largest, whose words the tables are full of."""
    cache = BoundedCache(3, RANDOM)
    assert not cache.lookup(_keys(np.array([0, -1, 2**63 - 1])), 0.0).hit.any()


def test_the_random_rule_evicts_old_and_new_entries_alike() -> None:
    """Of 1,600 keys stored in turn in 800 ways, the two halves of the first 700 have about as many left."""
    cache = BoundedCache(800, RANDOM)
    _fill(cache, np.arange(1600), 40)
    alive = cache.lookup(_keys(np.arange(1600)), 0.0).hit
    first, second = np.count_nonzero(alive[:350]), np.count_nonzero(alive[350:700])
    assert 0.7 < first / second < 1.4


def _keys(numbers: np.ndarray) -> Keys:
    return Keys((pa.array(numbers),))


def _fill(cache: BoundedCache, numbers: np.ndarray, batch: int = 1000) -> int:
    """Store these keys; how many are held at the end, by asking for each."""
    for start in range(0, len(numbers), batch):
        store(cache, numbers[start : start + batch])
    return int(np.count_nonzero(cache.lookup(_keys(numbers), 0.0).hit))
