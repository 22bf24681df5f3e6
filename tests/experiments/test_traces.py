"""Traces: their frequencies and structure against theory, and the same keys however they are read."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import csv

from srj.errors import RequestError
from srj.experiments.traces import describe, names, real, trace
from srj.experiments.traces.trace import BLOCK

if TYPE_CHECKING:
    from pathlib import Path

MADE = ["zipf", "hot spot", "latest", "loop", "moving interval", "shifting zipf", "random walk", "ar1", "trend", "nexmark q13"]
LONG = BLOCK + 100_000  # more than a block, so that what passes from one to the next is seen


@pytest.mark.parametrize("name", MADE)
def test_a_made_trace_has_its_length_and_keys_of_the_relation(name: str) -> None:
    """And the number of distinct keys that it names."""
    made = trace(name, length=50_000)
    keys = made.keys()
    assert keys.dtype == np.int64
    assert len(keys) == made.length == 50_000
    assert 0 <= keys.min() <= keys.max() < made.relation
    assert made.distinct == len(np.unique(keys))


@pytest.mark.parametrize("name", MADE)
def test_the_same_seed_gives_the_same_keys_in_pieces_of_any_size(name: str) -> None:
    """Reading on past a block too."""
    made, again = trace(name, length=LONG), trace(name, length=LONG)
    pieces = list(again.chunks(70_001))
    assert {len(piece) for piece in pieces[:-1]} == {70_001}
    assert np.array_equal(made.keys(), np.concatenate(pieces))


@pytest.mark.parametrize("name", [name for name in MADE if name != "loop"])
def test_another_seed_gives_other_keys(name: str) -> None:
    assert not np.array_equal(trace(name, length=1000).keys(), trace(name, length=1000, seed=1).keys())


@pytest.mark.parametrize("skew", [0.0, 0.5, 1.0])
def test_zipf_frequencies_are_those_of_the_law(skew: float) -> None:
    """Each of the frequent keys within five standard errors; uniform at skew 0 by the chi-square statistic."""
    count, distinct = 400_000, 2000
    found = np.sort(np.bincount(trace("zipf", length=count, distinct=distinct, relation=10_000, skew=skew).keys()))[::-1]
    law = 1 / np.arange(1, distinct + 1) ** skew
    law *= count / law.sum()
    assert np.count_nonzero(found) == distinct
    if skew:
        assert np.all(np.abs(found[:20] - law[:20]) < 5 * np.sqrt(law[:20]))
    else:
        square = float(((found[:distinct] - law) ** 2 / law).sum())
        assert abs(square - distinct) < 5 * np.sqrt(2 * distinct)


def test_zipf_scatters_the_frequent_keys() -> None:
    """They are no neighbours: the hundred most frequent are spread over the relation."""
    keys = trace("zipf", length=100_000, distinct=1000, relation=100_000).keys()
    frequent = np.sort(np.argsort(np.bincount(keys, minlength=100_000))[-100:])
    assert frequent[0] < 10_000
    assert frequent[-1] > 90_000
    assert np.diff(frequent).max() < 10_000


def test_a_hot_spot_gets_its_share_of_the_references() -> None:
    keys = trace("hot spot", length=100_000, relation=1000, hot_keys=0.1, hot_references=0.7).keys()
    share = np.sort(np.bincount(keys, minlength=1000))[-100:].sum() / 100_000
    assert share == pytest.approx(0.7, abs=0.01)


def test_of_the_latest_keys_the_newest_is_the_most_frequent() -> None:
    """At each time the age has Zipf's law."""
    length, relation = 200_000, 1000
    newest = np.arange(length) * relation // length
    ages = (newest - trace("latest", length=length, relation=relation).keys()) % relation
    law = 1 / np.arange(1, relation + 1)
    assert np.bincount(ages)[:5] / length == pytest.approx(law[:5] / law.sum(), rel=0.05)


def test_intervals_move_over_parts_of_the_relation_of_their_own() -> None:
    """Forty of them, each uniform on its own hundredth: the thesis's figure 5.4."""
    made = trace("moving interval", length=400_000, relation=100_000)
    for number, keys in enumerate(made.chunks(10_000)):
        assert number * 1000 <= keys.min()
        assert keys.max() < (number + 1) * 1000
        counts = np.bincount(keys - number * 1000, minlength=1000)
        assert abs(float(((counts - 10) ** 2 / 10).sum()) - 1000) < 5 * np.sqrt(2000)
    assert number == 39


def test_a_shifting_zipf_changes_its_frequent_keys_with_each_phase() -> None:
    """The hundred most frequent of one phase are hardly among those of the next."""
    made = trace("shifting zipf", length=100_000, distinct=5000, relation=20_000)
    tops = [set(np.argsort(np.bincount(keys, minlength=20_000))[-100:]) for keys in made.chunks(10_000)]
    assert all(len(one & next_) < 20 for one, next_ in itertools.pairwise(tops))


def test_a_random_walk_makes_steps_of_the_size_that_was_asked_for() -> None:
    """Across the end of a block too."""
    keys, relation = trace("random walk", length=LONG, step=25).keys(), 100_000
    steps = (np.diff(keys) + relation // 2) % relation - relation // 2
    assert steps.std() == pytest.approx(25, rel=0.01)
    assert np.abs(steps[BLOCK - 2 : BLOCK + 2]).max() < 150


def test_an_autoregressive_trace_fits_its_own_model() -> None:
    """Least squares find phi and the deviation again."""
    keys = trace("ar1", length=LONG, phi=0.72, deviation=0.05).keys() - 50_000.0
    phi = float((keys[1:] @ keys[:-1]) / (keys[:-1] @ keys[:-1]))
    assert phi == pytest.approx(0.72, abs=0.01)
    assert keys.std() == pytest.approx(5000, rel=0.02)
    around = keys[BLOCK - 1 : BLOCK + 1]
    assert abs(around[1] - 0.72 * around[0]) < 6 * 5000 * (1 - 0.72**2) ** 0.5


def test_an_autoregressive_trace_is_what_the_recursion_gives() -> None:
    """The passes over the array against a loop."""
    from srj.experiments.traces.synthetic import _filtered  # noqa: PLC0415  what is fast is checked by what is simple

    noise, expected, value = np.random.default_rng(1).normal(size=500), [], 3.0
    for one in noise:
        value = -0.9 * value + one
        expected.append(value)
    assert _filtered(noise, -0.9, 3.0) == pytest.approx(np.array(expected))


def test_a_trend_rises_from_one_end_to_the_other() -> None:
    keys = trace("trend", length=100_000, relation=1000, noise=0.0).keys()
    assert np.abs(keys - np.arange(100_000) / 100).max() <= 1


def test_half_of_nexmarks_bids_are_for_the_hot_auction() -> None:
    """One in two by default, and the rest are for one of the latest hundred auctions or ten to come."""
    length, relation = 460_000, 10**9
    keys = trace("nexmark q13", length=length, relation=relation).keys() - 1000
    last = np.arange(length) // 46 * 3 + 2
    hot = keys == last // 100 * 100
    assert hot.mean() == pytest.approx(0.5 + 0.5 / 111, abs=0.005)
    others = (last - keys)[~hot]
    assert others.min() >= -10
    assert others.max() <= 100


@pytest.mark.parametrize(
    ("name", "length", "relation"),
    [
        ("new york flights", 328_521, 4037),
        ("new york weather", 328_521, 19_434),
        ("movielens", 100_004, 9066),
        ("melbourne", 3650, 434),
    ],
)
def test_a_real_trace_is_read_from_its_package(name: str, length: int, relation: int) -> None:
    real_trace = trace(name)
    assert (real_trace.length, real_trace.relation) == (length, relation)
    assert real_trace.keys().max() == relation - 1
    assert trace(name, length=1000).keys().tolist() == real_trace.keys()[:1000].tolist()


def test_melbournes_temperatures_follow_the_fit_that_others_found() -> None:
    """5.59 + 0.72 X in degrees."""
    degrees = trace("melbourne").keys() / 10
    slope, offset = np.polyfit(degrees[:-1], degrees[1:], 1)
    assert slope == pytest.approx(0.72, abs=0.01)
    assert offset == pytest.approx(5.59, abs=0.1)


def test_us_flights_come_by_date(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the file that was kept, of origins or of routes."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "srj").mkdir()
    flights = {
        "date": pa.array([3, 1, 2], pa.timestamp("us")),
        "origin": ["LAX", "ATL", "LAX"],
        "destination": ["SEA", "LAX", "ATL"],
    }
    pq.write_table(pa.table(flights), tmp_path / "srj" / "us-flights-3m.parquet")
    assert trace("us flights", key="origin").keys().tolist() == [0, 1, 1]
    assert trace("us flights", key="route").keys().tolist() == [0, 1, 2]


def test_without_npm_the_us_flights_say_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RequestError, match=r"expected npm to fetch .*; install npm"):
        real.us_flights()
    assert list((tmp_path / "srj").iterdir()) == []


def test_tpch_asks_for_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundredth of scale factor 1, made once: 2,000 parts, and each line asks for one of them."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    lines = trace("tpch", factor=0.01)
    keys = lines.keys()
    assert len(keys) == lines.length == 60_175
    assert (keys.min(), keys.max(), lines.relation) == (0, 1999, 2000)
    assert trace("tpch", factor=0.01, length=100).keys().tolist() == keys[:100].tolist()


@pytest.mark.parametrize(
    ("keys", "codes"),
    [
        (["9223372036854775808", "9223372036854775809"], [0, 1]),  # beyond 64 bits, where they would be rounded
        (["00501", "501", "00501"], [0, 1, 0]),
        (["u1", "", "u2", ""], [0, 1]),
    ],
)
def test_keys_of_a_csv_file_are_told_apart_as_they_are_written(keys: list[str], codes: list[int], tmp_path: Path) -> None:
    """Neither rounded nor without their zeros; an empty field is no key."""
    path = tmp_path / "own.csv"
    path.write_text("id,x\n" + "".join(f"{key},1\n" for key in keys))
    assert trace("file", path=str(path), column="id").keys().tolist() == codes


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_a_column_of_ones_own_file_is_a_trace(kind: str, tmp_path: Path) -> None:
    """Of any type; rows without a value are left out."""
    path = tmp_path / f"own.{kind}"
    table = pa.table({"id": ["b", "a", None, "b"], "n": [1, 2, 3, 4]})
    pq.write_table(table, path) if kind == "parquet" else csv.write_csv(table, path)
    own = trace("file", path=path, column="n")
    assert (own.keys().tolist(), own.relation) == ([0, 1, 2, 3], 4)
    if kind == "parquet":  # a CSV's empty text is a text
        assert trace("file", path=path, column="id").keys().tolist() == [0, 1, 0]
    with pytest.raises(RequestError, match=r"expected a column of .*, got 'idd'; did you mean 'id'"):
        trace("file", path=path, column="idd")


@pytest.mark.parametrize(
    ("name", "parameters", "message"),
    [
        ("zip", {}, "expected a trace, got 'zip'; did you mean 'zipf'"),
        ("zipf", {"skw": 1.0}, "expected a parameter of the trace 'zipf', got 'skw'; did you mean 'skew'"),
        ("zipf", {"distinct": 10, "relation": 5}, "from 1 to 5 keys of a relation of 5 rows, got 1,000,000 and 10"),
        ("file", {"path": "x.csv"}, "expected column for the trace 'file', got none"),
        ("file", {"path": "x.txt", "column": "c"}, "expected a file that ends with .parquet or .csv, got 'x.txt'"),
        ("file", {"path": "no.csv", "column": "c"}, "expected a file to read keys from, got 'no.csv', which can't be read"),
        ("ar1", {"phi": 1.0}, "expected phi between -1 and 1, got 1.0"),
        ("tpch", {"factor": 0}, "expected a scale factor above 0, got 0"),
    ],
)
def test_a_mistake_is_one_sentence(name: str, parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        trace(name, **parameters)


def test_every_trace_says_what_it_is() -> None:
    assert len(names()) == 17
    assert all(describe(name).endswith(".") for name in names())
