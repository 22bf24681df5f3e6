"""A policy as a user asks for it: by name, as an object, in a file; and what reaches the workers."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

import cachetools
import numpy as np
import pyarrow as pa
import pytest
from pyspark import cloudpickle

from srj import RequestError
from srj.cache_policies import FIFO, LRU, Policy, by_name, make, names, register
from srj.lookup.operator import Operator
from srj.lookup.reference_cache import ReferenceCache
from srj.options import Cache, parse_options
from tests.cache_values import Model
from tests.scripted import Scripted, scripted_engine

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

WITH_RULE = ["lru", "fifo", "lfu", "random", "clock", "sieve"]
EXACT_ONLY = ["s3fifo", "twoq", "arc", "wtinylfu", "prob", "life", "heeb"]


def newest_leaves(name: str) -> Policy:
    """A policy whose rule is a class of this function's, so that no import finds it."""

    class Newest(type(FIFO.rule)):  # type: ignore[misc]
        def victim(self, fields: Any, tick: int) -> Any:
            return ~super().victim(fields, tick)

    return Policy(name, exact=cachetools.FIFOCache, rule=Newest())


def asked_by(cache: Cache) -> int:
    """Keys that the database is asked for, in five rounds over 40 keys in batches of ten, with this cache."""
    database = Scripted({key: [f"value {key}"] for key in range(40)})
    engine = scripted_engine(database, cache=cache, unique=True)
    for start in list(range(0, 40, 10)) * 5:
        keys = np.arange(start, start + 10)
        for joined in Operator(engine).in_order(iter([(pa.array(keys),)])):
            assert joined.inner()[1]["value"].to_pylist() == [f"value {key}" for key in keys]
    engine.close()
    return sum(map(len, database.asked))


@pytest.mark.parametrize("policy", WITH_RULE)
def test_every_policy_with_a_rule_is_taken_by_its_name_and_gives_right_answers(policy: str) -> None:
    """With a cache of 16 rows for 40 keys, whose policy has to choose all the time."""
    assert by_name(policy).rule is not None
    assert 40 <= asked_by(Cache(size="16 rows", policy=policy)) <= 200


def test_the_policy_decides_what_is_asked_again() -> None:
    """In rounds over more keys than fit, the oldest is always needed next: who keeps the old ones hits."""
    assert asked_by(Cache(size="16 rows", policy="lru")) == 200
    assert asked_by(Cache(size="16 rows", policy=newest_leaves("of a test"))) <= 180


@pytest.mark.parametrize("policy", EXACT_ONLY)
def test_a_name_without_a_rule_is_refused_and_the_advice_works(policy: str) -> None:
    """The exact form is a cachetools cache, so a factory of it will do."""
    with pytest.raises(RequestError, match=f"'{policy}', which has only its exact form; .* cache=lambda: .*make") as refused:
        Cache(policy=policy)
    assert "\n" not in str(refused.value)
    factory: Callable[[], Any] = lambda: make(policy, 20)  # noqa: E731
    assert parse_options({"cache": factory}).lookup.cache is factory
    names_ = pa.schema({"name": pa.string()})
    cache, model = ReferenceCache(factory, names_, ttl=None, missing_ttl=None), Model((pa.int64(),), names_, None, None)
    for version in range(6):
        model.insert(cache, list(range(version, version + 15)), version, lambda number: number % 3, float(version))
        model.check(cache, list(range(30)), 10.0)
    assert cache.stats().entries == 20


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        ("opt", "'opt', which has only its exact form; it has to be told the future"),
        ("seive", r"a policy \(lru, fifo, lfu, random, clock, sieve.*\), got 'seive'; did you mean 'sieve'\?$"),
        ("lruu", r"a policy \(lru, fifo, lfu, random, clock, sieve.*\), got 'lruu'; did you mean 'lru'\?$"),
        ("belady", r"a policy \(lru, fifo, lfu, random, clock, sieve.*\), got 'belady'; choose one of these$"),
        (7, "expected policy as a name such as 'lru' or a Policy, got 7"),
        (None, "got None"),
        (Policy("own", exact=cachetools.LRUCache), "'own', which has only its exact form; .* a function that makes a cachetools"),
        (Policy("own", exact=cachetools.LRUCache, rule="fifo"), "'own' with fields, on_hit, on_insert and victim, got 'fifo'"),  # type: ignore[arg-type]
    ],
)
def test_what_can_not_be_is_said_on_the_driver_in_one_sentence(policy: Any, message: str, tmp_path: Path) -> None:
    """Before anything is asked; in a file too."""
    with pytest.raises(RequestError, match=message) as refused:
        Cache(policy=policy)
    assert "\n" not in str(refused.value)
    if isinstance(policy, str):
        file = tmp_path / "srj.toml"
        file.write_text(f'[cache]\npolicy = "{policy}"\n')
        with pytest.raises(RequestError, match=message):
            parse_options({"config": file})


def test_only_policies_that_a_cache_can_follow_are_named_to_it() -> None:
    """The others are to be had by another way, and are named where the exact forms are asked for."""
    for policy in ("ark", "lifo"):
        with pytest.raises(RequestError) as refused:
            Cache(policy=policy)
        assert not {*EXACT_ONLY, "opt"} & set(str(refused.value).replace("(", " ").replace(")", " ").replace(",", " ").split())
    with pytest.raises(RequestError, match=r"twoq, arc, .*, got 'ark'; did you mean 'arc'\?$"):
        make("ark", 10)


def test_a_dictionary_is_no_cache() -> None:
    """A table of a file becomes one; in a call it is written as what it is."""
    match = r"expected cache as a size, a Cache .*, got \{'size': '1 MB'\}; write cache=srj.Cache\(size='128 MB', …\)$"
    with pytest.raises(RequestError, match=match):
        parse_options({"cache": {"size": "1 MB"}})  # type: ignore[typeddict-item]


def test_a_file_names_the_policy(tmp_path: Path) -> None:
    """And nothing that is no option: ``chosen`` is the cache's own."""
    file = tmp_path / "srj.toml"
    file.write_text('[cache]\nsize = "1000 rows"\npolicy = "sieve"\n')
    cache = parse_options({"config": file}).lookup.cache
    assert isinstance(cache, Cache)
    assert cache == Cache(size="1000 rows", policy="sieve")
    assert cache.chosen is by_name("sieve")
    file.write_text('[cache]\nchosen = "sieve"\n')
    with pytest.raises(RequestError, match=r"a known name in \[cache\]"):
        parse_options({"config": file})


def test_a_registered_policy_travels_as_an_object() -> None:
    """A worker that has never heard of its name unpickles the rule itself."""
    own = register(newest_leaves("travels"))
    assert "travels" in names()
    cache = pickle.loads(cloudpickle.dumps(Cache(size="16 rows", policy="travels")))  # noqa: S301  the line's own
    assert cache.chosen.name == "travels"
    assert cache.chosen is not own
    assert asked_by(cache) <= 180


def test_policies_of_one_name_share_no_cache() -> None:
    """Two programs may call different rules alike; the fingerprint holds the rule."""
    engine = scripted_engine(Scripted({}))
    policies = (LRU, FIFO, newest_leaves("same"), newest_leaves("same"))
    prints = [[engine.spec.fingerprint(cloudpickle.dumps(policy)) for policy in policies] for _ in range(2)]
    assert len(set(prints[0])) == 4
    assert prints[0] == prints[1], "a query that is started again finds its cache"
    engine.close()
