"""What the columnar cache tells a rule: hits, new entries and ways, and never of nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from srj.cache_policies import by_name, names
from srj.lookup.cache import ColumnarCache
from srj.lookup.keys import Keys

RULES = [name for name in names() if by_name(name).rule is not None]
NAME = pa.schema({"name": pa.string()})


def made(policy: str, **options: Any) -> ColumnarCache:
    """A cache of 16 ways, all of which are candidates for every key."""
    defaults: dict[str, Any] = {"size_bytes": None, "size_rows": 16, "ttl": None, "missing_ttl": None, "unique": True}
    return ColumnarCache([pa.int64()], NAME, policy=by_name(policy), **defaults | options)


def store(cache: ColumnarCache, numbers: list[int], started: float) -> None:
    """Each key's name is its number."""
    rows = pa.record_batch({"name": [str(number) for number in numbers]})
    cache.insert(Keys((pa.array(numbers, pa.int64()),)), np.ones(len(numbers), np.int32), rows, started)


def known(cache: ColumnarCache, numbers: list[int], now: float = 0.0) -> list[int]:
    """Those that are found."""
    return np.array(numbers)[cache.lookup(Keys((pa.array(numbers, pa.int64()),)), now).hit].tolist()


def field(cache: ColumnarCache, name: str, numbers: list[int]) -> list[int]:
    """A rule's field at the ways of some keys."""
    ways = cache._entries.placement.find(cache.encode(Keys((pa.array(numbers, pa.int64()),)))).ways
    return cache._entries.fields[name][ways].tolist()


@pytest.mark.parametrize("policy", RULES)
def test_an_answer_that_is_out_of_date_as_a_whole_changes_nothing(policy: str) -> None:
    """A slow lookup lands after a later one of the same keys."""
    cache = made(policy)
    store(cache, [1, 2, 3], 5.0)
    before = {name: values.copy() for name, values in cache._entries.fields.items()}
    store(cache, [1], 4.0)
    store(cache, [3, 2], 4.0)
    assert all((cache._entries.fields[name] == values).all() for name, values in before.items())
    store(cache, [1, 9], 4.0)
    assert known(cache, [1, 2, 3, 9]) == [1, 2, 3, 9]


@pytest.mark.parametrize("policy", [name for name in RULES if name != "random"])
def test_what_was_used_after_the_tick_fell_back_is_new(policy: str) -> None:
    """A process that was held up between reading and writing the tick writes an old one."""
    cache = made(policy)
    for number in range(16):
        store(cache, [number], 0.0)
    orders = cache._entries.rule.victim(cache._entries.fields, 10)
    newest = field(cache, next(name for name in cache._entries.fields if name in {"last_use", "entered", "passed"}), [15])
    assert newest[0] > 10
    ways = cache._entries.placement.find(cache.encode(Keys((pa.array([15, 0]),)))).ways
    assert orders[ways[0]] < orders[ways[1]]


def test_no_rule_is_told_of_nothing() -> None:
    """A rule of a user's own may look at the last tick."""
    told = []

    class Careful(type(by_name("lru").rule)):  # type: ignore[misc]
        """LRU that counts what it is told."""

        def on_hit(self, fields: Any, ways: Any, ticks: Any) -> None:
            """Note how many."""
            told.append(ticks[-1:].size)
            super().on_hit(fields, ways, ticks)

        on_insert = on_hit

    policy = type(by_name("lru"))("careful", exact=by_name("lru").exact, rule=Careful())
    cache = ColumnarCache([pa.int64()], NAME, size_bytes=None, size_rows=16, ttl=None, missing_ttl=None, unique=True, policy=policy)
    known(cache, [1, 2])
    store(cache, [], 0.0)
    store(cache, [1, 2], 2.0)
    store(cache, [1, 2], 1.0)
    known(cache, [7])
    known(cache, [1])
    assert told == [1, 1]


@pytest.mark.parametrize("policy", ["clock", "sieve"])
def test_storing_a_present_key_again_is_a_use_of_it_and_of_no_other(policy: str) -> None:
    """A refresh after its time to live, or another worker's answer: nothing left, so the hand stands still."""
    cache, numbers = made(policy), list(range(16))
    store(cache, numbers, 0.0)
    assert known(cache, numbers) == numbers
    store(cache, [5], 1.0)
    assert field(cache, "bit", numbers) == [1] * 16
    store(cache, [3, 100], 2.0)
    held = [number for number in numbers if number in known(cache, numbers)]
    assert 3 in held
    assert len(held) == 15


def test_lfu_counts_a_refresh_as_one_use() -> None:
    """It does not begin anew."""
    cache = made("lfu")
    store(cache, [1, 2], 0.0)
    for _ in range(5):
        known(cache, [1])
    store(cache, [1, 3], 1.0)
    assert field(cache, "uses", [1, 2, 3]) == [7, 1, 1]


def test_a_refresh_is_a_use_for_lru_and_keeps_its_place_in_fifo() -> None:
    """By who leaves for the next new key."""
    for policy, leaves in (("lru", 1), ("fifo", 0)):
        cache, numbers = made(policy), list(range(16))
        for number in numbers:
            store(cache, [number], 0.0)
        store(cache, [0], 1.0)
        store(cache, [100], 1.0)
        assert known(cache, numbers) == [number for number in numbers if number != leaves], policy


@pytest.mark.parametrize("policy", ["clock", "sieve"])
def test_an_entry_that_left_by_its_time_moves_no_hand(policy: str) -> None:
    """Expired, or forgotten because its new answer can't be kept: what comes in its place clears no other's bit."""
    cache, numbers = made(policy, ttl=10.0, missing_ttl=10.0, size_rows=None, size_bytes=7000), list(range(16))
    store(cache, [0], 0.0)
    store(cache, numbers[1:], 5.0)
    assert known(cache, numbers, 6.0) == numbers
    store(cache, [100], 11.0)
    assert known(cache, [0, 100], 11.0) == [100]
    assert field(cache, "bit", numbers[1:]) == [1] * 15
    huge = pa.record_batch({"name": ["x" * 5000]})
    cache.insert(Keys((pa.array([7]),)), np.ones(1, np.int32), huge, 11.0)
    store(cache, [101], 11.0)
    assert known(cache, [7, 101], 11.0) == [101]
    assert field(cache, "bit", [number for number in numbers[1:] if number != 7]) == [1] * 14
