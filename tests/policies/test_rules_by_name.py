"""Each rule follows the policy whose name it bears: with one key a batch, and 16 entries that are candidates of every key."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from srj.cache_policies import by_name, simulate
from srj.lookup.keys import Keys
from srj.lookup.simulated import BoundedCache
from tests.policies.sequences import sequence, zipf

if TYPE_CHECKING:
    from collections.abc import Sequence

CAPACITY, SET = 16, 8
NAMES = ["lru", "fifo", "lfu", "clock", "sieve"]
SEQUENCES = ["zipf", "loop", "flights"]


@functools.cache
def keys_of(name: str) -> np.ndarray:
    """So few keys that all five policies hit often; a loop with every third reference out of its turn."""
    if name == "zipf":
        return zipf(900, 60, 0.9, 7)
    if name == "loop":
        keys = np.tile(np.arange(20), 45)
        keys[::3] = zipf(300, 40, 1.1, 8)
        return keys
    return sequence(name)[:900] % 50


@functools.cache
def misses(sequence_name: str, policy: str, *, vectorised: bool) -> int:
    """Of the rule, key by key, or of the exact form."""
    return simulate(keys_of(sequence_name), CAPACITY, policy, vectorised, **({"batch_size": 1} if vectorised else {})).misses


@pytest.mark.parametrize("policy", ["lru", "fifo", "lfu"])
@pytest.mark.parametrize("name", SEQUENCES)
def test_a_rule_without_a_hand_misses_as_its_exact_policy_does_to_the_key(name: str, policy: str) -> None:
    """As often as the exact form, and as no other policy of the five: so its name is its own."""
    assert misses(name, policy, vectorised=True) == misses(name, policy, vectorised=False)


@pytest.mark.parametrize("name", SEQUENCES)
def test_no_two_rules_miss_equally_often(name: str) -> None:
    """What the tests of this file tell apart."""
    assert len({misses(name, policy, vectorised=True) for policy in NAMES}) == len(NAMES)


class Set:
    """The keys at eight places; what is said of one set of a rule with a hand, in lists and without arithmetic."""

    def __init__(self) -> None:
        self.places: list[int | None] = [None] * SET
        self.used: set[int] = set()

    def hit(self, key: int) -> None:
        """Set its bit."""
        self.used.add(key)

    def empty(self) -> int:
        """Places without a key."""
        return self.places.count(None)

    def put(self, key: int, time: int) -> None:
        """In the first empty place."""
        self.places[self.places.index(None)] = key
        self.enter(key, time)

    def evict(self, key: int) -> None:
        """Move the hand to it and take it out."""
        self.pass_by(key)
        self.places[self.places.index(key)] = None
        self.used.discard(key)

    def enter(self, key: int, time: int) -> None:
        """A new key comes in."""
        raise NotImplementedError

    def urgency(self, key: int) -> Any:
        """The lowest leaves first."""
        raise NotImplementedError

    def pass_by(self, key: int) -> None:
        """What the hand does on its way to this key."""
        raise NotImplementedError


class ClockSet(Set):
    """A circle in the order in which the hand last passed; keys that it passed on one round stand abreast."""

    def __init__(self) -> None:
        super().__init__()
        self.passed: dict[int, int] = {}
        self.swept: set[int] = set()

    def enter(self, key: int, time: int) -> None:
        """Behind the hand, with the keys that it has just passed."""
        self.passed |= dict.fromkeys([key, *self.swept], time)
        self.swept = set()

    def urgency(self, key: int) -> Any:
        """A clear bit, then who was passed longest ago."""
        return key in self.used, self.passed[key]

    def pass_by(self, key: int) -> None:
        """Clear the bits before it, which go to the end; or all, where the hand comes around to it, and all keep their places."""
        if key in self.used:
            self.used.clear()
            return
        self.swept = {other for other in self.used if self.passed[other] < self.passed[key]}
        self.used -= self.swept


class SieveSet(Set):
    """A list in order of insertion, and a hand that is a position in it."""

    def __init__(self) -> None:
        super().__init__()
        self.order: list[int] = []
        self.hand = 0
        self.times: dict[int, int] = {}

    def enter(self, key: int, time: int) -> None:
        """Last in the list; before the hand, even where that has come to the end."""
        self.order.append(key)
        self.times[key] = time

    def urgency(self, key: int) -> Any:
        """A clear bit, then what the hand has before it, then who came in longest ago."""
        return key in self.used, self.order.index(key) < self.hand, self.times[key]

    def pass_by(self, key: int) -> None:
        """Step by step, around the end if need be, clearing bits."""
        steps = 0
        while True:
            self.hand %= len(self.order)
            at = self.order[self.hand]
            if at == key and (at not in self.used or steps >= len(self.order)):
                break
            self.used.discard(at)
            self.hand += 1
            steps += 1
        self.order.remove(key)


def modelled(kind: type[Set], keys: Sequence[int], first_set: dict[int, int]) -> int:
    """Misses of two such sets, where a key may stand in either: in the emptier one, else in the place of the more urgent.

    Args:
        kind: what one set does.
        keys: the references.
        first_set: for each key, which of the two comes first where both are alike.
    """
    sets = [kind(), kind()]
    missed = 0
    for time, key in enumerate(keys):
        holder = next((one for one in sets if key in one.places), None)
        if holder is not None:
            holder.hit(key)
            continue
        missed += 1
        both = sets if first_set[key] == 0 else sets[::-1]
        chosen = max(both, key=Set.empty)
        if not chosen.empty():
            candidates = [(one, held) for one in both for held in one.places if held is not None]
            chosen, victim = min(candidates, key=lambda candidate: candidate[0].urgency(candidate[1]))
            chosen.evict(victim)
        chosen.put(key, time)
    return missed


@pytest.mark.parametrize(("policy", "kind"), [("clock", ClockSet), ("sieve", SieveSet)])
@pytest.mark.parametrize("name", SEQUENCES)
def test_a_rule_with_hands_misses_as_two_such_sets_do_to_the_key(name: str, policy: str, kind: type[Set]) -> None:
    """A hand for each set of eight ways is not one for all 16, so the exact form is not what to count by."""
    codes = np.unique(keys_of(name), return_inverse=True)[1]
    cache, distinct = BoundedCache(CAPACITY, by_name(policy)), np.unique(codes)
    first, _ = cache._entries.placement._sets_of(cache.encode(Keys((pa.array(distinct),))).hashes)
    firsts = dict(zip(distinct.tolist(), first.tolist(), strict=True))
    assert misses(name, policy, vectorised=True) == modelled(kind, codes.tolist(), firsts)
