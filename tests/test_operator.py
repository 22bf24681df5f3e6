"""The operator's core without Spark: what leaves, in which order, and what is asked."""

from __future__ import annotations

import queue
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import cachetools
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from srj import Batch
from srj.lookup.flight import Flight
from srj.lookup.joined import Joined
from srj.lookup.keys import Keys
from srj.lookup.operator import Operator
from srj.lookup.probe import Probe
from tests.joining import as_batches, expected, run_in_order, run_out_of_order, values_of
from tests.scripted import ArrowRows, Scripted, scripted_engine

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from srj.lookup.flight import Arrivals

KEYS = st.one_of(st.none(), st.integers(0, 30))
BATCHES = st.lists(st.lists(KEYS, max_size=40), max_size=12)
TABLE = st.dictionaries(st.integers(0, 30), st.integers(1, 4), max_size=25)


@settings(deadline=None, max_examples=60)
@given(
    BATCHES, TABLE, st.integers(1, 50), st.integers(1, 4), st.lists(st.sampled_from([0.0, 0.001, 0.004]), min_size=1), st.booleans()
)
def test_every_row_leaves_once_with_its_own_matches(
    batches: list[list[int | None]], table: dict[int, int], size: int, in_flight: int, delays: list[float], tight: bool
) -> None:
    """In order and out of order, cold and again from the cache, however lookups overtake each other."""
    rows = values_of(table)
    database = Scripted(rows, delay=lambda number: delays[number % len(delays)])
    engine = scripted_engine(database, batch=Batch(size=size, in_flight=in_flight, max_wait="1 ms"))
    waiting = 1 if tight else 64_000_000
    try:
        for _ in range(2):
            left, matches = run_out_of_order(Operator(engine, waiting), batches)
            assert sorted(left) == list(range(sum(map(len, batches))))
            assert Counter(matches) == Counter(expected(batches, rows))
            assert same_key_order(left, batches)
            assert run_in_order(Operator(engine, waiting), batches) == expected(batches, rows)
        asked = Counter(key for keys in database.asked for key in keys)
        assert set(asked.values()) <= {1}, "a key was asked twice"
        assert set(asked) == {key for keys in batches for key in keys if key is not None}
        assert max(map(len, database.asked), default=0) <= size
        assert database.most_open <= in_flight
    finally:
        engine.close()
    assert database.open == 0


def same_key_order(left: list[int], batches: list[list[int | None]]) -> bool:
    """Whether the rows of each key left in the order in which they came."""
    flat = [key for keys in batches for key in keys]
    last: dict[int | None, int] = {}
    for row in left:
        if flat[row] is not None and last.get(flat[row], -1) > row:
            return False
        last[flat[row]] = row
    return True


def test_hits_leave_while_misses_are_in_flight() -> None:
    """A hit that arrives after a miss leaves before it."""
    database = Scripted({1: ["one"], 2: ["two"]}, delay=lambda number: 0.0 if number == 0 else 0.2)
    engine = scripted_engine(database)
    try:
        run_out_of_order(Operator(engine), [[1]])
        left, _ = run_out_of_order(Operator(engine), [[2, 1], [1, 1]])
    finally:
        engine.close()
    assert left == [1, 2, 3, 0]


def test_the_next_batch_is_asked_while_the_last_keys_of_the_one_before_are_on_their_way() -> None:
    """In order as well: the database is never idle because one of many lookups is slow."""
    slow = threading.Event()

    def delay(number: int) -> float:
        return 0.5 if number == 0 else 0.0

    def fault(number: int) -> None:
        if number == 0:
            slow.set()

    database = Scripted(values_of(dict.fromkeys(range(40), 1)), delay, fault)
    engine = scripted_engine(database, batch=Batch(size=1, in_flight=2))
    taken: list[bool] = []

    def batches() -> Iterator[tuple[pa.Array, ...]]:
        for start in range(0, 40, 8):
            taken.append(slow.is_set())
            yield (pa.array(range(start, start + 8), pa.int64()),)

    try:
        lengths = [len(joined.counts) for joined in Operator(engine).in_order(batches())]
    finally:
        engine.close()
    assert lengths == [8] * 5
    assert taken[:3] == [False] * 3, "the slow lookup had landed before the third batch was read"


@pytest.mark.parametrize("in_order", [True, False])
def test_input_is_read_ahead_of_slow_lookups_but_not_without_end(in_order: bool) -> None:
    """Two lookups for each that is sent at a time keep the database busy; answers to more would only pile up."""
    database = Scripted(values_of(dict.fromkeys(range(400), 1)), lambda _: 0.1)
    engine = scripted_engine(database, batch=Batch(size=10, in_flight=2))
    read = 0

    def batches() -> Iterator[tuple[pa.RecordBatch, tuple[pa.Array, ...]]]:
        nonlocal read
        for batch in as_batches([list(range(start, start + 10)) for start in range(0, 400, 10)]):
            read += 1
            yield batch

    operator = Operator(engine)
    leaving = operator.in_order(keys for _, keys in batches()) if in_order else operator.out_of_order(batches(), ArrowRows())
    try:
        next(leaving)
        leaving.close()
    finally:
        engine.close()
    assert 4 <= read <= 6


def test_all_that_an_operator_has_heard_of_is_in_the_cache_when_it_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though the batch thread gets no further than to tell it: another worker finds the keys, also if this one is ended."""
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    announce = Flight.announce

    def announce_and_sleep(flight: Flight) -> None:
        announce(flight)
        time.sleep(0.2)

    monkeypatch.setattr(Flight, "announce", announce_and_sleep)
    database = Scripted(values_of({1: 1, 2: 1}))
    engines = [scripted_engine(database, shared_as="one") for _ in range(2)]
    try:
        for engine in engines:
            operator = Operator(engine)
            assert len(list(operator.in_order([(pa.array([1, 2], pa.int64()),)]))) == 1
            operator.take_metrics()
    finally:
        for engine in engines:
            engine.close()
    assert database.asked == [[1, 2]]


def test_a_closing_engine_sends_no_more_lookups() -> None:
    """Neither in place of those that it ends, nor those that were waiting for their turn."""
    database = Scripted(values_of(dict.fromkeys(range(100), 1)), lambda _: 30.0)
    engine = scripted_engine(database, batch=Batch(size=10, in_flight=1))
    asked_keys = Keys.of([pa.array(range(40), pa.int64())])
    arrivals: Arrivals = queue.SimpleQueue()
    engine.admit(asked_keys, arrivals)
    deadline = time.monotonic() + 5
    while not database.asked and time.monotonic() < deadline:
        time.sleep(0.01)
    engine.close()
    assert len(database.asked) == 1
    flights = [arrivals.get(timeout=5) for _ in range(4)]
    assert all("closed" in str(flight.error) for flight in flights)


def test_matches_for_too_few_rows_are_never_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark would put all that follow beside other rows."""
    engine = scripted_engine(Scripted(values_of({1: 1, 2: 1})))
    monkeypatch.setattr(
        Probe, "joined", lambda probe: Joined(np.ones(probe.length - 1, np.int32), pa.record_batch({"value": ["x"]}))
    )
    try:
        with pytest.raises(AssertionError, match="expected matches for 2 rows, got them for 1"):
            run_in_order(Operator(engine), [[1, 2]])
    finally:
        engine.close()


def test_answers_go_into_the_cache_when_somebody_looks_there_or_many_have_come() -> None:
    """Together, which is faster; what waits for that is bounded although nobody looks."""
    keys = range(30_000)
    database = Scripted({key: [str(key)] for key in keys})
    engine = scripted_engine(database, unique=True, cache="8 MB", batch=Batch(size=1000, in_flight=1, max_wait="1 ms"))
    try:
        arrivals: Arrivals = queue.SimpleQueue()
        flights = engine.admit(Keys((pa.array(keys, pa.int64()),)), arrivals).flights
        for _ in flights:
            assert arrivals.get(timeout=10).error is None
        assert 20_000 <= engine._cache.stats().entries < 30_000
        until = time.monotonic() + 5
        # An answer is announced a moment before it is handed over.
        while not (again := engine.admit(Keys((pa.array([29_999, 5], pa.int64()),)), arrivals)).found.hit.all():
            assert time.monotonic() < until
        assert again.found.rows["value"].to_pylist() == ["29999", "5"]
        assert engine._cache.stats().entries == 30_000
    finally:
        engine.close()


class Changing(Scripted):
    """Keys that have other rows, and another number of them, at each lookup."""

    def rows_at(self, number: int) -> dict[int, list[str]]:
        """Named after the key and the lookup."""
        return {key: [f"{key}/{number}/{row}" for row in range(3 + 2 * number)] for key in range(60)}


@pytest.mark.parametrize(("slow", "fast"), [(0.1, 0.2), (0.3, 0.0)], ids=["in order", "overtaken"])
def test_keys_asked_anew_because_their_lookup_is_too_old_keep_their_own_rows(slow: float, fast: float) -> None:
    """Both answers go into the cache one after the other, whichever comes first; the later lookup's counts."""
    now = [0.0]
    keys = Keys((pa.array(range(60), pa.int64()),))
    database = Changing({}, lambda number: (slow, fast, 0.0)[number])
    engine = scripted_engine(database, clock=lambda: now[0], ttl=0.25, missing_ttl=0.25, batch=Batch(in_flight=2, max_wait="1 ms"))
    try:
        arrivals: Arrivals = queue.SimpleQueue()
        flights = engine.admit(keys, arrivals).flights
        while not database.asked:
            time.sleep(0.001)
        now[0] = 1.0  # from here on the first lookup is too old
        flights += engine.admit(keys, arrivals).flights
        assert len(set(flights)) == 2
        first = arrivals.get(timeout=10)
        if first is flights[1]:
            until = time.monotonic() + 5
            while not engine.admit(keys, arrivals).found.hit.all():
                assert time.monotonic() < until
        for flight in set(flights) - {first}:
            while arrivals.get(timeout=10) is not flight:
                pass
        time.sleep(0.05)  # until the batch thread has handed it over
        for _ in range(2):
            found = engine.admit(keys, arrivals).found
            assert found.hit.all()
            assert found.rows["value"].to_pylist() == [f"{key}/1/{row}" for key in range(60) for row in range(5)]
    finally:
        engine.close()
    assert len(database.asked) == 2


def test_zero_and_minus_zero_are_one_key_and_are_asked_once() -> None:
    """Arrow tells them apart; a dict does not, and no database: the second is on its way with the first, and known with it."""
    database = Scripted({0.0: ["zero"], 5.0: ["five"]})
    engine = scripted_engine(database, key_type=pa.float64())
    try:
        for _ in range(3):
            first, second = Operator(engine).in_order([(pa.array([0.0, 5.0]),), (pa.array([-0.0]),)])
            assert first.inner()[1]["value"].to_pylist() == ["zero", "five"]
            assert second.inner()[1]["value"].to_pylist() == ["zero"]
    finally:
        engine.close()
    assert database.asked == [[0.0, 5.0]]


@pytest.mark.parametrize("cache", ["1 MB", lambda: cachetools.LRUCache(100)], ids=["columnar", "cachetools"])
@pytest.mark.parametrize("key_type", [pa.float32(), pa.float64()], ids=str)
def test_nan_is_one_key_whatever_its_bits_and_is_asked_once(cache: Any, key_type: pa.DataType) -> None:
    """Of one batch, of a later one while its lookup is on its way, and of one that finds it cached."""
    number = np.uint32 if key_type == pa.float32() else np.uint64
    nan = np.array([np.nan, -np.nan], key_type.to_pandas_dtype())
    odd = (nan.view(number) | number(1)).view(nan.dtype)
    batches = [(pa.array([*nan, *odd, 5.0], key_type),), (pa.array([5.0, *odd[::-1]], key_type),)]
    database = Scripted({5.0: ["five"]}, delay=lambda _: 0.5)
    engine = scripted_engine(database, key_type=key_type, cache=cache)
    operator = Operator(engine)
    try:
        assert [joined.counts.tolist() for joined in operator.in_order(batches)] == [[0, 0, 0, 0, 1], [1, 0, 0]]
        assert operator.metrics.misses == 8
        assert [joined.counts.tolist() for joined in operator.in_order(batches)] == [[0, 0, 0, 0, 1], [1, 0, 0]]
        assert operator.metrics.hits == 8
    finally:
        engine.close()
    assert [sorted(map(str, keys)) for keys in database.asked] == [["5.0", "nan"]]


@pytest.mark.parametrize("rows", [1_000, 3_000])
def test_more_answers_than_a_small_cache_holds_are_not_stored_in_one_go(rows: int) -> None:
    """What the last of them push out was cached for a while: it counts as evicted, not as what the cache could not keep."""
    keys = range(rows * 4)
    engine = scripted_engine(
        Scripted({key: [str(key)] for key in keys}), unique=True, cache=f"{rows} rows", batch=Batch(size=100, in_flight=4)
    )
    operator = Operator(engine)
    try:
        assert len(run_in_order(operator, [list(keys)])) == len(keys)
        run_in_order(operator, [list(keys[-50:])])
        assert operator.metrics.hits == 50
        stats = engine.cache_stats()
    finally:
        engine.close()
    assert stats.refused < len(keys) // 1000
    assert stats.entries + stats.evictions + stats.refused == len(keys)


def test_metrics_count_each_row_once() -> None:
    """Hits, misses, absent, NULL keys and matches add up, and lookups are counted with their keys."""
    database = Scripted(values_of({1: 2, 2: 1}))
    engine = scripted_engine(database, batch=3)
    operator = Operator(engine)
    try:
        run_in_order(operator, [[1, 1, 2, None, 9], [1, 9, None]])
        run_in_order(operator, [[1, 9]])
        metrics = operator.metrics
    finally:
        engine.close()
    assert (metrics.rows, metrics.null_keys) == (10, 2)
    assert metrics.hits + metrics.misses == 8
    assert metrics.misses >= 4
    assert (metrics.absent, metrics.matches) == (3, 2 * 4 + 1)
    assert (metrics.batches, metrics.keys) == (1, 3)
    assert metrics.database_us > 0
