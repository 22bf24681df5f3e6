"""What the figures' checks say of made-up results: each claim with figures that meet it, and with figures that don't."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from matplotlib.figure import Figure

from srj.experiments import fig_4_22, rate_cell
from srj.experiments.experiment import load
from srj.experiments.ledger import Record
from srj.experiments.split_cell import SPLITS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from srj.experiments.experiment import Cell, Finding


def records(name: str, figures: Callable[[Cell], dict[str, Any]]) -> list[Record]:
    """Finished cells at small scale."""
    return [
        Record("", name, "small", cell, "postgresql", "finished", "", 1.0, figures(cell), "", {}, "", "")
        for cell in load(name).cells("small")
    ]


def verdicts(name: str, figures: Callable[[Cell], dict[str, Any]]) -> list[str]:
    """Of each claim, in order; the plot takes the records too."""
    made = records(name, figures)
    axes = Figure().subplots()
    load(name).plot(made, axes)
    assert axes.has_data()
    assert all(told.endswith(".") for told in load(name).details(made))
    return [finding.verdict for finding in load(name).check(made)]


def rates(of: Callable[[Cell], float]) -> Callable[[Cell], dict[str, Any]]:
    """Figures of a cell with this rate."""
    return lambda cell: {
        "rate": of(cell),
        "hit_ratio": cell["cached"],
        "keys_per_lookup": max(cell["batch"], 1),
        "distance": 90,
        "predicted_distance": 100,
    }


def base_or(gain: Callable[[Cell], float]) -> Callable[[Cell], dict[str, Any]]:
    """One lookup a row carries 1,000 rows a second, all else so many times that."""
    return rates(lambda cell: 1000 * (1 if cell["way"] == "one by one" else gain(cell)))


@pytest.mark.parametrize(("name", "claimed"), [("fig_4_15", 3.0), ("fig_4_16", 5.0), ("fig_4_17", 11.0)])
def test_the_gain_of_the_best_size_is_reached_or_not(name: str, claimed: float) -> None:
    """At least, not about."""
    assert verdicts(name, base_or(lambda cell: claimed if cell["batch"] == 100 else 1.0))[0] == "agrees"
    assert verdicts(name, base_or(lambda cell: 0.97 * claimed if cell["batch"] == 100 else 1.0))[0] == "differs"


def test_a_best_size_is_one_beyond_which_the_rate_falls() -> None:
    """On an index; where the table is read whole the rate has to grow, and to stay."""
    falls = base_or(lambda cell: 5 - abs(cell["batch"] - 30) / 1000)
    assert verdicts("fig_4_15", falls)[1] == "agrees"
    assert verdicts("fig_4_15", base_or(lambda cell: 5 if cell["batch"] == 1000 else 1))[1] == "differs"
    grows = base_or(lambda cell: min(cell["batch"], 4000) / 10 + 1)
    assert verdicts("fig_4_15", grows)[1] == "differs"
    for name in ("fig_4_16", "fig_4_17"):
        assert verdicts(name, grows)[1] == "agrees"
        assert verdicts(name, base_or(lambda cell: 5 if cell["batch"] == 100 else 1))[1] == "differs"
        assert verdicts(name, base_or(lambda cell: cell["batch"] / 10 + 1))[1] == "differs"  # and does not stay
        assert verdicts(name, base_or(lambda cell: min(cell["batch"], 100) + 1))[1] == "differs"  # stays far earlier
    assert verdicts("fig_4_16", base_or(lambda cell: cell["batch"] / 10 + 1))[2] == "differs"
    assert verdicts("fig_4_16", base_or(lambda cell: min(cell["batch"], 7000) / 10 + 1))[2] == "agrees"


def test_the_gain_grows_with_the_skew_or_not() -> None:
    assert verdicts("fig_4_18", base_or(lambda cell: 2 + cell["skew"])) == ["agrees"]
    assert verdicts("fig_4_18", base_or(lambda cell: 3 - cell["skew"])) == ["differs"]
    assert verdicts("fig_4_18", base_or(lambda _: 3)) == ["differs"]
    assert verdicts("fig_4_18", base_or(lambda cell: 3 + 0.5 * cell["skew"])) == ["differs"]  # by no more than runs differ
    assert verdicts("fig_4_18", base_or(lambda cell: 3 + 9 * (cell["skew"] == 0.5))) == ["differs"]


def test_the_gain_with_nine_tenths_cached() -> None:
    """It has to be three times, and the largest."""
    assert verdicts("fig_4_19", base_or(lambda cell: 5 * cell["cached"] ** 2)) == ["agrees", "agrees"]
    assert verdicts("fig_4_19", base_or(lambda cell: 3 - 2.5 * cell["cached"])) == ["differs", "differs"]
    assert verdicts("fig_4_19", base_or(lambda cell: 2 + 1.2 * cell["cached"])) == ["open", "open"]  # 3.08, and before it 2.84


def test_batches_win_where_few_rows_hit_and_overtaking_where_many_do() -> None:
    def crossing(cell: Cell) -> float:
        if (cell["batch"], cell["order"]) == (1, 0.0):
            return 0.5  # neither
        return 2.0 if cell["order"] == 0.0 else 3 * float(cell["cached"])

    assert verdicts("fig_4_20", base_or(crossing)) == ["agrees", "agrees"]
    assert verdicts("fig_4_20", base_or(lambda cell: 3.1 - crossing(cell))) == ["differs", "differs"]
    assert verdicts("fig_4_20", base_or(lambda _: 2)) == ["open", "open"]


def test_the_largest_part_of_a_lookup() -> None:
    """As in the thesis; and where the client takes most."""

    def thesis(cell: Cell) -> dict[str, Any]:
        network = 2 * cell["delay"]
        return {"total": 42 + network, "network": network, "server": 30.0, "client": 10.0, "engine": 2.0, "connection": 10.0}

    assert verdicts("fig_4_3", thesis) == ["agrees", "agrees", "agrees"]
    other = {"total": 42.0, "network": 1.0, "server": 2.0, "client": 29.0, "engine": 10.0, "connection": 10.0}
    assert verdicts("fig_4_3", lambda _: other) == ["differs", "differs", "differs"]


def test_foreseen_and_measured_hits() -> None:
    """Each driver for itself."""

    def figures(core: float, spark: float) -> Callable[[Cell], dict[str, Any]]:
        off = {"core": core, "spark": spark}
        return lambda cell: {
            "foreseen": cell["cached"],
            "foreseen_exact": cell["cached"],
            "measured": cell["cached"] + off[cell["driver"]],
        }

    assert verdicts("fig_4_14", figures(0.0, 0.01)) == ["agrees", "agrees", "agrees"]
    assert verdicts("fig_4_14", figures(0.0, -0.03)) == ["agrees", "differs", "differs"]
    assert verdicts("fig_4_14", figures(0.03, 0.0)) == ["differs", "agrees", "differs"]


def test_the_direction_in_which_the_order_constraint_goes() -> None:
    """Up, down, nowhere; and one that goes on beyond 100 s."""
    up = rates(lambda cell: 1000 + 1000 * min(cell["order"], 1.0))
    assert verdicts("fig_4_21", up) == ["agrees", "agrees", "differs", "agrees"]
    down = rates(lambda cell: 2000 - 1000 * min(cell["order"], 1.0))
    assert verdicts("fig_4_21", down) == ["agrees", "differs", "agrees", "agrees"]
    assert verdicts("fig_4_21", rates(lambda _: 1000)) == ["agrees", "differs", "differs", "agrees"]
    assert verdicts("fig_4_21", rates(lambda cell: 1000 + 1000 * (cell["order"] > 100)))[0] == "differs"


def test_a_row_that_strays_farther_than_predicted() -> None:
    """It is told of the other figures too."""
    farther = {"rate": 1000.0, "hit_ratio": 0.5, "keys_per_lookup": 30, "distance": 200, "predicted_distance": 100}
    told = load("fig_4_18").details(records("fig_4_18", lambda _: farther))[-1]
    assert told == "In 15 of 15 of these cells a row strayed up to 2 times as far as the thesis's MaximumSD predicts (figure 4.21)."
    *_, predicted = load("fig_4_21").check(records("fig_4_21", lambda _: farther))
    assert predicted.verdict == "differs"
    assert "predicted over seen 0.50 to 0.50; 200 rows against 100" in predicted.why


def test_real_streams_gain_at_each_size_and_with_it() -> None:
    assert verdicts("fig_4_22", base_or(lambda cell: 1.4 + cell["cached"])) == ["agrees", "agrees"]
    assert verdicts("fig_4_22", base_or(lambda cell: 1.1 + 0.1 * cell["cached"])) == ["open", "differs"]
    assert verdicts("fig_4_22", base_or(lambda cell: 1 - cell["cached"] / 2)) == ["differs", "differs"]


def test_the_keys_of_ones_own_file_go_round_after_the_first_half(tmp_path: Path) -> None:
    """Five ways at each size, each key below the relation's rows."""
    path = tmp_path / "own.parquet"
    pq.write_table(pa.table({"page": ["a", "b", "c", "a", "d", "e"]}), path)
    cells = fig_4_22.own(path, "page", "smoke", (0.2, 0.8))
    assert [(one["way"], one["batch"], one["order"]) for one in cells[:5]] == [
        ("one by one", 0, "any"),
        ("srj", 30, 0.0),
        ("srj", 1, "any"),
        ("srj", 30, "any"),
        ("srj auto", 0, "any"),
    ]
    stream = rate_cell.stream_of(rate_cell.RateCell(**cells[0]))
    assert np.array_equal(stream.before, [0, 1, 2])
    assert np.array_equal(stream.keys, [0, 3, 4, 0, 1, 2])
    assert (stream.distinct, stream.relation) == (5, 5)


def test_another_division_is_better_only_where_chance_is_no_reason() -> None:
    """Nine ratios of which none says otherwise are no chance, one may be; the mean has to say so too."""

    def found(*of_thesis: float) -> list[Finding]:
        """With these ratios to the share of 50 % in one cell, and 4 times the others everywhere else."""

        def figures(cell: Cell) -> dict[str, Any]:
            is_one = cell["memory"] == 0.04 and not cell["indexed"]
            others = dict.fromkeys(SPLITS, [1000] * len(of_thesis)) | {"auto": [4000] * len(of_thesis)}
            return {"throughput": others | {"50 %": [round(4000 / ratio) for ratio in of_thesis]} if is_one else others}

        made = records("fig_5_4", figures)
        load("fig_5_4").plot(made, Figure().subplots())
        return load("fig_5_4").check(made)

    sure = found(*[0.9] * 8, 0.96)
    assert [one.verdict for one in sure] == ["differs", "agrees", "agrees"]
    together = "all together 4.00 times 20 %, {} times 50 %, 4.00 times 70 %, 4.00 times unbounded"
    where = "of 50 % with 4% of the relation, lookups one at a time, no index"
    of_all = together.format("3.53")  # 4 ** (11 / 12) * 0.907 ** (1 / 12)
    assert sure[0].why == f"of 48 means 1 are below 0.97, the least 0.91 times, {where}; for certain 1; {of_all}; {where}"
    chance = found(*[0.9] * 8, 1.5)
    assert [one.verdict for one in chance] == ["open", "agrees", "agrees"]
    of_all = together.format("3.55")
    assert chance[0].why.endswith(f"of 48 means 1 are below 0.97, the least 0.95 times, {where}; for certain 0; {of_all}")
    skewed = found(*[0.96] * 28, 1.5, 1.5)
    assert skewed[0].verdict == "agrees"
    assert "of 48 means 0 are below 0.97, the least 0.99 times" in skewed[0].why
