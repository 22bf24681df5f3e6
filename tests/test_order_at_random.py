"""Order constraints over random inputs and schedules, in a time of the test's own: never exceeded, and used."""

from __future__ import annotations

import threading
from collections import Counter
from contextlib import ExitStack, closing
from dataclasses import dataclass
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from srj import Batch, Disorder, Windows
from srj.lookup.keys import Keys
from srj.lookup.order import scrambling_distances
from srj.lookup.restorer import Restorer
from srj.lookup.shared_cache import SharedCache
from tests.orders import arrowed, assert_kept, maximum_scrambling_distance, windows_of
from tests.scripted import ArrowRows, Scripted
from tests.virtual_time import VirtualTime

if TYPE_CHECKING:
    from collections.abc import Iterator

    from srj.lookup.engine import Engine
    from srj.lookup.operator import Operator
    from srj.lookup.order import Order

SECONDS = st.one_of(st.just(0.0), st.floats(0.0001, 0.03))
BOUNDS = st.one_of(st.sampled_from([0, 1, 2, 5, 50, 1000]), st.integers(0, 400))
SIZES = st.tuples(st.integers(1, 40), st.integers(1, 40))
ORDERS = st.one_of(
    st.sampled_from(["any", "input"]),
    BOUNDS.map(lambda most: Disorder(max=most)),
    st.lists(SIZES, min_size=1, max_size=3).map(lambda windows: Windows(*windows)),
)


@st.composite
def drawn_batches(draw: st.DrawFn) -> list[list[int]]:
    """Few rows, each chosen, or hundreds of which a chosen share has keys that come again and again, also in very small batches."""
    kind = draw(st.sampled_from(["chosen", "many", "many", "small"]))
    if kind == "chosen":
        return draw(st.lists(st.lists(st.integers(0, 12), max_size=30), max_size=12))
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    if kind == "small":
        lengths = random.integers(0, 6, draw(st.integers(40, 100))).tolist()
    else:
        lengths = draw(st.lists(st.integers(0, 150), min_size=1, max_size=12))
    repeated = draw(st.floats(0.0, 1.0))
    return [np.where(random.random(n) < repeated, random.integers(0, 5, n), random.integers(0, 600, n)).tolist() for n in lengths]


@dataclass
class Schedule:
    """When what happens.

    Attributes:
        size, in_flight: of the lookups.
        delays: what lookups take, in turn.
        gaps: seconds before a batch of the input, in turn.
        fills: keys that another worker puts into the shared cache before a batch, in turn.
        tight: whether the waiting queue has room for nearly nothing.
        cache: of the cache.
    """

    size: int
    in_flight: int
    delays: list[float]
    gaps: list[float]
    fills: list[list[int]]
    tight: bool
    cache: str

    def options(self) -> dict[str, Any]:
        """Of an engine."""
        return {
            "batch": Batch(size=self.size, in_flight=self.in_flight, max_wait="1 ms"),
            "cache": self.cache,
            "ttl": 0.04,
            "missing_ttl": 0.02,
        }

    def database(self) -> Scripted:
        """Answers to all keys after the delays."""
        return Scripted(_All(), delay=lambda number: self.delays[number % len(self.delays)])


class _All(dict[Any, list[str]]):
    """Every key with 0, 1 or 2 rows that carry it, so that a mix-up shows."""

    def get(self, key: int, _: Any = None) -> list[str]:  # type: ignore[override]
        """The rows of a key."""
        return [f"{key}/{number}" for number in range(key % 3)]


SCHEDULES = st.builds(
    Schedule,
    size=st.integers(1, 60),
    in_flight=st.integers(1, 4),
    delays=st.lists(SECONDS, min_size=1, max_size=8),
    gaps=st.lists(SECONDS, min_size=1, max_size=8),
    fills=st.lists(st.lists(st.integers(0, 12), unique=True, max_size=6), min_size=1, max_size=8),
    tight=st.booleans(),
    cache=st.sampled_from(["1 MB", "20 rows"]),
)


class Run:
    """One operator's way through its batches, whose every output is checked; each `step` takes one piece of it.

    Attributes:
        left: the rows that have left.
    """

    def __init__(self, time: VirtualTime, engine: Engine, batches: list[list[int]], order: Order, schedule: Schedule) -> None:
        self._keys = [key for batch in batches for key in batch]
        self._order, self._engine, self._schedule = order, engine, schedule
        self._missing = set(range(len(self._keys)))
        self._matches: Counter[tuple[int, str]] = Counter()
        self.left: list[int] = []
        self.operator: Operator = time.operator(engine, *([1] if schedule.tight else []))
        gaps = (schedule.gaps[number % len(schedule.gaps)] for number in range(len(batches)))
        self._output = self.operator.out_of_order(self._filled_meanwhile(time.between(arrowed(batches), gaps)), ArrowRows(), order)

    def _filled_meanwhile(self, batches: Iterator[Any]) -> Iterator[Any]:
        """The batches, before each of which another worker puts some keys into the cache that both share."""
        engine, fills = self._engine, self._schedule.fills
        for number, batch in enumerate(batches):
            keys = fills[number % len(fills)]
            if keys:
                rows = pa.record_batch({"value": pa.array([text for key in keys for text in _All().get(key)], pa.string())})
                with engine._lock:
                    engine._cache.insert(
                        Keys((pa.array(keys),)), np.array([key % 3 for key in keys], np.int32), rows, engine.clock()
                    )
            yield batch

    def step(self) -> bool:
        """Whether there was a piece."""
        leaving = next(self._output, None)
        if leaving is None:
            return False
        rows = leaving.rows["row"].to_pylist()
        assert rows == leaving.arrivals.tolist()
        for number, below in zip(rows, leaving.all_left_below().tolist(), strict=True):
            self.left.append(number)
            self._missing.remove(number)
            first = min(self._missing, default=len(self._keys))
            assert below == first or below == leaving.lowest == max(self.left) + 1
        positions, found = leaving.joined.inner()
        self._matches.update((rows[at], text) for at, text in zip(positions, found["value"].to_pylist(), strict=True))
        return True

    def check(self) -> None:
        """What holds when it has ended."""
        assert_kept(self._order, self._keys, self.left)
        assert self._matches == Counter((row, text) for row, key in enumerate(self._keys) for text in _All().get(key))
        distance = maximum_scrambling_distance(self.left)
        assert self.operator.metrics.distance == distance == scrambling_distances(np.array(self.left, np.int64)).max(initial=0)


@settings(deadline=None, max_examples=200)
@given(batches=drawn_batches(), order=ORDERS, schedule=SCHEDULES)
def test_no_constraint_is_ever_exceeded_and_no_row_lost(batches: list[list[int]], order: Order, schedule: Schedule) -> None:
    """Whatever hits, whatever is slow, and though another worker fills keys while their rows wait here."""
    time = VirtualTime()
    with closing(time.engine(schedule.database(), **schedule.options())) as engine:
        run = Run(time, engine, batches, order, schedule)
        while run.step():
            pass
        run.check()


@settings(deadline=None, max_examples=60)
@given(
    order=st.sampled_from([Disorder(max=50), "any"]),
    cold=st.floats(0.02, 0.3),
    lengths=st.lists(st.integers(20, 200), min_size=10, max_size=20),
    seed=st.integers(0, 2**32),
    gaps=st.lists(st.floats(0.0, 0.002), min_size=1, max_size=5),
)
def test_the_bound_is_used_where_misses_are_slow(
    order: Order, cold: float, lengths: list[int], seed: int, gaps: list[float]
) -> None:
    """At least half of what is allowed, and more than nothing where all is; by the slow definition."""
    time, random = VirtualTime(), np.random.default_rng(seed)
    database = Scripted(_All(), delay=lambda number: 0.0 if number == 0 else 0.5)
    batches = [
        np.where(random.random(n) < cold, random.integers(100, 10**6, n), random.integers(0, 50, n)).tolist() for n in lengths
    ]
    with closing(time.engine(database, batch=Batch(size=1000, in_flight=4, max_wait="1 ms"))) as engine:
        list(time.operator(engine).out_of_order(arrowed([list(range(50))]), ArrowRows()))
        timed = time.between(arrowed([[100], *batches]), [gaps[number % len(gaps)] for number in range(len(batches) + 1)])
        left = [row for one in time.operator(engine).out_of_order(timed, ArrowRows(), order) for row in one.arrivals.tolist()]
    assert_kept(order, [100, *(key for batch in batches for key in batch)], left)
    distance = maximum_scrambling_distance(left)
    assert distance > 0 if order == "any" else 25 <= distance <= 50


@settings(deadline=None, max_examples=50)
@given(
    inputs=st.lists(st.tuples(drawn_batches(), ORDERS), min_size=2, max_size=2),
    schedule=SCHEDULES,
    turns=st.lists(st.sampled_from([0, 0, 0, 1, 1, 1, 1]), min_size=1, max_size=10),
)
def test_each_of_two_operators_that_share_flights_keeps_its_own_constraint(
    inputs: list[tuple[list[list[int]], Order]], schedule: Schedule, turns: list[int]
) -> None:
    """On one engine, a piece of output of the one or the other at a time, as the turns have it."""
    time = VirtualTime()
    with closing(time.engine(schedule.database(), **schedule.options())) as engine:
        runs = [Run(time, engine, batches, order, schedule) for batches, order in inputs]
        _in_turns(runs, turns)
        _check(runs)


@settings(deadline=None, max_examples=30)
@given(inputs=st.lists(st.tuples(drawn_batches(), ORDERS), min_size=2, max_size=2), schedule=SCHEDULES)
def test_two_threads_on_one_engine_keep_their_constraints(inputs: list[tuple[list[list[int]], Order]], schedule: Schedule) -> None:
    """They probe, ask, land and store at once."""
    time = VirtualTime()
    failures: list[Exception] = []

    def go(run: Run) -> None:
        try:
            _in_turns([run], [0])
        except Exception as error:  # a thread's would be lost
            failures.append(error)

    with closing(time.engine(schedule.database(), **schedule.options())) as engine:
        runs = [Run(time, engine, batches, order, schedule) for batches, order in inputs]
        threads = [threading.Thread(target=go, args=(run,)) for run in runs]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for failure in failures:
            raise failure
        _check(runs)


@settings(deadline=None, max_examples=30)
@given(
    inputs=st.lists(st.tuples(drawn_batches(), ORDERS), min_size=2, max_size=2),
    schedule=SCHEDULES,
    turns=st.lists(st.sampled_from([0, 1]), min_size=1, max_size=10),
)
def test_operators_of_two_processes_that_share_a_cache_keep_their_constraints(
    inputs: list[tuple[list[list[int]], Order]], schedule: Schedule, turns: list[int]
) -> None:
    """Each fills keys that rows of the other wait for: two engines over one map."""
    time = VirtualTime()
    with ExitStack() as stack:
        stack.enter_context(pytest.MonkeyPatch.context()).setenv("SPARK_LOCAL_DIRS", stack.enter_context(TemporaryDirectory()))
        engines = [
            stack.enter_context(closing(time.engine(schedule.database(), shared_as="one", **schedule.options()))) for _ in inputs
        ]
        assert all(isinstance(engine._cache, SharedCache) for engine in engines)
        runs = [Run(time, engine, batches, order, schedule) for engine, (batches, order) in zip(engines, inputs, strict=True)]
        _in_turns(runs, turns)
        _check(runs)


def _in_turns(runs: list[Run], turns: list[int]) -> None:
    """Each goes on by one piece at a time, until all have ended."""
    going = list(runs)
    number = 0
    while going:
        run = going[turns[number % len(turns)] % len(going)]
        if not run.step():
            going.remove(run)
        number += 1


def _check(runs: list[Run]) -> None:
    for run in runs:
        run.check()


@settings(deadline=None, max_examples=100)
@given(
    windows=st.lists(st.tuples(st.integers(1, 1000), st.integers(1, 1000)), min_size=1, max_size=3),
    misses=st.lists(st.booleans(), min_size=1, max_size=50),
    length=st.integers(1, 2500),
)
def test_count_windows_hold_what_they_would_in_order(windows: list[tuple[int, int]], misses: list[bool], length: int) -> None:
    """Sizes that are no multiple of the slide, gaps between windows, several at once; and where hits may overtake they do."""
    missing = [misses[number % len(misses)] for number in range(length)]
    keys = [number % len(misses) if missing[number] else -1 for number in range(length)]
    batches = [keys[begin : begin + 300] for begin in range(0, length, 300)]
    time = VirtualTime()
    database = Scripted({-1: ["hit"]}, delay=lambda number: 0.0 if number == 0 else 0.003)
    with closing(time.engine(database, cache="20 rows", batch=7)) as engine:
        list(time.operator(engine).out_of_order(arrowed([[-1]]), ArrowRows()))
        leaving = time.operator(engine).out_of_order(arrowed(batches), ArrowRows(), Windows(*windows))
        left = [row for one in leaving for row in one.arrivals.tolist()]
    assert sorted(left) == list(range(length))
    for size, slide in windows:
        assert windows_of(left, size, slide) == windows_of(range(length), size, slide)
    first = missing[:300].index(True) if any(missing[:300]) else length
    hit = next((row for row in range(first, min(300, length)) if not missing[row]), None)
    if hit is not None and not _boundaries(windows, first, hit):
        assert maximum_scrambling_distance(left) > 0


def _boundaries(windows: list[tuple[int, int]], first: int, last: int) -> bool:
    """Whether a window starts or ends behind the first of these rows, and not behind the last."""
    rows = range(first + 1, last + 1)
    return any(row % slide == 0 or (row >= size and (row - size) % slide == 0) for size, slide in windows for row in rows)


@settings(deadline=None, max_examples=60)
@given(batches=drawn_batches(), bound=BOUNDS, schedule=SCHEDULES)
def test_the_order_is_restored_within_the_bound(batches: list[list[int]], bound: int, schedule: Schedule) -> None:
    """Exactly the input's order, holding no more rows than the constraint allows, whatever the consumer's batches."""
    time, restorer, restored, most = VirtualTime(), Restorer(), [], 0
    with closing(time.engine(schedule.database(), **schedule.options())) as engine:
        timed = time.between(arrowed(batches), schedule.gaps * len(batches))
        for leaving in time.operator(engine).out_of_order(timed, ArrowRows(), Disorder(max=bound)):
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
@given(batches=drawn_batches(), bound=st.sampled_from([1, 2, 7, 50]), schedule=SCHEDULES)
def test_no_row_comes_later_than_twice_the_bound_of_rows_that_arrived_after_it(
    batches: list[list[int]], bound: int, schedule: Schedule
) -> None:
    """The slack of a consumer whose clock is the newest row that it has seen."""
    time = VirtualTime()
    with closing(time.engine(schedule.database(), **schedule.options())) as engine:
        timed = time.between(arrowed(batches), schedule.gaps * len(batches))
        leaving = time.operator(engine).out_of_order(timed, ArrowRows(), Disorder(max=bound))
        left = np.array([row for one in leaving for row in one.arrivals.tolist()], np.int64)
    assert len(left) == sum(map(len, batches))
    if len(left):
        assert int((np.maximum.accumulate(left) - left).max()) <= 2 * bound - 1
