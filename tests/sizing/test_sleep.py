"""Where all keys are known and none misses, the watch sleeps; what comes after that it sees as well as if it had not slept."""

from __future__ import annotations

from typing import TYPE_CHECKING

import cachetools
import numpy as np
import pytest

from srj.sizing import Phase, Watch, hash_keys
from tests.sizing.traces import intervals, zipf

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    I64 = npt.NDArray[np.int64]

MEMORY, BATCH, KEYS = 80_000, 1_000, 20_000
CLOSED = {
    "loop": np.arange(20 * KEYS) % KEYS,
    "zipf 0": zipf(40 * KEYS, KEYS, 0.0, 1),
    "zipf 0.6": zipf(40 * KEYS, KEYS, 0.6, 1),
}


def watched(watch: Watch, keys: I64, cache: cachetools.LRUCache[int, None]) -> Iterator[int]:
    """After each batch how many references have passed; the cache is such as the watch's bound asks for."""
    for start in range(0, keys.size, BATCH):
        batch = keys[start : start + BATCH]
        missed = 0
        for key in batch.tolist():
            if key in cache:
                cache[key]  # used
            else:
                cache[key] = None
                missed += 1
        watch.add(hash_keys(batch), missed=missed)
        yield start + BATCH


def asleep(before: str) -> tuple[Watch, cachetools.LRUCache[int, None]]:
    watch, cache = Watch(MEMORY), cachetools.LRUCache[int, None](int(1.25 * KEYS))
    for _ in watched(watch, CLOSED[before], cache):
        pass
    assert (watch.phase, watch.searches, watch.is_asleep, watch.rate) == (Phase.CLOSED, 1, True, 0)
    assert watch.bound == pytest.approx(KEYS, rel=0.02)
    return watch, cache


@pytest.mark.parametrize("before", list(CLOSED))
def test_it_wakes_when_keys_expire_and_knows_what_it_knew(before: str) -> None:
    """All miss once, as where they were stored at one time; that is no change of the pattern."""
    watch, cache = asleep(before)
    cache.clear()
    states = [watch.is_asleep for _ in watched(watch, CLOSED[before], cache)]
    assert (states[0], states[-1]) == (False, True)
    assert (watch.phase, watch.searches) == (Phase.CLOSED, 1)


@pytest.mark.parametrize("keys", [5_000, 10_000, 30_000])
@pytest.mark.parametrize("before", list(CLOSED))
def test_what_comes_after_is_followed_within_one_interval(before: str, keys: int) -> None:
    watch, cache = asleep(before)
    length = 10 * keys
    for passed in watched(watch, 1_000_000 + intervals([length] * 4, [keys] * 4, 2), cache):
        assert not watch.is_asleep
        if passed >= length:
            assert watch.bound is not None
            assert 0.7 * keys <= watch.bound <= 1.6 * keys, f"after {passed:,} references"
        if passed >= 2 * length:
            assert watch.bound == pytest.approx(keys, rel=0.06), f"after {passed:,} references"


def test_new_keys_that_hardly_repeat_are_noticed_soon_after_known_ones_have_come_again() -> None:
    """Intervals of 15,000 keys, three references each: a third are first touches, as known keys' are just after a sleep."""
    watch, cache = asleep("zipf 0")
    for passed in watched(watch, 1_000_000 + intervals([45_000] * 8, [15_000] * 8, 2), cache):
        if passed >= 4 * 45_000:
            assert watch.searches >= 2, f"after {passed:,} references"
            return


def test_a_sleep_adds_no_first_touches_to_the_curve() -> None:
    watch, cache = asleep("zipf 0")
    before = float(watch.curve().at(KEYS))
    for _ in range(3):
        cache.clear()
        for _ in watched(watch, CLOSED["zipf 0"], cache):
            pass
    assert float(watch.curve().at(KEYS)) <= before


def test_a_larger_loop_is_followed_when_it_comes_round() -> None:
    """Half of its keys are those of before."""
    watch, cache = asleep("loop")
    for passed in watched(watch, np.arange(200_000) % (2 * KEYS), cache):
        if passed > 2.2 * 2 * KEYS:
            assert watch.bound == pytest.approx(2 * KEYS, rel=0.05), f"after {passed:,} references"


def test_as_long_as_keys_miss_now_and_then_it_does_not_sleep() -> None:
    watch = Watch(MEMORY)
    for number, batch in enumerate(np.split(hash_keys(CLOSED["loop"]), CLOSED["loop"].size // BATCH)):
        watch.add(batch, missed=int(number % 100 == 0))
    assert (watch.phase, watch.is_asleep) == (Phase.CLOSED, False)


def test_where_the_pattern_moves_on_it_does_not_sleep() -> None:
    """Also if somebody else has brought all keys into the cache before."""
    watch = Watch(MEMORY)
    for batch in np.split(hash_keys(intervals([50_000] * 10, [5_000] * 10, 1)), 500):
        watch.add(batch, missed=0)
    assert (watch.phase, watch.is_asleep) == (Phase.MATCHED, False)
