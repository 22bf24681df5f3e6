"""Another implementation counts the same misses on the same sequences."""

from __future__ import annotations

import pytest

from srj.cache_policies import simulate
from tests.policies.sequences import misses_elsewhere, sequence

ALGORITHMS = {
    "lru": "LRU",
    "fifo": "FIFO",
    "lfu": "LFU",
    "opt": "Belady",
    "clock": "Clock",
    "sieve": "Sieve",
    "s3fifo": "S3FIFO",
    "arc": "ARC",
    "twoq": "TwoQ",
}
# From 20 entries on: libcachesim's S3-FIFO keeps nothing in a small queue of one.
CAPACITIES = {"zipf": (20, 57, 800), "loop": (57, 699), "shifting": (20, 300, 800), "flights": (300, 2000), "movielens": (300, 800)}


@pytest.mark.parametrize("policy", ALGORITHMS)
@pytest.mark.parametrize(("name", "capacity"), [(name, size) for name, sizes in CAPACITIES.items() for size in sizes])
def test_libcachesim_counts_the_same_misses(policy: str, name: str, capacity: int) -> None:
    """To the last one."""
    keys = sequence(name)
    found = simulate(keys, capacity, policy)
    assert found.hits + found.misses == len(keys)
    assert found.misses == misses_elsewhere(keys, capacity, ALGORITHMS[policy])


@pytest.mark.parametrize(("name", "capacity"), [("zipf", 300), ("shifting", 800), ("flights", 800), ("movielens", 800)])
def test_w_tinylfu_is_near_libcachesims(name: str, capacity: int) -> None:
    """Its sketch is another, so the counts differ, by less than 0.03 of the references."""
    keys = sequence(name)
    difference = simulate(keys, capacity, "wtinylfu").misses - misses_elsewhere(keys, capacity, "WTinyLFU")
    assert abs(difference) < 0.03 * len(keys)
