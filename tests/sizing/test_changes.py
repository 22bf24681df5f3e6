"""A change of pattern in mid-stream is followed within one interval, wherever it comes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from srj.sizing import Phase, Watch, hash_keys
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


@pytest.mark.parametrize("late", [1, 7_000, 23_000], ids=lambda late: f"{late} late")
@pytest.mark.parametrize("keys", [5_000, 10_000, 30_000])
@pytest.mark.parametrize("before", list(BEFORE))
def test_a_change_to_intervals_is_followed_within_one(before: str, keys: int, late: int) -> None:
    """Within the first the bound is at most 60 % too large, or 30 % too small; from the end of the second it is 6 % off at most."""
    earlier = BEFORE[before](late)
    trace = hash_keys(np.concatenate([earlier, 10_000_000 + intervals([EACH * keys] * 4, [keys] * 4, 2)]))
    watch, length = Watch(MEMORY), EACH * keys
    for start in range(0, trace.size, BATCH):
        watch.add(trace[start : start + BATCH])
        passed = start + BATCH - earlier.size
        if passed >= length:
            assert watch.bound is not None
            assert 0.7 * keys <= watch.bound <= 1.6 * keys, f"after {passed:,} references"
        if passed >= 2 * length:
            assert watch.bound == pytest.approx(keys, rel=0.06), f"after {passed:,} references"


@pytest.mark.parametrize("before", ["intervals of 5,000", "intervals of 20,000", "loop of 10,000"])
def test_that_a_pattern_ends_is_noticed(before: str) -> None:
    """Zipf 0.6 has no bound within the memory."""
    earlier = BEFORE[before](7_000)
    trace = hash_keys(np.concatenate([earlier, 10_000_000 + zipf(400_000, 500_000, 0.6, 2)]))
    watch = Watch(MEMORY)
    for start in range(0, trace.size, BATCH):
        watch.add(trace[start : start + BATCH])
        if start <= earlier.size - 2 * BATCH:
            is_known = watch.phase in {Phase.MATCHED, Phase.CLOSED}
    assert is_known
    assert watch.phase is Phase.FULL
    assert watch.bound is None
