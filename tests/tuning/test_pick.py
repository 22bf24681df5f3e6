"""What the tuner picks, against a grid of full simulations."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from srj.cache_policies import by_name, simulate
from srj.errors import RequestError
from srj.tuning import KeySequence, MiniSimulation, Prices, lru_curve, pick, tune, usable
from srj.tuning.simulating import in_full
from tests.sizing.traces import intervals, zipf

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

TRACES: dict[str, Callable[[], npt.NDArray[np.int64]]] = {
    "zipf 1": lambda: zipf(10_000, 2_000, 1.0, 3),
    "loop": lambda: np.arange(10_000) % 1_500,
    "intervals": lambda: intervals([2_500] * 4, [500] * 4, 3),
}


@pytest.mark.parametrize("name", TRACES)
@pytest.mark.parametrize("share", [0.1, 0.5])
def test_within_a_limit_no_usable_policy_misses_two_percent_less(name: str, share: float) -> None:
    """With as many rows as the limit; the pick keeps to it."""
    keys = KeySequence.of(TRACES[name]())
    limit = int(share * keys.distinct)
    best = pick(keys, lru_curve(keys), Prices(memory=f"{limit} rows")).best
    grid = min(in_full(keys, policy, limit).misses for policy in usable())
    assert best.rows <= limit
    assert best.full
    assert best.misses <= 1.02 * grid


LONG: dict[str, Callable[[], npt.NDArray[np.int64]]] = {
    "zipf 1": lambda: zipf(60_000, 10_000, 1.0, 3),
    "zipf 0.6, then intervals": lambda: np.concatenate(
        [zipf(30_000, 10_000, 0.6, 3), 10_000 + intervals([10_000] * 3, [900] * 3, 3)]
    ),
    "intervals": lambda: intervals([10_000] * 6, [900] * 6, 3),
}


@pytest.mark.parametrize("name", LONG)
def test_of_a_long_trace_only_the_best_two_policies_go_all_the_way(name: str) -> None:
    """What they miss half the way tells which these are; with intervals LRU, which misses a quarter less than by its curve."""
    keys, rows = KeySequence.of(LONG[name]()), 700
    found = pick(keys, lru_curve(keys), Prices(memory=f"{rows} rows"))
    full = [trial for trial in found.trials if trial.full]
    assert len(full) == 2
    assert len(found.trials) > 2
    assert all(trial == in_full(keys, trial.policy, rows) for trial in full)
    assert found.best.misses <= 1.02 * min(in_full(keys, policy, rows).misses for policy in usable())


def test_where_the_second_half_is_another_stream_whoever_may_be_best_goes_all_the_way() -> None:
    """Hot keys among ones that come once, then uniform keys; and Zipf's, then a loop: half the way others are ahead."""
    rng = np.random.default_rng(1)
    mixed = np.where(rng.random(30_000) < 0.6, rng.integers(0, 2_000, 30_000), 10**7 + np.arange(30_000))
    shares = 1 / np.arange(1, 3_001)
    zipf_first = rng.choice(3_000, 30_000, p=shares / shares.sum())
    for keys, rows in (
        (np.concatenate([mixed, 10**8 + rng.integers(0, 8_000, 30_000)]), 6_400),
        (np.concatenate([zipf_first, 10**6 + np.arange(30_000) % 3_000]), 1_500),
    ):
        trace = KeySequence.of(keys)
        found = pick(trace, lru_curve(trace), Prices(memory=f"{rows} rows"))
        assert found.best.misses <= 1.02 * min(in_full(trace, policy, rows).misses for policy in usable())


def test_at_a_price_no_cell_of_a_grid_costs_two_percent_less() -> None:
    """Misses and memory together; dearer memory buys a smaller cache."""
    keys = KeySequence.of(zipf(10_000, 2_000, 1.0, 3))
    sizes = np.geomspace(50, 2_000, 8).astype(int).tolist()
    cells = [in_full(keys, policy, rows) for policy in ("lru", "lfu", "clock") for rows in sizes]
    chosen = []
    for worth in (5_000.0, 40_000.0):
        prices = Prices(memory_cost=worth)
        best = pick(keys, lru_curve(keys), prices).best
        assert prices.cost(best.misses, best.rows) <= 1.02 * min(prices.cost(cell.misses, cell.rows) for cell in cells)
        chosen.append(best.rows)
    assert chosen[1] < chosen[0] < keys.distinct


@pytest.mark.parametrize(
    ("trace", "held", "slack"),
    [(lambda: np.arange(40_000) % 5_000, 5_000, 1.15), (lambda: intervals([20_000] * 4, [1_000] * 4, 1), 1_000, 1.5)],
)
def test_a_working_set_is_held_with_the_slack_that_sets_need(
    trace: Callable[[], npt.NDArray[np.int64]], held: int, slack: float
) -> None:
    """LRU with 1.15 times the keys of a loop; more of an interval, where hits are so many that few overfull sets cost more."""
    keys = KeySequence.of(trace())
    found = pick(keys, lru_curve(keys), Prices())
    assert found.best.policy == "lru"
    assert 0.97 * slack * held <= found.best.rows <= slack * held
    assert found.best.misses <= 1.01 * keys.distinct
    assert f"times {slack}" in found.reason


@pytest.mark.parametrize("policy", ["lfu", "sieve", "arc"])
def test_a_mini_simulation_is_near_the_whole(policy: str) -> None:
    """A quarter of the keys, some 2,700; the error is a share of all references."""
    keys = KeySequence.of(zipf(50_000, 20_000, 1.0, 5))
    mini = MiniSimulation(keys, most=keys.distinct // 4, exact=0)
    for rows in (1_500, 5_000):
        whole = simulate(keys.codes, rows, policy).misses
        assert abs(mini.run(policy, rows).misses - whole) / keys.references < 0.02


def test_nothing_is_left_out_of_a_trace_of_few_keys() -> None:
    """Up to 100,000 distinct keys an estimate in exact form is exact."""
    keys = KeySequence.of(zipf(20_000, 3_000, 0.8, 2))
    assert MiniSimulation(keys).run("sieve", 300).misses == simulate(keys.codes, 300, "sieve").misses
    assert lru_curve(keys).at(300) * keys.references == pytest.approx(simulate(keys.codes, 300, "lru").misses)


def test_only_what_the_cache_follows_is_recommended() -> None:
    """The others' curves are there to compare, with a mark."""
    found = tune(KeySequence.of(zipf(2_500, 500, 0.9, 1)), Prices(memory="50 rows"))
    curves = {curve.policy: curve for curve in found.curves}
    assert {name for name, curve in curves.items() if curve.usable} == set(usable())
    assert {"opt", "arc", "wtinylfu"} <= curves.keys() - set(usable())
    assert all(by_name(trial.policy).rule is not None for trial in found.trials)
    assert all(np.all(np.array(curve.ratios) >= np.array(curves["opt"].ratios) - 1e-9) for curve in found.curves)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"miss_cost": 0}, "miss_cost"),
        ({"row_bytes": 0.5}, "row_bytes"),
        ({"memory_cost": -1}, "memory_cost"),
        ({"memory": "much"}, "'much'"),
    ],
)
def test_prices_that_are_none_are_refused(arguments: dict[str, float | str], expected: str) -> None:
    """In one sentence."""
    with pytest.raises(RequestError, match=expected):
        Prices(**arguments)  # type: ignore[arg-type]


def test_where_no_key_comes_twice_it_says_that_no_cache_is_of_use() -> None:
    keys = KeySequence.of(np.arange(3_000))
    assert pick(keys, lru_curve(keys), Prices()).reason.startswith("as good as any: no key comes twice in this trace")
