"""Mistakes in a policy of one's own, in a capacity or in a parameter: a `RequestError` in one line, before anything is served."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import cachetools
import numpy as np
import pyarrow as pa
import pytest

from srj import Cache, RequestError
from srj.cache_policies import Policy, by_name, make, names, register, simulate
from srj.cache_policies.models import Autoregressive, Independent
from srj.lookup.operator import Operator
from srj.lookup.simulated import BoundedCache, store
from tests.scripted import Scripted, scripted_engine

if TYPE_CHECKING:
    from collections.abc import Callable

KEYS = np.array([1, 2, 3, 1, 2, 3])
U4 = np.dtype(np.uint32)


class Plain:
    """A rule that is right: all entries may leave."""

    fields: Any = {"seen": U4}  # noqa: RUF012  as users write it

    def on_hit(self, fields: Any, ways: Any, ticks: Any) -> None:
        """Nothing to note."""

    def on_insert(self, fields: Any, ways: Any, ticks: Any) -> None:
        """The tick."""
        fields["seen"][ways] = ticks

    def victim(self, fields: Any, tick: int) -> Any:  # noqa: ARG002
        """All alike."""
        return np.zeros(fields["seen"].shape, np.uint32)


def policy_with(**changed: Any) -> Policy:
    """A policy whose rule is right but for these."""
    return Policy("of-mine", exact=cachetools.LRUCache, rule=type("Changed", (Plain,), changed)())


def refused_by(act: Callable[[], Any], match: str) -> None:
    """It is, in one line."""
    with pytest.raises(RequestError, match=match) as refused:
        act()
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "fields",
    [
        {"seen": U4, "x": np.dtype(object)}, {"seen": U4, "x": np.dtype((np.uint8, 4))}, {"seen": U4, "x": np.dtype("V4")},
        {"seen": U4, "x": np.dtype("U4")}, {"seen": U4, "x": np.dtype([("a", "O")])}, {"seen": U4, "x": np.dtype(np.complex128)},
        {"seen": U4, "x": np.dtype("M8[s]")}, {"seen": "u4"}, {"seen": np.uint32}, {1: U4}, ["seen"], {}, None, "seen",
    ],
)  # fmt: skip
def test_fields_that_are_not_plain_numbers_are_refused_on_the_driver(fields: Any) -> None:
    """An object is a pointer, which kills another process that follows it."""
    for act in (
        lambda: Cache(policy=policy_with(fields=fields)),
        lambda: simulate(KEYS, 2, policy_with(fields=fields), vectorised=True),
    ):
        refused_by(act, "fields of the policy 'of-mine'")


@pytest.mark.parametrize("dtype", ["?", "i1", "u2", "f4", "i8", "u8", ">u4", "f8"])
def test_fields_may_be_numbers_of_any_type(dtype: str) -> None:
    """Up to 8 bytes, and booleans."""
    policy = policy_with(fields={"seen": U4, "x": np.dtype(dtype)})
    assert Cache(policy=policy).chosen is policy
    assert simulate(KEYS, 3, policy, vectorised=True, batch_size=3).hits == 3


@pytest.mark.parametrize("missing", ["on_hit", "on_insert", "victim"])
def test_a_rule_lacks_nothing(missing: str) -> None:
    """A step that can't be called is none; nor is a class a rule."""
    for policy in (policy_with(**{missing: None}), Policy("of-mine", exact=cachetools.LRUCache, rule=Plain)):  # type: ignore[arg-type]
        refused_by(lambda policy=policy: Cache(policy=policy), "of the policy 'of-mine'")  # type: ignore[misc]


WRONG = {
    "a negative number": lambda shape: np.full(shape, -1),
    "one that needs more bits": lambda shape: np.full(shape, 2**32),
    "the largest": lambda shape: np.full(shape, 2**64 - 1, np.uint64),
    "NaN": lambda shape: np.full(shape, np.nan),
    "a fraction": lambda shape: np.full(shape, 0.5),
    "a scalar": lambda _shape: 5,
    "a NumPy scalar": lambda _shape: np.uint32(5),
    "None": lambda _shape: None,
    "objects": lambda shape: np.full(shape, None),
    "one number": lambda _shape: np.zeros(3, np.uint32),
    "another shape": lambda shape: np.zeros((*shape, 1), np.uint32),
    "a list": lambda shape: np.zeros(shape, np.uint32).tolist(),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_victim_that_is_no_number_is_refused_on_the_driver(wrong: str) -> None:
    """The rule is tried on unused entries."""
    policy = policy_with(victim=lambda _self, fields, _tick: WRONG[wrong](fields["seen"].shape))
    refused_by(lambda: Cache(policy=policy), "expected victim of the policy 'of-mine' to return an array")
    refused_by(lambda: simulate(KEYS, 2, policy, vectorised=True), "expected victim of the policy 'of-mine' to return an array")


@pytest.mark.parametrize("wrong", WRONG)
def test_a_victim_that_is_no_number_only_later_is_said_by_its_name(wrong: str) -> None:
    """Once entries were used: where an insert has to choose, and where it is asked about any number of ways."""

    def victim(self: Any, fields: Any, tick: int) -> Any:
        return WRONG[wrong](fields["seen"].shape) if fields["seen"].any() else Plain.victim(self, fields, tick)

    cache = BoundedCache(16, policy_with(victim=victim))
    store(cache, np.arange(10))
    message = "expected victim of the policy 'of-mine' to return an array"
    refused_by(lambda: store(cache, np.arange(10, 40)), message)
    refused_by(lambda: cache._entries.rule.victim({"seen": np.ones(7, np.uint32)}, 3), message)


class OwnError(Exception):
    """What a user's code may raise."""


@pytest.mark.parametrize("step", ["on_hit", "on_insert", "victim"])
def test_what_a_rule_raises_is_said_by_its_policy_s_name(step: str) -> None:
    """Only once entries were used, so in a worker: one line there, with the original as its cause."""

    def fail(self: Any, fields: Any, *rest: Any) -> Any:
        if fields["seen"].any():
            raise OwnError("two\nlines")
        return getattr(Plain, step)(self, fields, *rest)

    engine = scripted_engine(
        Scripted({number: [f"value {number}"] for number in range(60)}),
        cache=Cache(size="16 rows", policy=policy_with(**{step: fail})),
        unique=True,
    )

    def join() -> None:
        # What fails after the rows have left is told to whoever comes next.
        for numbers in (range(10), range(10), range(10, 60), range(10)):
            list(Operator(engine).in_order(iter([(pa.array(numbers, pa.int64()),)])))

    with pytest.raises(RequestError) as refused:
        join()
    assert str(refused.value) == (
        f"expected {step} of the policy 'of-mine' to work on any ways, got OwnError: two lines; correct it, see "
        "srj.cache_policies.Rule"
    )
    assert isinstance(refused.value.__cause__, OwnError)
    engine.close()


def test_a_rule_that_never_works_is_refused_on_the_driver() -> None:
    """Its victim is tried there."""
    policy = policy_with(victim=lambda _self, fields, _tick: fields["unseen"])
    refused_by(lambda: Cache(policy=policy), "expected victim of the policy 'of-mine' to work on any ways, got KeyError: 'unseen'")


@pytest.mark.parametrize("vectorised", [False, True])
def test_no_keys_are_neither_hits_nor_misses(vectorised: bool) -> None:
    """NumPy takes an empty list for one of floating point."""
    for keys in ([], (), np.array([]), np.array([], object)):
        found = simulate(keys, 3, "lru", vectorised)  # type: ignore[arg-type]
        assert (found.hits, found.misses, found.miss_ratio) == (0, 0, 0.0)
    refused_by(lambda: simulate([[]], 3, "lru", vectorised), "expected a one-dimensional array")  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["s3fifo", "twoq", "arc", "wtinylfu", "prob", "life", "heeb", "opt"])
def test_only_a_rule_can_be_vectorised(name: str) -> None:
    """What has none is told what to leave out."""
    match = f"expected a policy with a rule for vectorised=True, got '{name}', which has only its exact form; leave vectorised out$"
    refused_by(lambda: simulate(KEYS, 2, name, vectorised=True), match)
    assert simulate(KEYS, 3, name).misses >= 3


@pytest.mark.parametrize("dtype", [bool, "u1", "u2", "u4", "u8", "i1", "i4", "i8", ">u4"])
def test_a_victim_may_be_any_whole_numbers_of_32_bits(dtype: Any) -> None:
    """The highest leaves: here all but one way of each set are alike."""
    most = 1 if dtype is bool else min(np.iinfo(dtype).max, 2**32 - 1)

    def victim(_self: Any, fields: Any, _tick: int) -> Any:
        order = np.zeros(fields["seen"].shape, dtype)
        order[..., 5] = most
        return order

    cache = BoundedCache(16, policy_with(victim=victim))
    found = cache._entries.rule.victim({"seen": np.zeros((4, 2, 8), np.uint32)}, 1)
    assert found.dtype == np.uint32
    assert (found.argmax(axis=-1) == 5).all()
    assert found.max() == most


@pytest.mark.parametrize("capacity", [-1, math.nan, -math.inf, np.float32("nan"), "x", None, True, [2], 1j])
@pytest.mark.parametrize("name", [name for name in names() if name != "opt"])
def test_make_takes_a_capacity_from_0_on(name: str, capacity: Any) -> None:
    """NaN above all, with which nothing would ever leave."""
    refused_by(lambda: make(name, capacity), "expected the capacity as a number of at least 0")


@pytest.mark.parametrize("name", ["arc", "heeb", "twoq", "s3fifo", "wtinylfu"])
def test_a_policy_that_needs_a_size_says_so_for_an_infinite_one(name: str) -> None:
    """The others are then without a bound."""
    refused_by(lambda: make(name, math.inf), f"a capacity for which the policy '{name}' finds memory, got inf")
    cache = make("life", math.inf)
    cache.update(dict.fromkeys(range(100), 0))
    assert len(cache) == 100


@pytest.mark.parametrize("policy", [None, 5, ["lru"], b"lru", "", LookupError])
def test_what_is_no_name_is_refused_everywhere(policy: Any) -> None:
    """By the same sentence."""
    for act in (lambda: make(policy, 2), lambda: by_name(policy), lambda: simulate(KEYS, 2, policy)):
        refused_by(act, "expected the name of a policy")
    refused_by(lambda: register(policy), "expected a Policy, got")


@pytest.mark.parametrize("name", [None, "", "  ", 5, ["a"], b"a"])
def test_a_policy_has_a_name(name: Any) -> None:
    """Which is a text."""
    refused_by(lambda: Policy(name, exact=cachetools.LRUCache), "expected the name of a policy as a text")


def test_a_policy_has_an_exact_form_that_makes_a_cache() -> None:
    """What it makes is seen only when it is asked."""
    for exact in (None, 5, "lru"):
        refused_by(lambda exact=exact: Policy("p", exact=exact), "expected exact of the policy 'p'")  # type: ignore[misc]
    refused_by(lambda: Policy("p", exact=cachetools.LRUCache, offline="no"), "expected offline")  # type: ignore[arg-type]
    refused_by(lambda: simulate(KEYS, 2, Policy("p", exact=lambda _size: 5)), "of the policy 'p' to make a cachetools cache")  # type: ignore[arg-type,return-value]


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("lru", {"foo": 1}), ("random", {"seed": []}), ("opt", {"future": 5}), ("life", {"lifetime": math.nan}),
        ("life", {"lifetime": "x"}), ("heeb", {"alpha": "x"}), ("heeb", {"alpha": math.nan}), ("heeb", {"alpha": 0}),
        ("heeb", {"lifetime": math.nan}), ("heeb", {"lifetime": "x"}), ("heeb", {"model": 5}),
    ],
)  # fmt: skip
def test_a_wrong_parameter_is_said(name: str, parameters: Any) -> None:
    """To `simulate` as to `make`."""
    refused_by(lambda: make(name, 2, **parameters), "^expected ")
    refused_by(lambda: simulate(KEYS, 2, name, **parameters), "^expected ")


def test_a_model_takes_numbers() -> None:
    """NaN is none."""
    for weight in (math.nan, 1, -0.1, "x", None):
        refused_by(lambda weight=weight: Independent(weight), "expected the weight of a reference")  # type: ignore[misc]
    assert Autoregressive(0, 0.9, np.float64(2), np.int64(-2), np.int32(2)).transitions.shape == (5, 5)  # type: ignore[arg-type]
    right: dict[str, Any] = {"constant": 0, "phi": 0.9, "sigma": 2, "low": -2, "high": 2}
    for name in right:
        for value in (math.nan, math.inf, "x", None):
            refused_by(lambda given=right | {name: value}: Autoregressive(**given), f"expected {name}")  # type: ignore[misc]


def test_a_capacity_beyond_all_memory_is_said() -> None:
    """In both forms; the exact ones that set nothing aside just never fill."""
    refused_by(lambda: simulate(KEYS, 10**30, "lru", vectorised=True), "a capacity that the memory holds, got 10000")
    refused_by(lambda: simulate(KEYS, 10**30, "wtinylfu"), "the policy 'wtinylfu' finds memory, got 10000")
    refused_by(lambda: simulate(KEYS, -(10**5000), "lru"), "capacity as a whole number of at least 1, got a very large int")
    assert simulate(KEYS, 10**30, "lru").hits == 3
    refused_by(lambda: simulate([[1], [1, 2]], 2, "lru"), "expected a one-dimensional array")  # type: ignore[arg-type]
