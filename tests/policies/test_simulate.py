"""`simulate` and the names of policies: what they take, and what they say to what they can't take."""

from __future__ import annotations

from typing import Any

import cachetools
import numpy as np
import pytest

from srj.cache_policies import FIFO, LRU, Policy, by_name, make, names, register, simulate
from srj.errors import RequestError
from tests.policies.sequences import sequence, zipf

ALL = ["lru", "fifo", "lfu", "random", "clock", "sieve", "s3fifo", "twoq", "arc", "wtinylfu", "prob", "life", "heeb", "opt"]


def test_every_policy_that_was_asked_for_has_its_name() -> None:
    """And the policy found has that name too."""
    assert set(ALL) <= set(names())
    assert [by_name(name).name for name in ALL] == ALL


@pytest.mark.parametrize("name", ALL)
def test_no_policy_misses_less_than_opt_or_than_the_distinct_keys(name: str) -> None:
    """And none more than there are references."""
    keys = zipf(4000, 500, 0.8, 5)
    found = simulate(keys, 60, name)
    assert found.hits + found.misses == 4000
    assert np.unique(keys).size <= simulate(keys, 60, "opt").misses <= found.misses < 4000
    assert found.miss_ratio == found.misses / 4000
    assert simulate(keys, 500, name).misses == np.unique(keys).size


@pytest.mark.parametrize("vectorised", [False, True])
@pytest.mark.parametrize("dtype", ["i1", "u1", "i4", "u8", "i8", ">i4", "U", object])
def test_keys_may_be_whole_numbers_of_any_type_or_strings(dtype: Any, vectorised: bool) -> None:
    """All give the same."""
    numbers = zipf(3000, 100, 0.9, 2)
    keys = numbers.astype("U").astype(object) if dtype is object else numbers.astype(dtype)
    assert simulate(keys, 20, "lru", vectorised) == simulate(numbers, 20, "lru", vectorised)


def test_a_policy_may_be_given_itself_and_no_keys_are_no_misses() -> None:
    """Nothing to divide by is a ratio of 0."""
    keys = sequence("zipf")[:2000]
    assert simulate(keys, 100, LRU) == simulate(keys, 100, "lru")
    for vectorised in (False, True):
        assert simulate(keys[:0], 10, "lru", vectorised).miss_ratio == 0


@pytest.mark.parametrize("capacity", [0, -1, 1.5, "10", None, True])
def test_a_capacity_is_a_whole_number_from_one_on(capacity: Any) -> None:
    """NumPy's whole numbers too."""
    keys = np.array([1, 2, 1])
    with pytest.raises(RequestError, match="capacity as a whole number of at least 1"):
        simulate(keys, capacity, "lru")
    assert simulate(keys, np.int32(2), "lru").hits == 1  # type: ignore[arg-type]


@pytest.mark.parametrize("keys", [np.zeros(3), np.zeros((2, 2), int), np.array([1, None]), np.array(["2020"], "M8[Y]")])
def test_other_keys_are_refused(keys: Any) -> None:
    """Before anything is simulated."""
    with pytest.raises(RequestError, match="one-dimensional array of whole numbers or strings"):
        simulate(keys, 2, "lru")


def test_what_a_policy_can_not_do_is_said() -> None:
    """An unknown name with the nearest one, a policy without a rule, a parameter that it does not take."""
    keys = np.array([1, 2, 1])
    with pytest.raises(RequestError, match="did you mean 'sieve'"):
        simulate(keys, 2, "seive")
    with pytest.raises(RequestError, match="'arc', which has only its exact form"):
        simulate(keys, 2, "arc", vectorised=True)
    with pytest.raises(RequestError, match="no parameters for a rule"):
        simulate(keys, 2, "random", vectorised=True, seed=3)
    for name, parameters in (("lru", {"alpha": 3}), ("opt", {})):
        with pytest.raises(RequestError, match=f"parameters that the policy '{name}' takes"):
            make(name, 2, **parameters)


def test_a_policy_of_ones_own_is_found_by_its_name_and_no_other_may_take_it() -> None:
    """Registered twice it is still the same."""
    own = Policy("own-of-the-tests", exact=cachetools.FIFOCache, rule=FIFO.rule)
    assert register(own) is register(own) is by_name("own-of-the-tests")
    again = register(Policy("own-of-the-tests", exact=cachetools.FIFOCache, rule=type(FIFO.rule)()))
    assert by_name("own-of-the-tests") is again is not own, "a notebook's cell that is run twice"
    keys = sequence("zipf")[:3000]
    assert simulate(keys, 50, "own-of-the-tests") == simulate(keys, 50, "fifo")
    with pytest.raises(RequestError, match="a name of its own"):
        register(Policy("lru", exact=cachetools.FIFOCache))
