"""What the columnar cache misses beside an exact LRU, for its keys have sixteen places each."""

from __future__ import annotations

import cachetools
import numpy as np
import pyarrow as pa
import pytest

from srj.lookup.keys import Keys
from tests.cache_values import (
    make_cache,
    make_rows,
)


def zipf(rng: np.random.Generator, count: int, keys: int) -> np.ndarray:
    """Keys by a Zipf law of exponent 0.9."""
    shares = 1 / np.arange(1, keys + 1) ** 0.9
    return rng.permutation(keys)[rng.choice(keys, count, p=shares / shares.sum())]


def extra_misses(trace: np.ndarray, capacity: int, warm: int, batch: int = 1000) -> float:
    """Misses of the columnar cache beyond those of an exact LRU of the same capacity, as a share of accesses."""
    cache = make_cache(schema=pa.schema([]), size_rows=capacity)
    exact: cachetools.LRUCache[int, bool] = cachetools.LRUCache(cache.stats().capacity)
    none = make_rows(pa.schema([]), [])
    misses = exact_misses = 0
    for start in range(0, trace.size, batch):
        part = trace[start : start + batch]
        keys = Keys((pa.array(part),))
        hit = cache.lookup(keys, 0.0).hit
        missing, _ = keys.take(np.flatnonzero(~hit)).distinct()
        cache.insert(missing, np.zeros(len(missing), np.int32), none, 0.0)
        seen = len(missing)
        exact_seen = 0
        for key in part.tolist():
            if key not in exact:
                exact_seen += 1
            exact[key] = True
            exact[key]
        if start >= warm:
            misses, exact_misses = misses + seen, exact_misses + exact_seen
    return (misses - exact_misses) / (trace.size - warm)


@pytest.mark.parametrize(("share", "most"), [(0.2, 0.0012), (0.6, 0.0045)])
def test_on_a_zipf_trace_it_misses_hardly_more_than_exact_lru(share: float, most: float) -> None:
    """The design's bars for two sets of eight ways; below 0, for in a batch of 1,000 a key's second reference always hits."""
    trace = zipf(np.random.default_rng(3), 300_000, 20_000)
    assert extra_misses(trace, int(share * 20_000), 100_000) <= most


@pytest.mark.parametrize(("slack", "most"), [(1.0, 0.115), (1.1, 0.0115), (1.25, 0.0028)])
def test_on_a_loop_the_capacity_needs_a_slack_of_fifteen_percent(slack: float, most: float) -> None:
    """The design's bars."""
    keys = 20_000
    trace = np.tile(np.random.default_rng(4).permutation(keys), 12)
    assert extra_misses(trace, int(slack * keys), 4 * keys) <= most


@pytest.mark.parametrize(("slack", "most"), [(1.0, 0.020), (1.2, 0.0015), (1.5, 0.00005)])
def test_on_moving_intervals_it_misses_hardly_more_than_exact_lru(slack: float, most: float) -> None:
    """Keys uniform over an interval that moves by one key every hundred accesses, mean of four such traces.

    The design's bars. At 1.2 they are just met: the mean of eight traces is 0.00146, the highest 0.00163.
    """
    width, count = 10_000, 300_000
    starts = np.arange(count) // 100
    traces = [starts + np.random.default_rng(seed).integers(0, width, count) for seed in range(5, 9)]
    assert np.mean([extra_misses(trace, int(slack * width), 100_000) for trace in traces]) <= most
