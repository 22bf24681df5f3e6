"""Order constraints: never exceeded, and used; checked by independent and slow definitions."""

from __future__ import annotations

import time
from collections import Counter
from contextlib import closing
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from srj import Batch, Disorder, RequestError, Windows
from srj.lookup.keys import Keys
from srj.lookup.operator import Operator
from srj.lookup.order import scrambling_distances
from srj.lookup.reorder_buffer import NEVER
from srj.lookup.restorer import Restorer
from tests.scripted import ArrowRows, Scripted, scripted_engine

if TYPE_CHECKING:
    from collections.abc import Iterator

    from srj.lookup.engine import Engine
    from srj.lookup.order import Order

BATCHES = st.lists(st.lists(st.integers(0, 12), max_size=30), max_size=12)
ORDERS = st.one_of(
    st.sampled_from(["any", "input"]),
    st.sampled_from([0, 1, 2, 5, 20, 1000]).map(lambda n: Disorder(max=n)),
    st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), min_size=1, max_size=3).map(lambda windows: Windows(*windows)),
)
VALUES = {key: [f"{key}/{number}" for number in range(key % 3)] for key in range(13)}


def maximum_scrambling_distance(left: list[int]) -> int:
    """Definition 8 to the letter: over all pairs in the wrong order, the rows that leave after the first up to the second."""
    distances = [
        later - earlier for earlier in range(len(left)) for later in range(earlier + 1, len(left)) if left[later] < left[earlier]
    ]
    return max(distances, default=0)


def windows_of(rows: list[int], size: int, slide: int) -> list[set[int]]:
    """What each count window over these rows holds."""
    return [set(rows[begin : begin + size]) for begin in range(0, len(rows), slide)]


def arrowed(batches: list[list[int]], **more: list[list[int]]) -> Iterator[tuple[pa.RecordBatch, tuple[pa.Array]]]:
    """Batches with numbered rows."""
    start = 0
    for number, keys in enumerate(batches):
        columns = {name: pa.array(values[number], pa.int64()) for name, values in more.items()}
        yield (
            pa.record_batch({"row": pa.array(range(start, start + len(keys)), pa.int64()), **columns}),
            (pa.array(keys, pa.int64()),),
        )
        start += len(keys)


def filled_meanwhile(engine: Engine, batches: list[list[int]], fills: list[list[int]]) -> Iterator[Any]:
    """The batches, before each of which another worker puts some keys into the cache that both share."""
    for batch, keys in zip(arrowed(batches), fills, strict=False):
        rows = [text for key in keys for text in VALUES[key]]
        if keys:
            counts = np.array([len(VALUES[key]) for key in keys], np.int32)
            with engine._lock:
                engine._cache.insert(Keys((pa.array(keys),)), counts, pa.record_batch({"value": rows}), engine._clock())
        yield batch


@settings(deadline=None, max_examples=150)
@given(
    batches=BATCHES,
    order=ORDERS,
    size=st.integers(1, 20),
    in_flight=st.integers(1, 4),
    delays=st.lists(st.sampled_from([0.0, 0.0005, 0.002, 0.006]), min_size=1, max_size=8),
    fills=st.lists(st.lists(st.integers(0, 12), unique=True, max_size=6), min_size=12, max_size=12),
    tight=st.booleans(),
)
def test_no_constraint_is_ever_exceeded_and_no_row_lost(
    batches: list[list[int]], order: Order, size: int, in_flight: int, delays: list[float], fills: list[list[int]], tight: bool
) -> None:
    """Whatever hits, whatever is slow, and though another worker fills keys while their rows wait here."""
    keys = [key for batch in batches for key in batch]
    database = Scripted(VALUES, delay=lambda number: delays[number % len(delays)])
    with closing(scripted_engine(database, batch=Batch(size=size, in_flight=in_flight, max_wait="1 ms"), ttl=0.004)) as engine:
        operator = Operator(engine, 1 if tight else 64_000_000)
        left: list[int] = []
        matches: Counter[tuple[int, str]] = Counter()
        for leaving in operator.out_of_order(filled_meanwhile(engine, batches, fills), ArrowRows(), order):
            rows = leaving.rows["row"].to_pylist()
            assert rows == leaving.arrivals.tolist()
            for number, below in zip(rows, leaving.all_left_below().tolist(), strict=True):
                left.append(number)
                assert (
                    below == min(set(range(len(keys))) - set(left), default=len(keys)) or below == leaving.lowest == max(left) + 1
                )
            positions, found = leaving.joined.inner()
            matches.update((rows[p], text) for p, text in zip(positions, found["value"].to_pylist(), strict=True))
    assert sorted(left) == list(range(len(keys)))
    assert matches == Counter((row, text) for row, key in enumerate(keys) for text in VALUES[key])
    distance = maximum_scrambling_distance(left)
    assert operator.metrics.distance == distance == scrambling_distances(np.array(left, np.int64)).max(initial=0)
    for key in set(keys):
        of_key = [row for row in left if keys[row] == key]
        assert of_key == sorted(of_key)
    if order == "input":
        assert distance == 0
    elif isinstance(order, Disorder):
        assert distance <= order.max
    elif isinstance(order, Windows):
        for window_size, slide in order.windows:
            assert windows_of(left, window_size, slide) == windows_of(sorted(left), window_size, slide)


@pytest.mark.parametrize("bound", [1, 2, 10, 50, 500])
def test_the_disorder_that_is_allowed_is_used(bound: int) -> None:
    """While a lookup is slow, hits go as far as they may."""
    database = Scripted({1: ["one"]}, delay=lambda number: 0.0 if number == 0 else 0.2)
    batches = [[1], [2, *[1] * 5], *[[1] * 100] * 10]
    with closing(scripted_engine(database)) as engine:
        list(Operator(engine).out_of_order(arrowed(batches[:1]), ArrowRows()))
        operator = Operator(engine)
        left = [row for one in operator.out_of_order(arrowed(batches), ArrowRows(), Disorder(max=bound)) for row in one.arrivals]
    assert sorted(left) == list(range(1006 + 1))
    assert left.index(1) - 1 == bound  # as many rows as that left before the one that waited
    assert operator.metrics.distance == bound
    assert operator.metrics.pinned == 1005 - bound


@settings(deadline=None, max_examples=100)
@given(
    windows=st.lists(st.tuples(st.integers(1, 1000), st.integers(1, 1000)), min_size=1, max_size=3),
    misses=st.lists(st.booleans(), min_size=1, max_size=50),
    length=st.integers(1, 2500),
)
def test_count_windows_hold_what_they_would_in_order(windows: list[tuple[int, int]], misses: list[bool], length: int) -> None:
    """Sizes that are no multiple of the slide, gaps between windows, several at once."""
    keys = [number % len(misses) if misses[number % len(misses)] else -1 for number in range(length)]
    batches = [keys[begin : begin + 300] for begin in range(0, length, 300)]
    database = Scripted({-1: ["hit"]}, delay=lambda number: 0.0 if number == 0 else 0.003)
    with closing(scripted_engine(database, cache="20 rows", batch=7)) as engine:
        list(Operator(engine).out_of_order(arrowed([[-1]]), ArrowRows()))
        leaving = Operator(engine).out_of_order(arrowed(batches), ArrowRows(), Windows(*windows))
        left = [row for one in leaving for row in one.arrivals.tolist()]
    for size, slide in windows:
        assert windows_of(left, size, slide) == windows_of(list(range(length)), size, slide)


def test_what_waits_is_bounded_as_it_is_held() -> None:
    """Large rows behind one slow lookup, each in a batch whose other rows have left: input stops when the bound is reached."""
    database = Scripted({1: ["hit"], 2: ["slow"]}, delay=lambda number: 0.0 if number == 0 else 0.4)
    read = []

    def batches() -> Iterator[Any]:
        for _ in range(200):
            read.append(time.monotonic())
            payload = pa.array(["x" * 100_000, *["y"] * 99])
            yield pa.record_batch({"row": pa.array(range(100), pa.int64()), "payload": payload}), (pa.array([2, *[1] * 99]),)

    with closing(scripted_engine(database)) as engine:
        list(Operator(engine).out_of_order(arrowed([[1]]), ArrowRows()))
        started = time.monotonic()
        leaving = Operator(engine, 5_000_000).out_of_order(batches(), ArrowRows())
        assert sum(len(one.arrivals) for one in leaving) == 20_000
    early = sum(at < started + 0.3 for at in read)
    assert early <= 60  # 5 MB are 50 rows of 100 kB


def test_a_row_whose_key_was_asked_anew_stays_behind_the_one_that_waits_for_the_old_lookup() -> None:
    """A lookup too old to join is overtaken by a fast one for the same key."""
    now = [0.0]
    database = Scripted({5: ["five"], 1: ["hit"]}, delay=lambda number: {1: 0.3}.get(number, 0.0))
    with closing(scripted_engine(database, ttl=10.0, missing_ttl=10.0, clock=lambda: now[0], batch=1)) as engine:
        list(Operator(engine).out_of_order(arrowed([[1]]), ArrowRows()))

        def batches() -> Iterator[Any]:
            first, second, third = arrowed([[5], [5], [1]])
            yield first
            time.sleep(0.05)
            now[0] = 20.0
            yield second
            time.sleep(0.1)
            yield third

        left = [row for one in Operator(engine).out_of_order(batches(), ArrowRows()) for row in one.arrivals.tolist()]
    assert database.asked.count([5]) == 2
    assert left.index(0) < left.index(1)


def test_a_window_of_one_row_allows_no_disorder() -> None:
    """Slide 1 has a start at every row."""
    database = Scripted({1: ["one"]}, delay=lambda number: 0.0 if number == 0 else 0.05)
    with closing(scripted_engine(database)) as engine:
        list(Operator(engine).out_of_order(arrowed([[1]]), ArrowRows()))
        leaving = Operator(engine).out_of_order(arrowed([[2, 1, 1], [3, 1]]), ArrowRows(), Windows((5, 1)))
        assert [row for one in leaving for row in one.arrivals.tolist()] == [0, 1, 2, 3, 4]


def test_windows_may_be_counted_by_a_column() -> None:
    """Of a Kafka partition whose offsets do not begin at 0 and have gaps: windows begin where the offsets say."""
    offsets = [[7, 8, 9, 12], [13, 15, 19, 20]]
    database = Scripted({1: ["one"]}, delay=lambda number: 0.0 if number == 0 else 0.1)
    with closing(scripted_engine(database)) as engine:
        list(Operator(engine).out_of_order(arrowed([[1]], position=[[0]]), ArrowRows()))
        batches = arrowed([[2, 1, 1, 1], [3, 1, 1, 1]], position=offsets)
        leaving = Operator(engine).out_of_order(batches, ArrowRows(), Windows(10, position="position"))
        left = [position for one in leaving for position in one.rows["position"].to_pylist()]
    # 7 waits, and 8 and 9 may go; 12 is of the next window.
    assert left[:2] == [8, 9]
    assert set(left[:3]) == {7, 8, 9}
    assert set(left[3:7]) == {12, 13, 15, 19}
    assert left[7] == 20


def test_a_row_of_a_key_that_waits_stays_behind_it() -> None:
    """Though another worker has put the key into the cache meanwhile; other hits go on."""
    database = Scripted({5: ["five"], 4: ["four"]}, delay=lambda number: 0.0 if number == 0 else 0.2)
    with closing(scripted_engine(database)) as engine:
        list(Operator(engine).out_of_order(arrowed([[4]]), ArrowRows()))
        batches: list[list[int]] = [[5, 4], [4, 5], [5]]

        def patient() -> Iterator[Any]:
            for number, batch in enumerate(arrowed(batches)):
                if number == 1:
                    engine.flush()
                    rows = pa.record_batch({"value": ["five"]})
                    with engine._lock:
                        engine._cache.insert(Keys((pa.array([5]),)), np.array([1], np.int32), rows, engine._clock())
                yield batch

        operator = Operator(engine)
        left = [row for one in operator.out_of_order(patient(), ArrowRows()) for row in one.arrivals.tolist()]
        assert operator.metrics.hits == 4
    assert left == [1, 2, 0, 3, 4]


@settings(deadline=None, max_examples=60)
@given(batches=BATCHES, bound=st.sampled_from([0, 1, 7, 30]), delays=st.lists(st.sampled_from([0.0, 0.001, 0.004]), min_size=1))
def test_the_order_is_restored_within_the_bound(batches: list[list[int]], bound: int, delays: list[float]) -> None:
    """Exactly the input's order, holding no more rows than the constraint allows, whatever the consumer's batches."""
    database = Scripted(VALUES, delay=lambda number: delays[number % len(delays)])
    restorer, restored, most = Restorer(), [], 0
    with closing(scripted_engine(database, batch=Batch(size=3, in_flight=4, max_wait="1 ms"))) as engine:
        for leaving in Operator(engine).out_of_order(arrowed(batches), ArrowRows(), Disorder(max=bound)):
            below = leaving.all_left_below()
            for begin in range(0, len(below), 4):
                part = slice(begin, begin + 4)
                rows = leaving.rows.slice(begin, 4)
                restored += restorer.add(rows, leaving.arrivals[part], int(below[part].max()))["row"].to_pylist()
                most = max(most, restorer.held)
    assert restored == list(range(sum(map(len, batches))))
    assert restorer.held == 0
    assert most <= bound


@settings(deadline=None, max_examples=60)
@given(batches=BATCHES, bound=st.sampled_from([1, 2, 7]), delays=st.lists(st.sampled_from([0.0, 0.001, 0.004]), min_size=1))
def test_no_row_comes_later_than_twice_the_bound_of_rows_that_arrived_after_it(
    batches: list[list[int]], bound: int, delays: list[float]
) -> None:
    """The slack of a consumer whose clock is the newest row that it has seen."""
    database = Scripted(VALUES, delay=lambda number: delays[number % len(delays)])
    with closing(scripted_engine(database, batch=Batch(size=2, in_flight=4, max_wait="1 ms"))) as engine:
        leaving = Operator(engine).out_of_order(arrowed(batches), ArrowRows(), Disorder(max=bound))
        left = np.array([row for one in leaving for row in one.arrivals.tolist()], np.int64)
    if len(left):
        assert int((np.maximum.accumulate(left) - left).max()) <= 2 * bound - 1


def test_the_oldest_pending_time_is_told() -> None:
    """Of the rows that have not left when a row has."""
    database = Scripted({1: ["one"]}, delay=lambda number: 0.0 if number == 0 else 0.1)
    with closing(scripted_engine(database)) as engine:
        list(Operator(engine).out_of_order(arrowed([[1]]), ArrowRows()))
        batches = arrowed([[2, 1, 1], [1]], time=[[30, 10, 20], [5]])
        told = [
            (row, since)
            for leaving in Operator(engine).out_of_order(batches, ArrowRows())
            for row, since in zip(leaving.arrivals.tolist(), leaving.pending_since().tolist(), strict=True)
        ]
    assert told == [(1, 20), (2, 30), (3, 30), (0, NEVER)]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Disorder(max=-1), "max disorder"),
        (lambda: Disorder(max=True), "max disorder"),
        (lambda: Disorder(max=1.5), "max disorder"),
        (Windows, "at least one window"),
        (lambda: Windows(0), "window size"),
        (lambda: Windows((5, 0)), "window slide"),
        (lambda: Windows((5, 2, 1)), "as a size or as"),
        (lambda: Windows("10"), "window size"),
        (lambda: Windows(10, position=3), "position as a column's name"),
    ],
)
def test_constraints_that_make_no_sense_are_refused(make: Any, message: str) -> None:
    """Where they are written."""
    with pytest.raises(RequestError, match=f"expected .*{message}"):
        make()
