"""The benchmarks at tiny size: each really runs, and both sides of each give the same rows."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from benchmarks import batch_gain
from benchmarks.batches import SIZES
from benchmarks.pairs import Checksum, Contest, measure
from benchmarks.setting import SCHEMA, SMOKE

if TYPE_CHECKING:
    from tests.servers import Server

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def report(postgres: Server, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What `benchmarks/run.py` writes."""
    file = tmp_path_factory.mktemp("bench") / "report.json"
    command = [sys.executable, "benchmarks/run.py", "--scale", "smoke", "--pairs", "1", "--json", str(file)]
    environment = os.environ | {"SRJ_TEST_POSTGRES_URL": postgres.url}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    loaded: dict[str, Any] = json.loads(file.read_text())
    return loaded


def test_each_comparison_runs_and_both_sides_agree_on_every_row(report: dict[str, Any]) -> None:
    rows = {(result["group"], result["checksum"]["rows"]) for result in report["results"]}
    assert rows == {
        ("hits", SMOKE.hits),
        ("hits", SMOKE.more_hits),
        ("misses", SMOKE.misses),
        ("one-by-one", SMOKE.half_hits),
        ("orders", SMOKE.half_hits),
    }
    assert len(report["results"]) == 9


def test_every_bar_of_the_table_is_reported_with_its_outcome(report: dict[str, Any]) -> None:
    bars = {result["name"]: result["bar"] for result in report["results"] if result["bar"] is not None}
    assert sorted(bars.values()) == [0.33, 0.65, 0.65, 0.9, 8.0]
    assert all((result["met"] is None) == (result["bar"] is None) for result in report["results"])


def test_half_of_the_keys_hit_where_that_is_what_is_compared(report: dict[str, Any]) -> None:
    (result,) = (result for result in report["results"] if result["group"] == "one-by-one")
    assert 0.4 < result["details"]["other_hit_ratio"] < 0.6
    assert 0.3 < result["details"]["srj_hit_ratio"] < 0.6


def test_the_benchmarks_leave_nothing_in_the_database(report: dict[str, Any], postgres: Server) -> None:
    assert report["results"]
    assert postgres.execute(f"SELECT 1 FROM pg_namespace WHERE nspname = '{SCHEMA}'") == []


def contest(calls: list[str], theirs: Checksum) -> Contest:
    """One whose sides take given seconds; the first, to warm up, far longer."""

    def side(name: str, seconds: list[float]) -> float:
        calls.append(name)
        return seconds.pop(0)

    ours, others = [100.0, 1.0, 2.0, 4.0], [1.0, 1.0, 1.0, 1.0]
    checksums = Checksum(2, 5), theirs
    return Contest("g", "name", "other", 2, lambda: side("srj", ours), lambda: side("other", others), lambda: checksums, bar=0.5)


def test_pairs_alternate_and_the_first_does_not_count() -> None:
    calls: list[str] = []
    result = measure(contest(calls, Checksum(2, 5)), pairs=3)
    assert calls == ["srj", "other"] * 4
    assert result.ratios == [1.0, 0.5, 0.25]
    assert result.ratio == 0.5
    assert result.is_met is True


def test_outputs_that_differ_are_not_timed() -> None:
    calls: list[str] = []
    with pytest.raises(AssertionError, match="expected the same rows from srj and other in 'name'"):
        measure(contest(calls, Checksum(2, 6)), pairs=3)
    assert calls == []


def test_the_formulas_sizes_are_read_off_the_measured_costs() -> None:
    """Where C_batch(k) = 9 ms + k * 1 ms, r(k) = 10 k / (9 + k), and a gain grows with k as long as 9 ms > 1 ms + 2 I."""
    result = {"cells": {f"{size} {flights}": flights * size / (0.009 + 0.001 * size) for size in SIZES for flights in (1, 2, 4, 8)}}
    costs = batch_gain.costs_of(result)
    assert costs[100] == pytest.approx(0.109)
    assert batch_gain.ratios_of(costs)[100] == pytest.approx(1000 / 109)
    assert batch_gain.knee(batch_gain.ratios_of(costs)) == 300  # 9.71 of 9.99; 9.17 with 100 keys
    assert batch_gain.largest_gain(costs, 1e-6) == 10_000
    assert batch_gain.largest_gain(costs, 0.005) == 1
    assert batch_gain.fastest(result) == batch_gain.fastest(result, (1,)) == 10_000
