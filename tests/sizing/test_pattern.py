"""The pattern is found where locality moves on, and nowhere else; a change is followed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from srj.errors import RequestError
from srj.sizing import Pattern, Phase, Watch, hash_keys, reuse_distances
from srj.sizing.pattern import _Coverage
from tests.sizing.traces import intervals, zipf

if TYPE_CHECKING:
    import numpy.typing as npt

BATCH = 5_000


def test_small_batches_raise_no_false_alarm() -> None:
    """Where an interval begins the few distances are small; that is no change."""
    watch = Watch(80_000)
    for part in np.array_split(hash_keys(intervals([50_000] * 10, [5_000] * 10, 1)), 500):
        watch.add(part)
    assert (watch.searches, watch.phase) == (1, Phase.MATCHED)


def test_on_moving_intervals_the_bound_is_found_in_the_second() -> None:
    """Figure 5.4, scaled: 40 intervals of 50,000 references, each uniform on 5,000 keys."""
    keys = intervals([50_000] * 40, [5_000] * 40, 1)
    true = int(reuse_distances(keys).max()) + 1
    watch, hashes = Watch(80_000), hash_keys(keys)
    for start in range(0, keys.size, BATCH):
        watch.add(hashes[start : start + BATCH])
        if start + BATCH >= 100_000:
            assert watch.bound == pytest.approx(true, rel=0.02)
    assert watch.searches == 1


def test_of_sampled_keys_each_counts_for_as_many_as_it_stands_for() -> None:
    """The second interval is enough, as it is where all keys are looked at."""
    keys = intervals([50_000] * 4, [5_000] * 4, 1)
    distances = reuse_distances(keys)
    exact, sampled = Pattern(50_000), Pattern(5_000_000)
    for part in np.array_split(distances, 40):
        exact.add(part)
        sampled.add(np.where(part < 0, -1.0, 100.0 * part), 100.0)
    assert exact.state.phase is sampled.state.phase is Phase.MATCHED
    assert exact.state.references <= 100_000
    assert sampled.state.references == 100 * exact.state.references
    assert exact.bound is not None
    assert sampled.bound == 100 * (exact.bound - 1) + 1


@pytest.mark.parametrize("skew", [0, 0.6, 1])
def test_without_locality_it_gives_up_at_the_memory(skew: float) -> None:
    watch = Watch(80_000)
    for part in np.array_split(hash_keys(zipf(1_000_000, 500_000, skew, 1)), 200):
        watch.add(part)
    assert watch.phase is Phase.FULL
    assert watch.bound is None


def test_a_loop_is_bounded_by_its_length() -> None:
    watch = Watch(80_000)
    for part in np.array_split(hash_keys(np.tile(np.arange(20_000), 10)), 40):
        watch.add(part)
    assert watch.bound == 20_000


@pytest.mark.parametrize(("keys", "length"), [(10_000, 100_000), (2_000, 50_000)])
def test_a_change_is_followed_within_one_interval(keys: int, length: int) -> None:
    """From 5,000 keys an interval to twice, and to less than half of that."""
    trace = hash_keys(intervals([50_000] * 6 + [length] * 3, [5_000] * 6 + [keys] * 3, 1))
    watch = Watch(80_000)
    for start in range(0, 300_000 + length, BATCH):
        watch.add(trace[start : start + BATCH])
    assert watch.bound == pytest.approx(keys, rel=0.02)


@pytest.mark.parametrize("before", ["zipf 0", "zipf 0.6", "zipf 1", "loop"])
def test_intervals_are_noticed_within_one(before: str) -> None:
    """After keys without a bound, or with a larger one; the intervals' keys have been seen before, too long ago for a cache."""
    earlier = np.tile(np.arange(20_000), 10) if before == "loop" else zipf(400_000, 500_000, float(before[5:]), 1)
    trace = hash_keys(np.concatenate([earlier, intervals([50_000] * 4, [5_000] * 4, 1)]))
    watch = Watch(80_000)

    def see(begin: int, end: int) -> int | None:
        for start in range(earlier.size + begin, earlier.size + end, 1000):
            watch.add(trace[start : start + 1000])
        return watch.bound

    see(-earlier.size, 0)
    assert watch.bound == (20_000 if before == "loop" else None)
    found = see(0, 50_000)
    assert found is not None
    assert 3_500 <= found <= 6_500, "of a sample"
    assert see(50_000, 200_000) == pytest.approx(5_000, rel=0.06)
    assert watch.phase is Phase.MATCHED


def test_a_search_that_begins_at_an_intervals_end_finds_no_bound_that_is_too_low() -> None:
    """The first 2,000 references are an interval's last; what came again in them says nothing of the next interval."""
    watch = Watch(80_000)
    for part in np.array_split(hash_keys(intervals([2_000] + [50_000] * 3, [5_000] * 4, 1)), 152):
        watch.add(part)
        assert watch.bound is None or watch.bound > 4_800
    assert watch.phase is Phase.MATCHED


def test_keys_that_come_again_after_long_end_no_pattern() -> None:
    """The same 40 intervals twice: what no cache of this memory could have held is as good as new."""
    watch = Watch(80_000)
    for part in np.array_split(hash_keys(np.tile(intervals([50_000] * 40, [5_000] * 40, 1), 2)), 800):
        watch.add(part)
    assert (watch.searches, watch.phase) == (1, Phase.MATCHED)


def test_a_small_bound_that_becomes_smaller_is_noticed() -> None:
    """From 300 keys to 100, of which a sample of one in twenty would have five."""
    watch = Watch(5_000)
    for part in np.array_split(hash_keys(np.concatenate([np.tile(np.arange(300), 200), np.tile(np.arange(100), 1_000)])), 160):
        watch.add(part)
    assert watch.bound == 100


@pytest.mark.parametrize("memory", [0, -5, "64 MB"])
def test_memory_for_no_entry_is_refused(memory: int) -> None:
    with pytest.raises(RequestError, match="memory as a whole number from 1"):
        Watch(memory)


@pytest.mark.parametrize("hashes", [[1, 2], np.arange(3), np.zeros((2, 2), np.uint64)])
def test_what_are_no_hashes_is_refused_by_a_watch_that_searches_and_one_that_has_found(hashes: npt.NDArray[np.uint64]) -> None:
    settled = Watch(80_000)
    settled.add(hash_keys(intervals([10_000] * 3, [500] * 3, 3)))
    assert settled.phase is not Phase.SEARCHING
    for watch in (Watch(80_000), settled):
        with pytest.raises(RequestError, match="array of uint64"):
            watch.add(hashes)


@pytest.mark.parametrize("weight", [1.0, 4.0])
def test_coverage_counts_the_keys_since_the_last_new_one_however_it_is_asked(weight: float) -> None:
    """By brute force, in batches cut at random, asked at some of their places only; sampled distances are scaled."""
    rng = np.random.default_rng(2)
    for _ in range(200):
        keys = np.repeat(rng.integers(0, rng.integers(1, 40), rng.integers(1, 200)), rng.integers(1, 4))
        distances = reuse_distances(keys).astype(np.float64)
        distances[distances > 0] *= weight
        coverage, seen, since = _Coverage(), set[int](), set[int]()
        for part in np.split(np.arange(keys.size), np.sort(rng.integers(0, keys.size + 1, 4))):
            wanted = []
            for key in keys[part].tolist():
                since = since | {key} if key in seen else {key}
                seen.add(key)
                wanted.append(weight * len(since))
            new, asked = distances[part] < 0, rng.random(part.size) < rng.choice([0.0, 0.1, 1.0])
            if asked.any():
                found = coverage.at(distances[part], new, asked, weight)
                assert found[asked].tolist() == np.array(wanted)[asked].tolist()
                assert found[-1] == wanted[-1]
            elif part.size:
                coverage.skip(distances[part], new, weight)


def test_a_loop_after_keys_that_never_come_again_is_closed() -> None:
    """A third of the known keys: no round ever covers them."""
    keys, watch = np.concatenate([10_000 + np.arange(1_000), np.tile(np.arange(2_000), 60)]), Watch(20_000)
    for start in range(0, keys.size, 1_000):
        watch.add(hash_keys(keys[start : start + 1_000]))
    assert (watch.phase, watch.bound, watch.searches) == (Phase.CLOSED, 2_000, 1)


def test_one_stray_key_costs_a_moving_stream_its_bound_for_an_interval_or_two() -> None:
    """It comes again after 70,000 others, of 80,000 that memory holds; the search after it ends at the intervals' 5,000."""
    keys, watch = intervals([50_000] * 20, [5_000] * 20, 3), Watch(80_000)
    strays = -1 - np.arange(1_000)
    keys[[100, 750_000]] = strays[np.argmin(hash_keys(strays))]  # which is in every sample
    for start in range(0, keys.size, BATCH):
        watch.add(hash_keys(keys[start : start + BATCH]))
    assert watch.searches == 2
    assert watch.phase in {Phase.MATCHED, Phase.CLOSED}
    assert watch.bound is not None
    assert 4_900 <= watch.bound <= 5_100
