"""Order constraints in cases that a reader can follow, in a time of the test's own."""

from __future__ import annotations

import gc
import queue
import weakref
from contextlib import closing
from time import thread_time
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from srj import Batch, Disorder, RequestError, Windows
from srj.lookup.flight import Flight
from srj.lookup.keys import Keys
from srj.lookup.metrics import LARGEST, METRICS
from srj.lookup.order import Bounded
from srj.lookup.reorder_buffer import NEVER
from tests.orders import arrowed
from tests.scripted import ArrowRows, Scripted
from tests.virtual_time import VirtualTime

if TYPE_CHECKING:
    from collections.abc import Iterator

    from srj.lookup.order import Order


@pytest.mark.parametrize("bound", [1, 2, 10, 50, 500])
def test_the_disorder_that_is_allowed_is_used(bound: int) -> None:
    """While a lookup is slow, hits go as far as they may."""
    time = VirtualTime()
    database = Scripted({1: ["one"]}, delay=lambda number: 0.0 if number == 0 else 0.2)
    batches = [[1], [2, *[1] * 5], *[[1] * 100] * 10]
    with closing(time.engine(database)) as engine:
        list(time.operator(engine).out_of_order(arrowed(batches[:1]), ArrowRows()))
        operator = time.operator(engine)
        left = [row for one in operator.out_of_order(arrowed(batches), ArrowRows(), Disorder(max=bound)) for row in one.arrivals]
    assert sorted(left) == list(range(1006 + 1))
    assert left.index(1) - 1 == bound  # as many rows as that left before the one that waited
    assert operator.metrics.distance == bound
    assert operator.metrics.pinned == 1005 - bound


def test_what_was_pinned_goes_as_far_as_it_may_once_the_oldest_has_left() -> None:
    """Out of several batches at once, to the full distance behind the next that waits."""
    time = VirtualTime()
    database = Scripted({1: ["one"]}, delay=lambda number: [0.0, 1.0, 2.0][number])
    with closing(time.engine(database, batch=1)) as engine:
        list(time.operator(engine).out_of_order(arrowed([[1]]), ArrowRows()))
        batches = arrowed([[2, 1, 1, 1, 1], [3, 1, 1], [1, 1], [1]])
        leaving = time.operator(engine).out_of_order(batches, ArrowRows(), Disorder(max=4))
        left = [row for one in leaving for row in one.arrivals.tolist()]
    # 0 waits for a second: four rows overtake it. Then 5, for another: four more.
    assert left == [1, 2, 3, 4, 0, 6, 7, 8, 9, 5, 10]


def test_the_metrics_of_the_waiting_queue() -> None:
    """In a case that can be counted by hand."""
    time = VirtualTime()
    database = Scripted({1: ["one"]}, delay=lambda number: [0.0, 0.2, 0.3][number])
    with closing(time.engine(database, batch=1)) as engine:
        list(time.operator(engine).out_of_order(arrowed([[1]]), ArrowRows()))
        operator = time.operator(engine)
        batches = time.between(arrowed([[2, 1, 1, 1], [1, 1], [3, 1, 1, 1]]), [0.1, 0.1, 0.2])
        told = [
            (one.arrivals.tolist(), operator.metrics.waiting, operator.metrics.pinned, operator.metrics.distance)
            for one in operator.out_of_order(batches, ArrowRows(), Disorder(max=2))
        ]
        # 1 and 2 overtake 0, which waits from 0.1 s to 0.3 s, and pins 3; 4 and 5 are pinned, too. Then 6 is overtaken and pins 9.
        assert told == [
            ([1, 2], 0, 0, 0),
            ([0, 3], 4, 3, 2),
            ([4, 5], 4, 3, 2),
            ([7, 8], 4, 3, 2),
            ([6, 9], 4, 3, 2),
        ]
        # One lookup waits at 0.4 s, the slowest yet took 0.2 s, and ten rows had come: 0.2 s are five rows of the stream.
        assert operator.metrics.predicted_distance == 5
        taken = dict(zip(METRICS, operator.take_metrics(), strict=True))
        assert [taken[name] for name in LARGEST] == [4, 3, 2, 5]
        assert [getattr(operator.metrics, name) for name in LARGEST] == [0, 0, 0, 0]


@pytest.mark.parametrize(("order", "seconds"), [(Disorder(max=1), 0.0), ("any", 20.0)])
def test_a_lookup_is_not_filled_further_while_rows_are_pinned_by_it(order: Order, seconds: float) -> None:
    """Where none of its rows is held back by the order, a miss waits as long as it may for others to be asked with it."""
    time = VirtualTime()
    asked_at: list[float] = []
    database = Scripted({1: ["one"], 2: ["two"]}, delay=lambda _: asked_at.append(time.now) or 0.5)
    with closing(time.engine(database, batch=Batch(size=1000, in_flight=1, max_wait="20 s"))) as engine:
        list(time.operator(engine).out_of_order(arrowed([[1]]), ArrowRows()))
        started = time.now
        batches = time.between(arrowed([[2, 1, 1, 1], [1]]), [0.0, 100.0])
        assert sum(len(one.arrivals) for one in time.operator(engine).out_of_order(batches, ArrowRows(), order)) == 5
    assert asked_at[1] - started == pytest.approx(seconds)


def test_what_waits_is_bounded_as_it_is_held() -> None:
    """Large rows behind one slow lookup, each in a batch whose other rows have left: input stops when the bound is reached."""
    time = VirtualTime()
    database = Scripted({1: ["hit"], 2: ["slow"]}, delay=lambda number: 0.0 if number == 0 else 0.4)
    read = []

    def batches() -> Iterator[Any]:
        for _ in range(200):
            read.append(time.now)
            payload = pa.array(["x" * 100_000, *["y"] * 99])
            yield pa.record_batch({"row": pa.array(range(100), pa.int64()), "payload": payload}), (pa.array([2, *[1] * 99]),)

    with closing(time.engine(database)) as engine:
        list(time.operator(engine).out_of_order(arrowed([[1]]), ArrowRows()))
        started = time.now
        leaving = time.operator(engine, 5_000_000).out_of_order(batches(), ArrowRows())
        assert sum(len(one.arrivals) for one in leaving) == 20_000
    early = sum(at < started + 0.3 for at in read)
    assert early <= 60  # 5 MB are 50 rows of 100 kB


class Seen(Flight):
    """A flight that counts how often it is looked at."""

    looks = 0

    def __getattribute__(self, name: str) -> Any:
        """As ever."""
        if name in ("landed", "landed_rows"):
            Seen.looks += 1
        return super().__getattribute__(name)


@pytest.mark.parametrize(("order", "first"), [("input", 0.1), ("any", 0.1), (Disorder(max=1), 1000.0)])
def test_many_lookups_of_one_batch_are_not_all_looked_at_for_each_that_lands(
    order: Order, first: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four times as many take four times as long, not sixteen times, also where all rows are pinned behind the first."""
    monkeypatch.setattr("srj.lookup.fetcher.Flight", Seen)
    looks = []
    for count in (200, 800):
        time = VirtualTime()
        database = Scripted(
            {key: [str(key)] for key in range(count)}, delay=lambda number: first if number == 0 else 0.1 + number % 7
        )
        with closing(time.engine(database, batch=Batch(size=1, in_flight=8))) as engine:
            Seen.looks = 0
            if order == "input":
                (joined,) = time.operator(engine).in_order([(pa.array(range(count), pa.int64()),)])
                assert joined.counts.sum() == count
            else:
                leaving = time.operator(engine).out_of_order(arrowed([[*range(count)]]), ArrowRows(), order)
                assert sum(len(one.arrivals) for one in leaving) == count
        looks.append(Seen.looks)
    assert looks[1] < 8 * looks[0]


def test_few_pinned_rows_do_not_keep_the_answers_of_many() -> None:
    """Where another operator asked for the same keys and more, and the order holds rows back, only their own matches stay."""
    time = VirtualTime()
    database = Scripted({key: ["value" * 200] for key in range(2000)}, delay=lambda number: 60.0 if number == 0 else 0.1)
    flights: list[weakref.ref[Flight]] = []
    with closing(
        time.engine(database, cache="16 MB", batch=Batch(size=100, in_flight=50, connections=50, max_wait="1 ms"))
    ) as engine:

        def batches() -> Iterator[Any]:
            stuck, few, *late = arrowed([[-1], list(range(0, 2000, 20)), [0], [0]])
            yield stuck
            time.let_pass(1.0)
            engine.admit(Keys((pa.array(range(2000)),)), queue.SimpleQueue())
            flights.extend(weakref.ref(flight) for flight in engine._fetcher._flights.values())
            yield few
            time.let_pass(1.0)
            yield from late
            engine.cache_stats()  # which takes what has landed into the cache
            gc.collect()
            # The one that has not landed, and the last that has, at which the operator looked.
            assert sum(flight() is not None for flight in flights) <= 2
            assert operator.metrics.pinned == 102

        operator = time.operator(engine)
        leaving = operator.out_of_order(batches(), ArrowRows(), Disorder(max=0))
        matches = [one.joined.inner()[1]["value"].to_pylist() for one in leaving]
    assert len(flights) == 21
    assert [value for one in matches for value in one] == ["value" * 200] * 102


@pytest.mark.parametrize("order", ["any", Disorder(max=2), Disorder(max=10**6)], ids=repr)
def test_a_batch_takes_no_longer_because_many_wait(order: Order) -> None:
    """Thousands of small batches, in each of which a row waits for the same slow lookup."""
    time = VirtualTime()
    database = Scripted({1: ["one"]}, delay=lambda number: 0.0 if number == 0 else 60.0)
    taken = []

    def batches() -> Iterator[Any]:
        for batch in arrowed([[2, 1, 1, 1, 1]] * 3000):
            taken.append(thread_time())
            yield batch

    with closing(time.engine(database)) as engine:
        list(time.operator(engine).out_of_order(arrowed([[1]]), ArrowRows()))
        leaving = time.operator(engine, 10**9).out_of_order(batches(), ArrowRows(), order)
        assert sum(len(one.arrivals) for one in leaving) == 15_000
    early, late = np.diff(taken)[100:600].mean(), np.diff(taken)[-500:].mean()
    assert late < 4 * early


def test_rows_between_windows_mix_with_no_window() -> None:
    """A slide above the size leaves rows out: here those of the upper five of each ten."""
    sections = Windows((5, 10)).sections(np.arange(40))
    assert (sections.reshape(8, 5) == sections[::5, None]).all()
    assert len(set(sections.tolist())) == 8


@pytest.mark.parametrize("bare", [False, True])
@pytest.mark.parametrize("order", ["any", Disorder(max=7), Windows(10)], ids=repr)
def test_rows_of_many_small_batches_keep_their_own_matches(order: Order, bare: bool) -> None:
    """Of several lookups that land one after the other, with and without columns; and their event times."""
    time = VirtualTime()
    keys = [[number % 150, number % 7, number] for number in range(300)]
    database = Scripted({key: [f"of {key}"] * (key % 3) for key in range(300)}, delay=lambda number: 0.1 + number % 3, bare=bare)
    found, pending = {}, dict(enumerate(number for batch in keys for number in batch))
    with closing(time.engine(database, batch=Batch(size=30, in_flight=8, max_wait="1 ms"))) as engine:
        batches = time.between(arrowed(keys, time=keys), [0.01] * len(keys))
        for leaving in time.operator(engine).out_of_order(batches, ArrowRows(), order):
            assert leaving.times is not None
            assert leaving.times.tolist() == leaving.rows["time"].to_pylist()
            rows = leaving.rows["row"].to_pylist()
            found.update(zip(rows, leaving.joined.counts.tolist(), strict=True))
            if not bare:
                positions, values = leaving.joined.inner()
                assert values["value"].to_pylist() == [f"of {keys[rows[at] // 3][rows[at] % 3]}" for at in positions.tolist()]
            for row, since in zip(leaving.arrivals.tolist(), leaving.pending_since().tolist(), strict=True):
                del pending[row]
                assert since == NEVER or since in pending.values()
    assert not pending
    assert found == {row: key % 3 for row, key in enumerate(key for batch in keys for key in batch)}


def test_a_row_whose_key_was_asked_anew_stays_behind_the_one_that_waits_for_the_old_lookup() -> None:
    """A lookup too old to join is overtaken by a fast one for the same key."""
    time = VirtualTime()
    database = Scripted({5: ["five"], 1: ["hit"]}, delay=lambda number: {1: 30.0}.get(number, 0.0))
    with closing(time.engine(database, ttl=10.0, missing_ttl=10.0, batch=1)) as engine:
        list(time.operator(engine).out_of_order(arrowed([[1]]), ArrowRows()))
        batches = time.between(arrowed([[5], [5], [1]]), [0.0, 20.0, 1.0])
        left = [row for one in time.operator(engine).out_of_order(batches, ArrowRows()) for row in one.arrivals.tolist()]
    assert database.asked.count([5]) == 2
    assert left.index(0) < left.index(1)


def test_a_window_of_one_row_allows_no_disorder() -> None:
    """Slide 1 has a start at every row."""
    time = VirtualTime()
    database = Scripted({1: ["one"]}, delay=lambda number: 0.0 if number == 0 else 0.05)
    with closing(time.engine(database)) as engine:
        list(time.operator(engine).out_of_order(arrowed([[1]]), ArrowRows()))
        leaving = time.operator(engine).out_of_order(arrowed([[2, 1, 1], [3, 1]]), ArrowRows(), Windows((5, 1)))
        assert [row for one in leaving for row in one.arrivals.tolist()] == [0, 1, 2, 3, 4]


def test_windows_may_be_counted_by_a_column() -> None:
    """Of a Kafka partition whose offsets do not begin at 0 and have gaps: windows begin where the offsets say."""
    offsets = [[7, 8, 9, 12], [13, 15, 19, 20]]
    time = VirtualTime()
    database = Scripted({1: ["one"]}, delay=lambda number: 0.0 if number == 0 else 0.1)
    with closing(time.engine(database)) as engine:
        list(time.operator(engine).out_of_order(arrowed([[1]], position=[[0]]), ArrowRows()))
        batches = arrowed([[2, 1, 1, 1], [3, 1, 1, 1]], position=offsets)
        leaving = time.operator(engine).out_of_order(batches, ArrowRows(), Windows(10, position="position"))
        left = [position for one in leaving for position in one.rows["position"].to_pylist()]
    # 7 waits, and 8 and 9 may go; 12 is of the next window.
    assert left[:2] == [8, 9]
    assert set(left[:3]) == {7, 8, 9}
    assert set(left[3:7]) == {12, 13, 15, 19}
    assert left[7] == 20


def test_a_row_of_a_key_that_waits_stays_behind_it() -> None:
    """Though another worker has put the key into the cache meanwhile; other hits go on."""
    time = VirtualTime()
    database = Scripted({5: ["five"], 4: ["four"]}, delay=lambda number: 0.0 if number == 0 else 0.2)
    with closing(time.engine(database)) as engine:
        list(time.operator(engine).out_of_order(arrowed([[4]]), ArrowRows()))
        batches: list[list[int]] = [[5, 4], [4, 5], [5]]

        def patient() -> Iterator[Any]:
            for number, batch in enumerate(arrowed(batches)):
                if number == 1:
                    engine.flush()
                    rows = pa.record_batch({"value": ["five"]})
                    with engine._lock:
                        engine._cache.insert(Keys((pa.array([5]),)), np.array([1], np.int32), rows, engine.clock())
                yield batch

        operator = time.operator(engine)
        left = [row for one in operator.out_of_order(patient(), ArrowRows()) for row in one.arrivals.tolist()]
        assert operator.metrics.hits == 4
    assert left == [1, 2, 0, 3, 4]


def test_the_oldest_pending_time_is_told() -> None:
    """Of the rows that have not left when a row has."""
    time = VirtualTime()
    database = Scripted({1: ["one"]}, delay=lambda number: 0.0 if number == 0 else 0.1)
    with closing(time.engine(database)) as engine:
        list(time.operator(engine).out_of_order(arrowed([[1]]), ArrowRows()))
        batches = arrowed([[2, 1, 1], [1]], time=[[30, 10, 20], [5]])
        told = [
            (row, since)
            for leaving in time.operator(engine).out_of_order(batches, ArrowRows())
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
        (
            lambda: Windows(5, 2),
            r"read in one way, got Windows\(5, 2\); write Windows\(\(5, 2\)\) .* Windows\(\(5, 5\), \(2, 2\)\)",
        ),
        (lambda: Windows(10, position=3), "position as a column's name"),
    ],
)
def test_constraints_that_make_no_sense_are_refused(make: Any, message: str) -> None:
    """Where they are written."""
    with pytest.raises(RequestError, match=f"expected .*{message}"):
        make()


@given(st.lists(st.booleans(), max_size=12), st.integers(0, 6), st.integers(0, 8), st.integers(0, 20), st.data())
def test_as_many_rows_may_leave_as_the_bound_lets_and_no_fewer(
    ready: list[bool], overtaken: int, most: int, left: int, data: st.DataObject
) -> None:
    """Counted one by one: ready rows may go if each waiting row that they overtake can still leave in time."""
    first = [data.draw(st.integers(1, left)) if left and place < overtaken else 0 for place in range(len(ready))]

    def is_allowed(going: int) -> bool:
        ahead = rank = 0
        for is_ready, since in zip(ready, first, strict=True):
            if is_ready:
                ahead += 1
                continue
            rank += 1
            if going > ahead and left + going + rank > (since or left + ahead + 1) + most:
                return False
        return True

    best = max(going for going in range(sum(ready) + 1) if is_allowed(going))
    none = np.zeros(len(ready), np.int64)
    assert Bounded(most).may_leave(np.array(ready, bool), np.array(first, np.int64), none, left) == best
