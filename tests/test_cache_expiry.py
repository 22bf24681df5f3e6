"""The times of the columnar cache's entries."""

from __future__ import annotations

import math
from datetime import timedelta

import numpy as np

from tests.cache_values import (
    INT,
    NAME,
    make_cache,
    make_keys,
    make_rows,
)


def test_an_entry_that_may_live_for_the_longest_duration_never_expires() -> None:
    """``timedelta.max`` and infinity are ways to say for ever."""
    for ttl in (timedelta.max.total_seconds(), math.inf):
        cache = make_cache(ttl=ttl, missing_ttl=1.0)
        cache.insert(make_keys(INT, [1, 2]), np.array([1, 0], np.int32), make_rows(NAME, [5]), 0.0)
        assert cache.lookup(make_keys(INT, [1, 2]), 1e9).hit.tolist() == [True, False]


def test_an_entry_expires_ttl_after_its_lookup_started_and_an_absent_key_after_its_own() -> None:
    """Exactly at the end of its time an entry is a miss."""
    cache = make_cache(ttl=10.0, missing_ttl=2.0)
    cache.insert(make_keys(INT, [1, 2]), np.array([1, 0], np.int32), make_rows(NAME, [5]), 100.0)
    assert cache.lookup(make_keys(INT, [1, 2]), 101.75).hit.tolist() == [True, True]
    assert cache.lookup(make_keys(INT, [1, 2]), 102.0).hit.tolist() == [True, False]
    assert cache.lookup(make_keys(INT, [1, 2]), 109.75).hit.tolist() == [True, False]
    assert cache.lookup(make_keys(INT, [1, 2]), 110.0).hit.tolist() == [False, False]


def test_a_hot_entry_expires_however_often_it_is_used() -> None:
    """Hits don't prolong an entry's life."""
    cache = make_cache(ttl=10.0)
    cache.insert(make_keys(INT, [1]), np.array([1], np.int32), make_rows(NAME, [5]), 0.0)
    assert [bool(cache.lookup(make_keys(INT, [1]), now).hit[0]) for now in range(12)] == [True] * 10 + [False] * 2


def test_an_expired_entry_leaves_before_a_living_one_that_was_used_longer_ago() -> None:
    """Its place is taken first, and that is no eviction."""
    cache = make_cache(size_rows=16, ttl=100.0, missing_ttl=5.0)
    rows = make_rows(NAME, list(range(1, 9)))
    cache.insert(make_keys(INT, list(range(8))), np.ones(8, np.int32), rows, 0.0)
    cache.insert(make_keys(INT, list(range(8, 16))), np.zeros(8, np.int32), rows.slice(0, 0), 1.0)
    assert cache.stats().entries == 16
    cache.lookup(make_keys(INT, [40]), 10.0)
    cache.insert(make_keys(INT, list(range(20, 28))), np.ones(8, np.int32), rows, 10.0)
    assert cache.lookup(make_keys(INT, [*range(8), *range(20, 28)]), 10.0).hit.all()
    assert cache.stats().evictions == 0


def test_the_expired_entry_is_found_each_time_that_one_has_expired() -> None:
    """In a full cache of 16 ways one entry expires a second, always the one that was used last; then none does for 85 seconds."""
    cache = make_cache(size_rows=16, ttl=100.0)
    for key in range(16):
        cache.insert(make_keys(INT, [key]), np.ones(1, np.int32), make_rows(NAME, [1]), float(key))
    for oldest in range(48):
        end = 100.0 * (1 + oldest // 16) + oldest % 16
        assert cache.lookup(make_keys(INT, [oldest]), end - 0.001).hit.all()
        cache.insert(make_keys(INT, [oldest + 16]), np.ones(1, np.int32), make_rows(NAME, [1]), end)
        assert cache.lookup(make_keys(INT, list(range(oldest + 1, oldest + 17))), end).hit.all()
    assert cache.stats().evictions == 0
