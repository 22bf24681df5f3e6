"""cache="auto": the cache gets what the stream's keys need, all workers' keys counted, and the rest goes to what waits."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from srj.errors import RequestError
from srj.lookup import auto_size, make_cache
from srj.lookup.keys import Keys
from srj.lookup.layout import Contents
from srj.lookup.make_cache import check_cache
from srj.lookup.metrics import METRICS, PHASES
from srj.lookup.operator import Operator
from srj.options import Batch, Cache, parse_options
from srj.sizing import Phase
from tests.joining import expected, run_in_order, run_out_of_order, values_of
from tests.scripted import Scripted, scripted_engine
from tests.shared_map import PROCESSES, process
from tests.sizing.traces import intervals, zipf

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from srj.lookup.engine import Engine

ROW = "x" * 40  # longer than a view holds itself


def joined(engine: Engine, keys: np.ndarray, batch: int = 5_000, before: Callable[[], object] = lambda: None) -> int:
    """The rows that a stream of these keys gets, checked; a resize that has begun is waited for after each batch."""
    operator, count = Operator(engine), 0

    def batches() -> Iterator[tuple[pa.Array]]:
        for start in range(0, keys.size, batch):
            before()
            yield (pa.array(keys[start : start + batch]),)
            moving = engine._auto._moving  # type: ignore[union-attr]
            if moving is not None:
                moving.join()

    for number, matches in enumerate(operator.in_order(batches())):
        _, rows = matches.inner()
        expected = [f"{ROW}{key}" for key in keys[number * batch : (number + 1) * batch].tolist()]
        assert rows["value"].to_pylist() == expected
        count += rows.num_rows
    return count


def engine_for_keys(distinct: int, **options: Any) -> Engine:
    """An engine over a table of so many keys, a row each."""
    rows = {key: [f"{ROW}{key}"] for key in range(distinct)}
    return scripted_engine(Scripted(rows), unique=True, **options)


def test_on_moving_intervals_the_cache_gets_the_bound_with_ample_slack_and_the_rest_waits() -> None:
    """Within the second interval: 2,000 keys each, in memory for some 12,000."""
    keys = intervals([20_000] * 5, [2_000] * 5, 1)
    engine = engine_for_keys(10_000, cache="auto", memory=2_000_000)
    try:
        first = engine.cache_stats()
        assert 900_000 <= first.bytes_reserved <= 1_000_000
        assert joined(engine, keys[:40_000]) == 40_000
        auto = engine._auto
        assert auto is not None
        assert auto.watch is not None
        assert auto.watch.phase is Phase.MATCHED
        stats = engine.cache_stats()
        assert 0.98 * 2_000 * 1.5 <= stats.capacity <= 1.03 * 2_000 * 1.5
        assert auto.waiting_bytes == 2_000_000 - stats.bytes_reserved
        operator = Operator(engine)
        told = dict(zip(METRICS, operator.take_metrics(), strict=True))
        assert (told["cache_capacity"], told["cache_bytes"]) == (stats.capacity, stats.bytes_reserved)
        assert (PHASES[told["cache_phase"]], told["cache_bound"], told["resizes"]) == ("matched", auto.watch.bound, 1)
        assert dict(zip(METRICS, operator.take_metrics(), strict=True))["resizes"] == 0
        for start in range(40_000, keys.size, 5_000):
            for _ in operator.in_order([(pa.array(keys[start : start + 5_000]),)]):
                pass
        # A lookup of each key of the intervals that follow, and hardly any twice.
        assert operator.metrics.keys <= 6_000 + 0.01 * 60_000
    finally:
        engine.close()


@pytest.mark.parametrize(("before", "after"), [(100, 150), (300, 400), (300, 500)])
def test_a_small_working_set_that_grows_has_room_again(before: int, after: int) -> None:
    """The sample of so few keys says little: either the growth is seen, or the cache had room for it."""
    engine = engine_for_keys(2_000, cache="auto", memory=2_000_000)
    try:
        joined(engine, 1_000 + np.arange(100_000) % before)
        auto = engine._auto
        assert auto is not None
        assert auto.watch is not None
        assert auto.watch.phase is Phase.CLOSED
        joined(engine, 1_000 + np.arange(100_000) % after)
        operator = Operator(engine)
        list(operator.in_order([(pa.array(1_000 + np.arange(5_000) % after),)]))
        assert operator.metrics.hits >= 0.99 * 5_000
    finally:
        engine.close()


@pytest.mark.parametrize("memory", [300_000, 2_000_000])
def test_keys_with_far_more_rows_than_expected_find_room(memory: int) -> None:
    """80 rows each where 2 are expected: a small cache without room for a single key would learn nothing from what it keeps."""
    rows = {key: [f"{ROW}{key}-{number}" for number in range(80)] for key in range(10)}
    engine = scripted_engine(Scripted(rows), cache="auto", memory=memory)
    try:
        operator, keys = Operator(engine), np.arange(60_000) % 10
        for start in range(0, keys.size, 300):
            for matches in operator.in_order([(pa.array(keys[start : start + 300]),)]):
                assert matches.counts.tolist() == [80] * 300
        assert operator.metrics.keys <= 200
        assert engine.cache_stats().entries == 10
    finally:
        engine.close()


def test_a_cache_for_more_keys_grows_within_an_interval_and_its_rows_stay() -> None:
    """From 1,000 keys an interval to 6,000: the first are still hits after the cache has grown."""
    engine = engine_for_keys(40_000, cache="auto", memory=3_000_000)
    try:
        joined(engine, intervals([20_000] * 3, [1_000] * 3, 1))
        small = engine.cache_stats().capacity
        assert small < 1_600
        larger = 4_000 + intervals([60_000] * 2, [6_000] * 2, 2)
        joined(engine, larger[:60_000])
        assert engine.cache_stats().capacity >= 6_000
        joined(engine, larger[60_000:])
        stats = engine.cache_stats()
        assert 6_000 <= stats.capacity < 12_000
        operator = Operator(engine)
        list(operator.in_order([(pa.array(4_000 + 6_000 + np.arange(6_000)),)]))
        assert operator.metrics.hits >= 0.99 * 6_000
    finally:
        engine.close()


def test_where_all_keys_fit_the_cache_has_room_for_all() -> None:
    """Half of the memory, which it begins with, holds some 4,000."""
    engine = engine_for_keys(5_000, cache="auto", memory=1_000_000)
    try:
        keys = zipf(120_000, 5_000, 0.0, 1)
        joined(engine, keys[:60_000])
        time.sleep(1.0)  # it rests for 200 times what its last decision took; the bound, known by now, then overrules the model
        joined(engine, keys[60_000:])
        operator = Operator(engine)
        list(operator.in_order([(pa.array(np.arange(5_000)),)]))
        assert operator.metrics.hits >= 0.99 * 5_000
    finally:
        engine.close()


def test_while_no_key_misses_nothing_is_watched_and_then_the_cache_follows(monkeypatch: pytest.MonkeyPatch) -> None:
    """From a loop of 4,000 keys, all of which it holds, to intervals of 750."""
    monkeypatch.setattr(auto_size, "_REST", 0.0)  # it decides as soon as it may
    engine = engine_for_keys(20_000, cache="auto", memory=2_000_000)
    try:
        joined(engine, np.arange(100_000) % 4_000)
        auto = engine._auto
        assert auto is not None
        assert auto.watch is not None
        assert (auto.watch.phase, auto.watch.is_asleep) == (Phase.CLOSED, True)
        of_all = engine.cache_stats().capacity
        assert of_all >= 4_000
        joined(engine, 5_000 + intervals([15_000] * 16, [750] * 16, 1))
        assert not auto.watch.is_asleep
        assert auto.watch.bound == pytest.approx(750, rel=0.02)
        assert engine.cache_stats().capacity <= of_all / 1.5
    finally:
        engine.close()


def test_once_all_keys_hit_rows_that_come_together_lie_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop for which the first cache is too small: its rows came and left, and lay where there was room."""
    monkeypatch.setattr(auto_size, "_REST", 0.0)
    monkeypatch.setattr(auto_size, "_REST_AFTER_MOVE", 0.0)
    loop, length = np.random.default_rng(1).permutation(13_000), 16
    rows = {key: [f"{key:0{length}}"] for key in loop.tolist()}
    engine = scripted_engine(Scripted(rows), unique=True, cache="auto", memory=1_600_000)
    try:
        small, operator = engine.cache_stats().capacity, Operator(engine)
        assert small < loop.size
        # Many at a time, as where lookups are large, until all hit.
        for start in [*range(0, 10 * loop.size, 6_500), *range(10 * loop.size, 40 * loop.size, 1_000)]:
            together = 6_500 if start < 10 * loop.size else 1_000
            for _ in operator.in_order([(pa.array(np.take(loop, np.arange(start, start + together), mode="wrap")),)]):
                pass
            assert engine._auto is not None
            if engine._auto._moving is not None:
                engine._auto._moving.join()
        assert engine._auto.watch is not None
        assert engine._auto.watch.is_asleep
        cache = engine._cache._cache  # type: ignore[union-attr]
        batches = [cache.encode(Keys((pa.array(loop[at : at + 1_000]),))) for at in range(0, loop.size, 1_000)]
        ages = [cache._entries.ages(cache._entries.placement.find(batch).ways) for batch in batches]
        pages = [np.unique(of_batch // 4_096).size for of_batch in ages]
        assert np.median(pages) <= 1_000 * length / 4_096 + 4
    finally:
        engine.close()


def test_a_cache_that_had_to_stay_large_is_made_smaller_while_nothing_is_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    """It grew for intervals of 6,000 keys, and has to stay for 32 times as many references; the watch sleeps long before."""
    monkeypatch.setattr(auto_size, "_WHILE_ASLEEP", 50_000)
    monkeypatch.setattr(auto_size, "_REST", 0.0)
    monkeypatch.setattr(auto_size, "_REST_AFTER_MOVE", 0.0)
    engine = engine_for_keys(40_000, cache="auto", memory=3_000_000)
    try:
        joined(engine, intervals([20_000] * 3, [1_000] * 3, 1))
        joined(engine, 4_000 + intervals([60_000] * 3, [6_000] * 3, 2))
        auto = engine._auto
        assert auto is not None
        grown, entries = auto._grown
        assert entries >= 6_000
        joined(engine, 30_000 + np.arange(60_000) % 1_000)
        assert auto.watch is not None
        assert auto.watch.is_asleep
        assert engine.cache_stats().capacity >= 6_000
        joined(engine, 30_000 + np.arange(grown + 33 * entries + 60_000 - auto._seen) % 1_000)
        assert 1_000 <= engine.cache_stats().capacity <= 1_600
    finally:
        engine.close()


def test_without_a_bound_within_the_memory_the_cache_never_takes_all_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nearly uniform over 40,000 keys in memory for some 18,000: whatever the model says, a sixteenth is left for what waits."""
    engine = engine_for_keys(40_000, cache="auto", memory=2_000_000)
    try:
        joined(engine, zipf(150_000, 40_000, 0.2, 1))
        auto = engine._auto
        assert auto is not None
        assert auto.watch is not None
        assert auto.watch.phase is Phase.FULL
        monkeypatch.setattr(auto, "_by_costs", lambda *_: auto._most)
        joined(engine, zipf(100_000, 40_000, 0.2, 2))
        assert engine.cache_stats().bytes_reserved >= 0.9 * 2_000_000 * 15 / 16
        told = dict(zip(METRICS, Operator(engine).take_metrics(), strict=True))
        assert (PHASES[told["cache_phase"]], told["cache_bound"]) == ("full", 0), "known to be none"
        assert engine.cache_stats().bytes_reserved <= 2_000_000 * 15 / 16
        assert auto.waiting_bytes >= 2_000_000 / 16
    finally:
        engine.close()


@pytest.mark.parametrize("memory", [163_456, 163_500, 200_001, 500_000, 1_000_003])
def test_a_cache_that_shall_have_all_it_may_gets_nearly_that(memory: int) -> None:
    """Sets and pages are whole, and take a little more than as many entries do on the whole."""
    engine = engine_for_keys(20_000, cache="auto", memory=memory)
    try:
        joined(engine, np.arange(20_000))
        auto = engine._auto
        assert auto is not None
        auto._room.measure()
        auto._move(auto._most + 1)
        assert auto._moving is not None
        auto._moving.join()
        stats = engine.cache_stats()
        assert stats.bytes_reserved <= memory * 15 / 16
        assert stats.bytes_reserved >= 0.85 * memory
    finally:
        engine.close()


@pytest.mark.parametrize("length", [100, 3_000])
def test_values_wider_than_described_do_not_starve_the_cache(length: int) -> None:
    """300 keys, described as 16 bytes a value: a cache made for that would keep none, and never learn."""
    rows = {key: ["x" * length + str(key)] for key in range(300)}
    engine = scripted_engine(Scripted(rows), unique=True, cache="auto", memory=4_000_000)
    try:
        operator, keys = Operator(engine), np.random.default_rng(1).integers(0, 300, 60_000)
        for start in range(0, keys.size, 1_000):
            for _ in operator.in_order([(pa.array(keys[start : start + 1_000]),)]):
                pass
        assert (
            operator.metrics.keys <= 1_000
        )  # some until the cache knows better; with 16 bytes a value it was every key, each time
    finally:
        engine.close()


def test_keys_with_more_rows_than_described_do_not_starve_the_cache() -> None:
    """20 rows a key, described as 2."""
    rows = {key: [f"{ROW}{key}-{row}" for row in range(20)] for key in range(600)}
    engine = scripted_engine(Scripted(rows), cache="auto", memory=8_000_000)
    try:
        operator, keys = Operator(engine), np.random.default_rng(1).integers(0, 600, 60_000)
        for start in range(0, keys.size, 1_000):
            for _ in operator.in_order([(pa.array(keys[start : start + 1_000]),)]):
                pass
        assert operator.metrics.keys <= 1.2 * 600
        assert engine.cache_stats().bytes_reserved <= 8_000_000
    finally:
        engine.close()


def test_a_cache_that_grew_is_not_made_smaller_at_the_next_turn() -> None:
    """4,000 keys and 300 in turn: the large set is fetched anew once or twice, not each time it comes."""
    engine = engine_for_keys(5_000, cache="auto", memory=1_500_000)
    try:
        parts = [intervals([20_000], [4_000], 1), 4_000 + intervals([20_000], [300], 2)]
        operator = Operator(engine)
        for turn in range(10):
            for start in range(0, 20_000, 1_000):
                list(operator.in_order([(pa.array(parts[turn % 2][start : start + 1_000]),)]))
        assert operator.metrics.keys <= 3 * 4_300
    finally:
        engine.close()


def test_an_engine_may_be_closed_while_its_cache_moves() -> None:
    """And its memory is given back, though engine and sizer know each other."""
    engine = engine_for_keys(10_000, cache="auto", memory=8_000_000)
    keys = intervals([20_000] * 2, [2_000] * 2, 1)
    for start in range(0, keys.size, 1_000):
        list(Operator(engine).in_order([(pa.array(keys[start : start + 1_000]),)]))
    auto = engine._auto
    assert auto is not None
    auto._move(50_000)
    moving = auto._moving
    engine.close()
    assert moving is not None
    assert not moving.is_alive()
    assert engine._auto is None


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"cache": "128 MB", "memory": "512 MB"}, "expected memory only with cache='auto'"),
        ({"memory": "512 MB"}, "expected memory only with cache='auto'"),
        ({"cache": "auto", "memory": "1000 rows"}, "expected memory as bytes such as '512 MB'"),
        ({"cache": "auto", "memory": "much"}, "got 'much'"),
        ({"cache": dict, "memory": "512 MB"}, "expected memory only with cache='auto'"),
        ({"cache": "atuo"}, "expected a cache size such as '128 MB', 'auto', '1_000_000 rows' or a number of bytes, got 'atuo'"),
        ({"cache": "Auto"}, "got 'Auto'; did you mean 'auto'?"),
        ({"batch": "Auto"}, "got 'Auto'; did you mean 'auto'?"),
    ],
)
def test_mistakes_are_told_in_one_sentence(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(RequestError) as error:
        parse_options(options)  # type: ignore[arg-type]
    assert sentence in str(error.value)


@pytest.mark.parametrize(
    ("settings", "arguments", "sentence"),
    [
        (Cache, {"sise": "1 MB"}, "expected a known argument of Cache, got 'sise'; did you mean 'size'?"),
        (Cache, {"chosen": None}, "expected a known argument of Cache, got 'chosen'; there are: memory, missing_ttl, policy, "),
        (Batch, {"inflight": 2}, "expected a known argument of Batch, got 'inflight'; did you mean 'in_flight'?"),
        (
            Batch,
            {"in_flight": "atuo"},
            "expected in_flight as a whole number from 1 to 64 or 'auto', got 'atuo'; did you mean 'auto'?",
        ),
    ],
)
def test_a_misspelt_argument_is_told_with_the_one_that_was_meant(
    settings: type[Cache | Batch], arguments: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(RequestError) as error:
        settings(**arguments)
    assert str(error.value).startswith(sentence)


def test_an_argument_replaces_the_cache_of_a_file_with_its_memory(tmp_path: Path) -> None:
    """Arguments win, and a file's memory means nothing to another cache."""
    file = tmp_path / "srj.toml"
    file.write_text('cache = "auto"\nmemory = "16 MB"\n')
    assert parse_options({"config": file}).lookup.cache == Cache(size="auto", memory="16 MB")
    assert parse_options({"config": file, "cache": "1 MB"}).lookup.cache == Cache(size="1 MB")
    assert parse_options({"config": file, "memory": "8 MB"}).lookup.cache == Cache(size="auto", memory="8 MB")


def test_of_memory_that_the_machine_does_not_have_what_waits_gets_none_either(monkeypatch: pytest.MonkeyPatch) -> None:
    """One warning, and no more for both than half of what is free, what the cache has taken of it included."""
    free = iter([50_000_000])
    monkeypatch.setattr(make_cache, "free_memory", lambda: next(free, 37_500_000))
    with pytest.warns(UserWarning, match=r"^expected 9,999,000,000 bytes for the cache and what waits, got 25,000,000 ") as warned:
        engine = scripted_engine(Scripted({}), unique=True, cache="auto", memory=9_999_000_000)
    try:
        assert len(warned) == 1
        assert engine.cache_stats().bytes_reserved <= 12_500_000
        assert engine.waiting_bytes(0, 0, hits_wait=False) <= 12_600_000  # type: ignore[operator]
    finally:
        engine.close()


@pytest.mark.parametrize("free", [1_000, -5])
def test_where_hardly_any_memory_is_free_the_smallest_cache_serves(free: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A container may have used up its own."""
    monkeypatch.setattr(make_cache, "free_memory", lambda: free)
    with pytest.warns(UserWarning, match="for want of room: no more than half of what is free is taken"):
        engine = engine_for_keys(1_000, cache="auto", memory=2_000_000)
    try:
        assert joined(engine, np.tile(np.arange(1_000), 20), batch=500) == 20_000
        assert engine.cache_stats().bytes_reserved < 20_000
    finally:
        engine.close()


def test_too_little_memory_is_told_as_the_user_wrote_it() -> None:
    engine = engine_for_keys(10, cache="1 MB")
    engine.close()
    spec = replace(engine.spec, settings=replace(engine.spec.settings, cache=Cache(size="auto", memory="10 kB")))
    with pytest.raises(RequestError, match=r"expected at least [0-9,]+ bytes of memory for cache='auto' .* got 10,000; give more"):
        check_cache(spec)


def test_memory_may_stand_in_the_cache_or_beside_it() -> None:
    assert parse_options({"cache": "auto"}).lookup.cache == Cache(size="auto")
    beside = parse_options({"cache": Cache(size="auto", policy="sieve"), "memory": "1 MB"}).lookup.cache
    assert isinstance(beside, Cache)
    assert (beside.policy, beside.memory_bytes) == ("sieve", 1_000_000)
    both = parse_options({"cache": Cache(size="auto", memory="2 MB"), "memory": "1 MB"}).lookup.cache
    assert isinstance(both, Cache)
    assert both.memory_bytes == 1_000_000


def work(folder: Path, part: int, together: Any, results: Any) -> None:
    """A worker: every second batch of a stream of moving intervals."""
    os.environ["SPARK_LOCAL_DIRS"] = str(folder)
    engine = engine_for_keys(10_000, cache="auto", memory=2_000_000, shared_as="one")
    keys = intervals([20_000] * 5, [2_000] * 5, 1).reshape(-1, 2, 1_000)[:, part].ravel()
    # In step, as partitions of one stream are: who is an interval ahead has other keys.
    rows = joined(engine, keys, batch=1_000, before=lambda: together.wait(60))
    together.wait(60)
    joined(engine, keys[-1_000:])
    auto = engine._auto
    assert auto is not None
    results.put((rows, engine.cache_stats().capacity, auto.waiting_bytes, auto.watch is not None))
    together.wait(60)  # for who has closed its engine watches no more, and another begins to
    engine.close()


def test_workers_share_one_cache_which_one_of_them_sizes(tmp_path: Path) -> None:
    """Two processes with half of the stream's batches each: all rows are right, one watches, both have the same cache."""
    results, together = PROCESSES.Queue(), PROCESSES.Barrier(2)
    with process(work, tmp_path, 0, together, results), process(work, tmp_path, 1, together, results):
        told = [results.get(timeout=60) for _ in range(2)]
    assert [rows for rows, *_ in told] == [50_000, 50_000]
    assert {2_900 <= capacity <= 3_100 for _, capacity, *_ in told} == {True}, told
    assert sum(watches for *_, watches in told) == 1
    [cache] = [path for path in (tmp_path / "srj").iterdir() if path.is_file()]
    # Of what the cache leaves each has half while both work.
    assert min(waiting for _, _, waiting, _ in told) == (2_000_000 - cache.stat().st_size) // 2


def test_a_table_without_texts_gets_no_memory_for_them_whatever_its_rows_take() -> None:
    """A map with such a part would be none to workers whose table has no texts."""
    numbers = Contents.of([pa.int64()], pa.schema({"price": pa.float64()}), unique=True)
    assert numbers.geometry(4, outside=50.0, heaviest=50).segments == 0
    assert numbers.geometry(4, outside=50.0) == numbers.geometry(4)


@pytest.mark.parametrize("ttl", [None, "50 ms"])
@pytest.mark.parametrize("order", ["in order", "any"])
def test_batches_of_any_size_get_their_rows_while_the_cache_is_sized(order: str, ttl: str | None) -> None:
    """Empty ones, single rows, NULL keys, keys that the table lacks, a hot one; entries that expire; intervals, then a loop."""
    rng = np.random.default_rng(1)
    table = values_of(dict.fromkeys(range(6_000), 1))
    engine = scripted_engine(Scripted(table), unique=True, cache="auto", memory=1_500_000, ttl=ttl, missing_ttl=ttl)
    keys = np.concatenate([intervals([20_000] * 2, [2_500] * 2, 1), np.arange(20_000) % 700, intervals([10_000], [6_500], 2)])
    keys[rng.random(keys.size) < 0.1] = 17
    ends = np.cumsum(rng.choice([0, 1, 7, 1_000, 3_000], 400))
    with_nulls: list[int | None] = [None if number % 13 == 0 else int(key) for number, key in enumerate(keys)]
    batches = [with_nulls[begin:end] for begin, end in pairwise([0, *ends[ends < keys.size].tolist(), keys.size])]
    assert {0, 1, 7} <= {len(batch) for batch in batches}
    try:
        operator = Operator(engine)
        if order == "in order":
            assert run_in_order(operator, batches) == expected(batches, table)
        else:
            left, matches = run_out_of_order(operator, batches)
            assert sorted(left) == list(range(keys.size))
            assert sorted(matches) == expected(batches, table)
        assert engine.take_resizes() > 0
    finally:
        engine.close()
