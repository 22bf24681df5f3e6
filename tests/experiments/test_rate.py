"""The source of a given rate and the search for the highest, in simulated time; the checksum that stands for all rows."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from srj.experiments.plain_join import added, checksum, plain_join
from srj.experiments.rate_cell import last_distinct
from srj.experiments.search import Precision, highest_rate
from srj.experiments.source import PacedSource, Trial

KEYS = np.arange(1000)


class Clock:
    """Time that passes only when somebody sleeps or works."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        """Seconds."""
        return self.now

    def sleep(self, seconds: float) -> None:
        """Let them pass."""
        self.now += seconds


def serve(trial: Trial, each: float) -> PacedSource:
    """A join that takes so many seconds for a row."""
    clock = Clock()
    source = PacedSource(KEYS, 0, trial, clock=clock, sleep=clock.sleep)
    for keys in source:
        clock.sleep(each * len(keys))
        source.leave(len(keys))
    return source


@pytest.mark.parametrize("capability", [20.0, 1000.0, 250_000.0])
def test_the_highest_rate_is_what_the_join_can_do(capability: float) -> None:
    """Within the precision, be it slow or fast."""
    precision = Precision(share=0.05, least_seconds=0.5, most_seconds=60.0)
    found = highest_rate(lambda trial: serve(trial, 1 / capability).is_carried, lambda _: 1.0, precision)
    assert found.rate == pytest.approx(capability, rel=0.08)
    assert found.rate < found.above <= found.rate * 1.06
    assert found.trials[-1][0] in (found.rate, found.above)


def test_a_rate_is_found_by_close_looks_alone() -> None:
    """A large step that is a fifth too high passes for carried, and is not what comes out."""
    found = highest_rate(lambda trial: serve(trial, 1 / 3400).is_carried, lambda _: 1.0, Precision(0.05, 0.5, 60.0))
    assert (4000.0, True) in found.trials
    assert found.rate == pytest.approx(3400, rel=0.06)


def test_a_rate_counts_as_too_high_only_after_so_many_tries() -> None:
    """One pause of the machine does not decide."""
    asked: list[float] = []

    def carries(trial: Trial) -> bool:
        asked.append(trial.rate)
        return trial.rate < 5000 and len(asked) % 2 == 0  # each first try fails

    found = highest_rate(carries, lambda _: 1.0, Precision(0.05, 0.1, 1.0, tries=2))
    assert found.rate == pytest.approx(5000, rel=0.06)
    assert all(first == second for first, second in zip(asked[::2], asked[1::2], strict=True))


@pytest.mark.parametrize("answer", [True, False])
def test_a_join_that_carries_everything_or_nothing_is_an_error(answer: bool) -> None:
    with pytest.raises(ArithmeticError, match="expected a rate at which the join can no longer follow"):
        highest_rate(lambda _: answer, lambda _: 1.0, Precision(0.05, 0.1, 1.0))


def test_rows_fall_due_at_the_rate_and_those_that_wait_come_first() -> None:
    """All are given, in their order, and the stream goes round."""
    source = serve(Trial(1000.0, 3.0, waiting=50, growth=10), each=0.0)
    assert source.is_carried
    assert source.taken == pytest.approx(3050, abs=3)
    assert np.array_equal(source.given(), np.resize(KEYS, source.taken))


def test_a_trial_that_grows_hopelessly_ends_early() -> None:
    """A join ten times too slow is not waited for."""
    source = serve(Trial(1000.0, 100.0, waiting=0, growth=100), each=0.01)
    assert not source.is_carried
    assert source.taken < 300


def test_what_waits_is_counted_at_the_end_of_the_trial_though_the_join_goes_on() -> None:
    """A lookup that is still under way then has not made its rows leave."""
    clock = Clock()
    source = PacedSource(KEYS, 0, Trial(100.0, 1.0, 0, 20), clock=clock, sleep=clock.sleep)
    taken = 0
    for keys in source:
        taken += len(keys)
    clock.sleep(5.0)
    source.leave(taken)
    assert source.waiting_at_end == 100
    assert not source.is_carried


def test_the_checksum_sees_every_value_and_no_order() -> None:
    """Nor whether a column came in pieces."""
    rows = {"id": [1, 2, 3], "name": ["a", "b", None], "price": [0.5, None, 2.0]}
    table = pa.table(rows)
    whole = checksum(table)
    assert checksum(table.take([2, 0, 1])) == whole == added([checksum(table.slice(0, 1)), checksum(table.slice(1))])
    for column, values in {"id": [1, 2, 4], "name": ["b", "a", None], "price": [0.5, 0.0, 2.0]}.items():
        assert checksum(pa.table(rows | {column: values})) != whole
    assert checksum(pa.table({"a": [1, 2], "b": [2, 1]})) != checksum(pa.table({"a": [2, 2], "b": [1, 1]}))


def test_the_plain_join_keeps_rows_without_a_match() -> None:
    """And gives each key's row as often as it is asked for."""
    relation = pa.table({"id": [1, 2], "name": ["a", "b"]})
    joined = plain_join(np.array([2, 9, 2]), relation).sort_by("id").to_pylist()
    assert joined == [{"id": 2, "name": "b"}, {"id": 2, "name": "b"}, {"id": 9, "name": None}]


def test_the_cache_begins_with_what_lru_would_hold() -> None:
    """Against a list that is kept key by key."""
    keys, held = np.random.default_rng(1).integers(0, 50, 500), list[int]()
    for key in keys.tolist():
        held = [*(one for one in held if one != key), key][-20:]
    assert last_distinct(keys, 20).tolist() == held
