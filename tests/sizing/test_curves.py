"""Curves: exact ones count an LRU cache's misses; sampled ones and AET's come near them."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import pytest

from srj.cache_policies import simulate
from srj.errors import RequestError
from srj.experiments.traces import trace as made_trace
from srj.sizing import MissRatioCurve, ReuseTimes, Shards, aet_curve, combined, hash_keys, reuse_distances, reuse_times
from tests.policies.sequences import sequence
from tests.sizing.traces import zipf

if TYPE_CHECKING:
    import numpy.typing as npt


@cache
def trace(skew: float) -> tuple[npt.NDArray[np.uint64], MissRatioCurve, npt.NDArray[np.float64]]:
    """Hashes of 2 M references over 200,000 keys, the exact curve, and the sizes at which errors are averaged."""
    keys = zipf(2_000_000, 200_000, skew, 1)
    curve = MissRatioCurve.from_distances(reuse_distances(keys))
    return hash_keys(keys), curve, np.linspace(0, curve.bound(), 101)[1:]


@pytest.mark.parametrize("skew", [0.6, 0.8, 1.0, 1.1])
def test_a_sample_of_one_in_a_hundred_errs_by_less_than_a_hundredth(skew: float) -> None:
    """On average over the sizes; from the start, and after exact counts."""
    hashes, exact, sizes = trace(skew)
    for shards in (Shards(0.01, exact=0), Shards(0.01)):
        for part in np.array_split(hashes, 50):
            shards.add(part)
        assert shards.rate == pytest.approx(0.01)
        assert np.abs(shards.curve().at(sizes) - exact.at(sizes)).mean() < 0.01


@pytest.mark.parametrize("skew", [0.6, 0.8, 1.0, 1.1])
def test_a_sample_of_fixed_size_keeps_its_size(skew: float) -> None:
    hashes, exact, sizes = trace(skew)
    shards = Shards(keys=8_000)
    for part in np.array_split(hashes, 50):
        shards.add(part)
        assert shards.held <= 8_000
    assert np.abs(shards.curve().at(sizes) - exact.at(sizes)).mean() < 0.01


@pytest.mark.parametrize("name", ["flights", "movielens"])
def test_below_100_000_keys_nothing_is_sampled(name: str) -> None:
    """So on the real traces the curve is the exact one."""
    keys = sequence(name)
    shards = Shards(0.01)
    for part in np.array_split(hash_keys(keys), 7):
        shards.add(part)
    assert shards.curve() == MissRatioCurve.from_distances(reuse_distances(keys))


def test_one_part_key_in_a_hundred_of_tpch_tells_the_curve_of_all() -> None:
    """1.2 million lines that ask for 40,000 parts, sampled from the start: 400 of them."""
    keys = made_trace("tpch", factor=0.2).keys()
    shards = Shards(0.01, exact=0)
    for part in np.array_split(hash_keys(keys), 20):
        shards.add(part)
    assert 300 < shards.held < 500
    exact, sizes = MissRatioCurve.from_distances(reuse_distances(keys)), np.linspace(1, 40_000, 200)
    assert np.abs(shards.curve().at(sizes) - exact.at(sizes)).mean() < 0.01


@pytest.mark.parametrize("name", ["zipf", "loop", "flights", "movielens"])
def test_the_exact_curve_counts_the_misses_of_a_cache(name: str) -> None:
    keys = sequence(name)[:10_000]
    curve = MissRatioCurve.from_distances(reuse_distances(keys))
    for capacity in (1, 50, 699, 700, 1500):
        assert curve.at(capacity) == pytest.approx(simulate(keys, capacity, "lru").miss_ratio, abs=1e-12)
    assert (np.diff(curve.ratios) <= 0).all()


@pytest.mark.parametrize("skew", [0.6, 1.0])
def test_reuse_times_alone_come_near(skew: float) -> None:
    hashes, exact, sizes = trace(skew)
    reservoir = ReuseTimes()
    for part in np.array_split(hashes, 20):
        reservoir.add(part)
    for curve in (aet_curve(reuse_times(hashes)), reservoir.curve()):
        assert np.abs(curve.at(sizes) - exact.at(sizes)).mean() < 0.02


def test_curves_of_periods_add_up_and_those_of_parts_of_the_keys_scale() -> None:
    distances = reuse_distances(zipf(100_000, 20_000, 0.8, 1))
    halves = [MissRatioCurve.from_distances(part) for part in np.split(distances, [30_000])]
    whole = MissRatioCurve.from_distances(distances)
    sizes = np.arange(0, 20_000, 7)
    assert np.allclose(combined(halves).at(sizes), whole.at(sizes))
    assert np.allclose((halves[0] + halves[1]).at(sizes), whole.at(sizes))
    assert np.allclose(whole.scaled(4).at(sizes * 4), whole.at(sizes))


def test_the_knee_is_a_loops_length_and_all_of_a_straight_line() -> None:
    loop = MissRatioCurve.from_distances(reuse_distances(np.tile(np.arange(300), 20)))
    assert (loop.knee(), loop.bound(), loop.working_set(), loop.knee(most=200)) == (300, 300, 300, 0)
    line = MissRatioCurve(np.array([0.0, 100.0]), np.array([1.0, 0.0]), 1.0)
    assert (line.knee(), line.knee(most=40), line.working_set(0.5), line.bound(0.25)) == (100, 40, 50, 75)


def test_what_are_no_hashes_is_refused() -> None:
    for keys in (np.arange(3), np.zeros((2, 2), np.uint64)):
        with pytest.raises(RequestError, match=r"^expected a one-dimensional array of uint64, got .*; see srj.sizing.hash_keys$"):
            Shards(0.05).add(keys)
