"""The size of batches and the number in flight, against a simulated database; benchmarks/batches.py measures with real ones."""

from __future__ import annotations

import math
from contextlib import closing
from statistics import median

import numpy as np
import pyarrow as pa
import pytest

from srj import Batch
from srj.errors import LookupTimeoutError, RequestError
from srj.lookup.batching import Batching, Limits
from srj.lookup.cost import CostModel, Line, exact_gain, speedup, thesis_gain
from srj.lookup.operator import Operator
from tests.queueing import INPUT, Model, best_rate, rate, run
from tests.scripted import Scripted, scripted_engine

AUTO = Limits.of(Batch(), 30.0)
REGIMES = {
    "indexed, local": Model(),
    "no index": Model(fixed=0.085, each=1e-6, cores=1.1, crowding=0.15),
    "45 ms each way": Model(network=0.09),
    "5 ms each way with jitter": Model(network=0.01, jitter=0.02),
    "two connections": Model(connections=2),
    "slow keys": Model(fixed=0.0004, each=0.002),
}
SEEDS = range(7)


@pytest.mark.parametrize("name", REGIMES)
def test_auto_is_nearly_as_fast_as_the_best_of_all_fixed_settings(name: str) -> None:
    """After a few dozen lookups it stays near the best cell, by the median of several runs."""
    model = REGIMES[name]
    runs = [run(lambda _: model, Batching(AUTO), 350, seed) for seed in SEEDS]
    best = best_rate(model)
    assert median(rate(landed[50:]) for landed in runs) >= 0.9 * best
    assert min(rate(landed[50:]) for landed in runs) >= 0.75 * best


@pytest.mark.parametrize(
    ("before", "after", "usually", "always"),
    [
        ("indexed, local", "45 ms each way", 0.8, 0.65),
        ("45 ms each way", "indexed, local", 0.8, 0.8),
        # Fifty lookups that were cut for a fast database are a small part of what a scan should answer at a time.
        ("indexed, local", "no index", 0.6, 0.5),
        ("no index", "indexed, local", 0.8, 0.75),
    ],
)
def test_auto_follows_a_change_within_fifty_lookups(before: str, after: str, usually: float, always: float) -> None:
    """The fiftieth lookup after it and those behind it are answered nearly as fast as with the best setting for them."""
    best = best_rate(REGIMES[after])
    runs = [run(lambda done: REGIMES[before if done < 150 else after], Batching(AUTO), 300, seed)[200:] for seed in range(21)]
    assert median(map(rate, runs)) >= usually * best
    assert min(map(rate, runs)) >= always * best


def test_a_goal_for_the_latency_bounds_the_size() -> None:
    """Once the costs are known, though larger lookups would be answered faster by the key."""
    model = REGIMES["slow keys"]
    limits = Limits.of(Batch(latency="100 ms"), 30.0)
    batching = Batching(limits)
    run(lambda _: model, batching, 100, seed=1)
    assert max(batching.size(10**9, INPUT, 0) for _ in range(20)) < 100


def test_a_quarter_of_the_time_limit_is_the_most_that_a_lookup_shall_take() -> None:
    """No goal is needed for that."""
    batching = Batching(Limits.of(Batch(), 1.0))
    for keys in (10, 40, 10, 40, 10, 40, 10, 40):
        batching.landed(keys, 0.01 * keys, 0.0, flying=1, is_busy=False)
    assert max(batching.size(10**9) for _ in range(20)) <= 25


def test_a_fixed_size_and_number_are_kept() -> None:
    """Whatever lookups cost."""
    batching = Batching(Limits.of(Batch(size=77, in_flight=3), 30.0))
    landed = run(lambda _: REGIMES["45 ms each way"], batching, 260, seed=1)
    assert {one.keys for one in landed} == {77, INPUT % 77}
    assert batching.in_flight == 3


def test_a_range_is_kept() -> None:
    """Also by the smaller lookups that show what size costs."""
    batching = Batching(Limits.of(Batch(size=(500, 800)), 30.0))
    landed = run(lambda _: REGIMES["45 ms each way"], batching, 300, seed=1)
    assert sum(one.keys < 500 for one in landed) <= len(landed) / 8  # what is left of an input
    assert max(one.keys for one in landed[100:]) == 800


def test_a_narrow_range_is_tried_out_too() -> None:
    """Its lookups tell what size costs, and so how many at a time are best."""
    batching = Batching(Limits.of(Batch(size=(10, 200)), 30.0))
    run(lambda _: REGIMES["45 ms each way"], batching, 400, seed=1)
    assert batching.model.is_known
    assert batching.in_flight == 8


def test_with_a_fixed_size_the_number_in_flight_is_found() -> None:
    """No line is needed for that."""
    batching = Batching(Limits.of(Batch(size=10), 30.0))
    run(lambda _: REGIMES["45 ms each way"], batching, 300, seed=1)
    assert batching.in_flight == 8


@pytest.mark.parametrize(("seconds", "goal", "least"), [(10.0, None, 3000), (0.002, "1 ms", 20)])
def test_a_goal_that_no_size_keeps_bounds_what_size_adds(seconds: float, goal: str | None, least: int) -> None:
    """By half of it: lookups of a key each would only be more."""
    batching = Batching(Limits.of(Batch(latency=goal), 30.0))
    landed = run(lambda _: Model(fixed=seconds), batching, 700, seed=1)
    assert median(one.keys for one in landed[100:]) >= least


def test_large_rows_make_lookups_small() -> None:
    """The bound by bytes is the caller's, and holds in any case."""
    batching = Batching(AUTO)
    assert max(batching.size(5, INPUT, 2) for _ in range(10)) == 5
    run(lambda _: Model(), batching, 100, seed=1)
    assert max(batching.size(5, INPUT, 2) for _ in range(10)) == 5


def test_another_process_goes_on_with_what_one_has_learned() -> None:
    """The model's memory is the cache's."""
    memory = np.zeros(Batching.WORDS)
    run(lambda _: REGIMES["45 ms each way"], Batching(AUTO, memory), 150, seed=1)
    first, other = (
        run(lambda _: REGIMES["45 ms each way"], batching, 30, seed=2) for batching in (Batching(AUTO), Batching(AUTO, memory))
    )
    assert rate(other) >= 1.5 * rate(first)


def test_a_worker_that_gets_fewer_connections_leaves_the_others_theirs() -> None:
    """And tries again some lookups later."""
    memory = np.zeros(Batching.WORDS)
    poor, rich = Batching(AUTO, memory), Batching(AUTO, memory)
    memory[-1] = 7
    poor.refused(2)
    assert (poor.in_flight, rich.in_flight) == (2, 7)
    for _ in range(150):
        poor.landed(100, 0.01, 0.0, flying=1, is_busy=False)
    assert (poor.in_flight, rich.in_flight) == (3, 7)


@pytest.mark.parametrize("garbage", [math.nan, math.inf, -1.0, 1e300])
def test_a_model_of_nonsense_is_made_anew(garbage: float) -> None:
    """A map may hold anything after its disk has failed."""
    batching = Batching(AUTO, np.full(Batching.WORDS, garbage))
    assert 1 <= batching.in_flight <= 8
    landed = run(lambda _: Model(), batching, 350, seed=1)
    assert rate(landed[150:]) >= 0.7 * best_rate(Model())


def test_the_line_is_found_through_noise_and_outliers() -> None:
    """One lookup in twenty takes a hundred times as long."""
    generator = np.random.default_rng(3)
    model = CostModel()
    for number in range(400):
        keys = int(generator.choice([200, 1000, 4000]))
        seconds = (0.01 + 1e-5 * keys) * generator.lognormal(0, 0.2) * (100 if number % 20 == 0 else 1)
        model.observe(keys, seconds)
    line = model.line()
    assert line is not None
    assert line.fixed == pytest.approx(0.01, rel=0.5)
    assert line.each == pytest.approx(1e-5, rel=0.5)


def test_what_is_long_ago_counts_no_more() -> None:
    """Costs that grow by ever so little are no change of regime, and sizes that are used no more may tell of the old ones."""
    model = CostModel()
    for keys in (200, 10_000) * 10:
        model.observe(keys, 0.01 + 1e-5 * keys)
    for keys in (1000, 4000) * 150:
        model.observe(keys, 1.8 * (0.01 + 1e-5 * keys))
    line = model.line()
    assert line is not None
    assert line == pytest.approx((0.018, 1.8e-5), rel=0.01)


def test_the_old_is_forgotten() -> None:
    """A database that has become ten times as slow is known as such after three lookups, all of one size."""
    model = CostModel()
    for keys in (200, 1000) * 10:
        model.observe(keys, 0.01 + 1e-5 * keys)
    changes = [model.observe(1000, 0.2) for _ in range(4)]
    assert changes == [False, False, True, False]
    line = model.line()
    assert line is not None
    assert line(1000) == pytest.approx(0.2)


def test_the_formulas_give_what_was_computed_by_hand() -> None:
    """For C_miss = 10 ms: k = 4, C_batch(4) = 14 ms, I = 1 ms."""
    assert speedup(4, 0.010, 0.014) == pytest.approx(40 / 14)
    assert thesis_gain(4, 0.010, 0.014, 0.001) == pytest.approx(0.025 - 0.014 - 0.004)
    assert exact_gain(4, 0.010, 0.014, 0.001) == pytest.approx(0.025 - 0.014 - 0.003)
    # With a constant r above 2 C_miss / (C_miss - 2 I) = 2.5 the gain grows with k, below it falls.
    for r, grows in ((2.6, True), (2.4, False)):
        gains = [exact_gain(k, 0.010, k * 0.010 / r, 0.001) for k in (100, 200)]
        assert (gains[1] > gains[0]) is grows


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"size": (5, 2)}, r"expected a range of batch sizes as \(least, most\), got \(5, 2\); write for example \(100, 5000\)"),
        ({"size": (5,)}, r"expected a range of batch sizes as \(least, most\), got \(5,\)"),
        ({"size": (0, 5)}, "expected batch size as a whole number from 1 to 100000, got 0"),
        ({"in_flight": "many"}, "expected in_flight as a whole number from 1 to 64 or 'auto', got 'many'"),
        ({"in_flight": 9}, "expected in_flight of at most connections=8, which all workers of an executor share, got 9"),
        ({"connections": 0}, "expected connections as a whole number from 1 to 10000, got 0"),
        ({"latency": "soon"}, "expected latency as a duration"),
        ({"max_wait": "forever"}, "expected max_wait as a duration, got 'forever', which would wait for ever"),
        ({"max_wait": None}, "expected max_wait as a duration, got None, which would wait for ever; write for example '20 ms'"),
    ],
)
def test_mistakes_are_told(given: dict[str, object], message: str) -> None:
    """When the option is made."""
    with pytest.raises(RequestError, match=message):
        Batch(**given)  # type: ignore[arg-type]  # that is the point


def test_a_line_without_a_slope_asks_for_all_that_it_may() -> None:
    """A scan costs the same for any number of keys."""
    assert Line(0.1, 0.0).size(0.02) == math.inf
    assert Line(0.1, 0.0).within(0.2) == math.inf
    assert Line(0.1, 0.0).within(0.05) == 0


@pytest.mark.parametrize("most", [10_000, 100_000])
@pytest.mark.parametrize("each", [0.0, 1e-7])
def test_lookups_that_become_slow_are_made_smaller_though_all_were_of_one_size(most: int, each: float) -> None:
    """Where the best size is far above the bounds there is but one, and so no telling what another would take."""
    batching = Batching(Limits.of(Batch(size=(1, most)), 30.0))
    for now in range(400):
        keys = batching.size(10**9)
        batching.landed(keys, 0.05 + each * keys, now, flying=batching.in_flight, is_busy=True)
    for now in range(50):
        keys = batching.size(10**9)
        batching.landed(keys, 0.001 * keys, now, flying=batching.in_flight, is_busy=True)
    assert max(batching.size(10**9) for _ in range(20)) <= 7500, "a quarter of the time limit is the most"


def test_after_a_lookup_that_took_too_long_the_next_is_smaller() -> None:
    """Else those of a query that is started again would all end alike."""
    database = Scripted({key: [str(key)] for key in range(30_000)})

    def fault(number: int) -> Exception | None:
        return LookupTimeoutError("too slow") if has_changed and len(database.asked[number]) > 5000 else None

    database.fault, has_changed = fault, False
    with closing(scripted_engine(database, batch=Batch(in_flight=1))) as engine:
        model = engine._fetcher._batching.model
        for keys in (1000, 5000) * 10:
            model.observe(keys, 0.05)
        assert len(list(Operator(engine).in_order([(pa.array(range(10_000)),)]))) == 1
        has_changed = True
        with pytest.raises(LookupTimeoutError):
            list(Operator(engine).in_order([(pa.array(range(10_000, 20_000)),)]))
        assert len(list(Operator(engine).in_order([(pa.array(range(20_000, 30_000)),)]))) == 1
