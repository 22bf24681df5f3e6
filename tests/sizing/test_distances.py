"""Exact distances, in both forms, are those of Mattson's list, however the sequence is cut into batches."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from srj.errors import RequestError
from srj.sizing import StackDistances, hash_keys, reuse_distances
from tests.sizing.mattson import mattson
from tests.sizing.traces import zipf

SEQUENCES = st.integers(1, 60).flatmap(lambda most: st.lists(st.integers(-most, most), max_size=250))
FORMS = pytest.mark.parametrize("compiled", [True, False])


@FORMS
@settings(max_examples=100, deadline=None, derandomize=True, database=None)
@given(keys=SEQUENCES, width=st.sampled_from(["i1", "i4", "i8", "U4"]))
def test_distances_are_those_of_the_list(compiled: bool, keys: list[int], width: str) -> None:
    array = np.array(keys, np.int64).astype(width)
    assert reuse_distances(array, compiled=compiled).tolist() == mattson(keys)


@FORMS
@settings(max_examples=100, deadline=None, derandomize=True, database=None)
@given(keys=SEQUENCES, cuts=st.lists(st.integers(0, 250), max_size=12))
def test_batches_change_nothing(compiled: bool, keys: list[int], cuts: list[int]) -> None:
    stack, found = StackDistances(compiled=compiled), []
    for part in np.split(hash_keys(np.array(keys, np.int64)), sorted(min(cut, len(keys)) for cut in cuts)):
        found += stack.add(part).tolist()
    assert found == mattson(keys)
    assert len(stack) == len(set(keys))


def test_both_forms_agree_where_positions_are_renumbered_and_tables_grow() -> None:
    """Far more keys than a new tree has positions, and more than 16 bits can number."""
    keys = zipf(300_000, 150_000, 0.7, 1)
    expected = reuse_distances(keys, compiled=True)
    assert np.array_equal(reuse_distances(keys, compiled=False), expected)
    for compiled in (True, False):
        stack = StackDistances(compiled=compiled)
        assert np.array_equal(np.concatenate([stack.add(part) for part in np.array_split(hash_keys(keys), 30)]), expected)
    assert expected[:20_000].tolist() == mattson(keys[:20_000].tolist())


@FORMS
def test_forgotten_keys_do_not_count(compiled: bool) -> None:
    keys = hash_keys(zipf(3_000, 500, 0.8, 2))
    stack, threshold = StackDistances(compiled=compiled), 1 << 62
    stack.add(keys[:2_000])
    stack.forget_from(threshold)
    kept = keys[keys < np.uint64(threshold)]
    found = stack.add(keys[2_000:][keys[2_000:] < np.uint64(threshold)])
    assert found.tolist() == mattson(kept.tolist())[-found.size :]


@pytest.mark.parametrize("keys", [np.zeros((2, 2), np.int64), np.array([1.5]), np.array(["a", None], object)])
def test_other_keys_are_refused(keys: np.ndarray) -> None:
    with pytest.raises(RequestError, match=r"expected .* got"):
        reuse_distances(keys)


def test_a_number_has_one_hash_whatever_its_width_and_batch() -> None:
    numbers = np.arange(100)
    assert np.array_equal(hash_keys(numbers), hash_keys(numbers.astype(np.uint8)))
    texts = numbers.astype(str)
    assert np.array_equal(hash_keys(texts)[50:], hash_keys(np.append(texts[50:], "a much longer one"))[:-1])


def test_a_long_text_takes_no_more_memory_of_the_others() -> None:
    """All of NumPy's texts are as long as the longest: 20,000 of 10 MB would be 800 GB. Its hash is that of any batch."""
    short = [f"page/{number}" for number in range(20_000)]
    long = ["x" * 10_000_000, "é" * 65, "y" * 65]
    together = hash_keys(np.array(long + short, object))
    assert np.unique(together).size == 20_003
    assert together[3:].tolist() == hash_keys(np.array(short)).tolist()
    assert together[1:3].tolist() == hash_keys(np.array(long[1:])).tolist()
