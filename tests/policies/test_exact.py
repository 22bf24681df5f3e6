"""Every exact policy keeps the contract, and holds what its naive form holds."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from srj.cache_policies import by_name, make
from tests.policies.contract import Contract, make_knowing
from tests.policies.naive import NAIVE


@pytest.mark.parametrize("name", NAIVE)
@settings(max_examples=50, deadline=None, derandomize=True, database=None)
@given(data=st.data())
def test_it_holds_what_a_naive_form_holds(name: str, data: st.DataObject) -> None:
    """After each of any references (u), removals (d) and evictions (p); OPT is told the references, so it gets those only."""
    capacity, most = data.draw(st.integers(1, 25)), data.draw(st.sampled_from([3, 12, 40]))
    letters = "u" if by_name(name).offline else "uuuuuuuuudp"
    acts = data.draw(st.lists(st.tuples(st.sampled_from(letters), st.integers(0, most)), min_size=most, max_size=120))
    future = [key for _, key in acts]
    cache, model = make_knowing(name, capacity, future), NAIVE[name](capacity, future)
    for act, key in acts:
        if act == "d":
            cache.pop(key, None) if key not in cache else cache.__delitem__(key)
            model.delete(key)
        elif act == "u":
            if key in cache:
                cache[key]
            else:
                cache[key] = None
            model.use(key)
        elif len(cache):
            assert cache.popitem()[0] == model.pop()
        assert sorted(cache) == sorted(model.held)


class TestLru(Contract):
    """LRU."""

    name = "lru"


class TestFifo(Contract):
    """FIFO."""

    name = "fifo"


class TestLfu(Contract):
    """LFU."""

    name = "lfu"


class TestRandom(Contract):
    """RANDOM."""

    name = "random"

    def test_every_entry_leaves_about_as_often_as_the_others(self) -> None:
        """Of 5,000 evictions each of five takes its fifth."""
        cache = make("random", 5)
        evicted = [0] * 5
        for key in range(5):
            cache[key] = 0
        for _ in range(5000):
            key, _ = cache.popitem()
            evicted[key] += 1
            cache[key] = 0
        assert all(850 < count < 1150 for count in evicted)


class TestClock(Contract):
    """CLOCK."""

    name = "clock"


class TestSieve(Contract):
    """SIEVE."""

    name = "sieve"


class TestS3Fifo(Contract):
    """S3-FIFO."""

    name = "s3fifo"


class TestTwoQ(Contract):
    """2Q."""

    name = "twoq"


class TestArc(Contract):
    """ARC."""

    name = "arc"


class TestWTinyLfu(Contract):
    """W-TinyLFU."""

    name = "wtinylfu"


class TestProb(Contract):
    """PROB."""

    name = "prob"


class TestLife(Contract):
    """LIFE."""

    name = "life"


class TestHeeb(Contract):
    """HEEB."""

    name = "heeb"


class TestOpt(Contract):
    """OPT."""

    name = "opt"
