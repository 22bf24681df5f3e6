"""A change of pattern in mid-stream is followed within one interval, wherever it comes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from srj.sizing import Phase, Watch, hash_keys, reuse_distances
from tests.sizing.traces import intervals, zipf

if TYPE_CHECKING:
    import numpy.typing as npt

    I64 = npt.NDArray[np.int64]

MEMORY, BATCH = 80_000, 1_000
EACH = 10  # references a key, in an interval


def of_intervals(keys: int, late: int) -> I64:
    """Six of them, and then a part of a seventh."""
    return intervals([EACH * keys] * 6 + [late], [keys] * 7, 1)


def of_loop(keys: int, late: int) -> I64:
    return np.arange(8 * keys + late) % keys


def of_zipf(skew: float, late: int) -> I64:
    return zipf(400_000 + late, 500_000, skew, 1)


BEFORE = {
    "intervals of 5,000": lambda late: of_intervals(5_000, late),
    "intervals of 20,000": lambda late: of_intervals(20_000, late),
    "loop of 10,000": lambda late: of_loop(10_000, late),
    "loop of 75,000": lambda late: of_loop(75_000, late),
    "zipf 0.6": lambda late: of_zipf(0.6, late),
    "zipf 1": lambda late: of_zipf(1, late),
}


BOUNDS = {"intervals of 5,000": 5_000, "intervals of 20,000": 20_000, "loop of 10,000": 10_000, "loop of 75,000": 75_000}


@pytest.mark.parametrize("late", [1, 7_000, 23_000], ids=lambda late: f"{late} late")
@pytest.mark.parametrize("keys", [5_000, 10_000, 30_000])
@pytest.mark.parametrize("before", list(BEFORE))
def test_a_change_to_intervals_is_followed_within_one(before: str, keys: int, late: int) -> None:
    """From the first one's end on the bound is at most 60 % too large, or 30 % too small; from the second's it is 6 % off at most.

    To intervals of as many keys as before nothing changes, and no search begins.
    """
    earlier = BEFORE[before](late)
    trace = hash_keys(np.concatenate([earlier, 10_000_000 + intervals([EACH * keys] * 4, [keys] * 4, 2)]))
    watch, length, was = Watch(MEMORY), EACH * keys, BOUNDS.get(before)
    for start in range(0, trace.size, BATCH):
        passed = start - earlier.size
        if -BATCH < passed <= 0:
            assert watch.phase is (Phase.FULL if was is None else Phase.CLOSED if "loop" in before else Phase.MATCHED)
            assert watch.bound == (None if was is None else pytest.approx(was, rel=0.02))
        if passed >= length:
            assert watch.bound is not None
            assert 0.7 * keys <= watch.bound <= 1.6 * keys, f"after {passed:,} references"
        if passed >= 2 * length:
            assert watch.bound == pytest.approx(keys, rel=0.06), f"after {passed:,} references"
        watch.add(trace[start : start + BATCH])
    assert (watch.searches == 1) == (was == keys)


@pytest.mark.parametrize("before", ["intervals of 5,000", "intervals of 20,000", "loop of 10,000"])
def test_that_a_pattern_ends_is_noticed(before: str) -> None:
    """Zipf 0.6 has no bound within the memory: as many distinct keys as that have come after some 105,000 references."""
    earlier = BEFORE[before](7_000)
    trace = hash_keys(np.concatenate([earlier, 10_000_000 + zipf(160_000, 500_000, 0.6, 2)]))
    watch = Watch(MEMORY)
    for start in range(0, trace.size, BATCH):
        watch.add(trace[start : start + BATCH])
    assert (watch.phase, watch.bound) == (Phase.FULL, None)
    assert watch.searches >= 2


@pytest.mark.parametrize("keys", [2_000, 10_000])
def test_a_working_set_after_a_scan_is_noticed(keys: int) -> None:
    """All keys came once each, so that there were no distances at all."""
    watch = Watch(50_000)
    trace = np.concatenate([np.arange(100_000), 10_000_000 + np.random.default_rng(1).integers(0, keys, 600_000)])
    for part in np.array_split(hash_keys(trace), 700):
        watch.add(part)
    assert watch.bound == pytest.approx(keys, rel=0.02)


def test_without_a_bound_the_curve_follows_the_stream() -> None:
    """From keys of which a cache holds the most used to others of which hardly any is; half of what was counts no more soon."""
    memory = 20_000
    trace = hash_keys(np.concatenate([zipf(600_000, 200_000, 1.1, 1), 1_000_000 + zipf(500_000, 200_000, 0.3, 2)]))
    sizes = [2_000, 8_000, 15_000]
    watch, curves = Watch(memory), []
    for start in range(0, trace.size, BATCH):
        watch.add(trace[start : start + BATCH])
        if start + BATCH in (600_000, trace.size):
            curves.append(watch.curve().at(sizes))
    assert watch.phase is Phase.FULL
    assert curves[0] == pytest.approx([0.303, 0.203, 0.160], abs=0.02)  # of an exact LRU in the last 200,000 references
    assert curves[1] == pytest.approx([0.988, 0.952, 0.911], abs=0.05)


def test_a_long_search_has_the_curve_of_late() -> None:
    """A few keys come again ever later, so that the search never ends; meanwhile the others are three times as many."""
    rng, memory = np.random.default_rng(1), 20_000
    batches = []
    for number in range(600):
        hot = rng.integers(0, 1_000 if number < 200 else 3_000, BATCH)
        hot[:2] = 10_000 + number, 10_000 + number // 2
        batches.append(hot)
    watch = Watch(memory)
    for batch in batches:
        watch.add(hash_keys(batch))
    assert (watch.phase, watch.searches) == (Phase.SEARCHING, 1)
    late = reuse_distances(np.concatenate(batches))[-100_000:]
    expected = float(((late < 0) | (late >= 1_500)).mean())
    assert expected == pytest.approx(0.5, abs=0.02)
    assert float(watch.curve().at(1_500)) == pytest.approx(expected, abs=0.03)
