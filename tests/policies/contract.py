"""What every exact policy promises; each policy's test class inherits it."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import pytest

from srj.cache_policies import by_name, make

if TYPE_CHECKING:
    import cachetools

FUTURE = [*range(12), *range(0, 12, 2), *range(12)]


def make_knowing(name: str, capacity: int, future: list[int]) -> cachetools.Cache[Any, Any]:
    """A cache that is told the future if its policy needs to know it."""
    return make(name, capacity, **({"future": future} if by_name(name).offline else {}))


class Contract:
    """What holds whatever the policy."""

    name = ""

    def filled(self, capacity: int, keys: Any) -> cachetools.Cache[Any, Any]:
        """A cache in which these keys were stored one after the other, each with its own value."""
        cache = make_knowing(self.name, capacity, FUTURE)
        for key in keys:
            cache[key] = f"value {key}"
        return cache

    @pytest.mark.parametrize("capacity", [1, 2, 3, 7, 10])
    def test_it_never_holds_more_than_its_capacity_and_always_the_newest(self, capacity: int) -> None:
        """And it is full once enough keys have come."""
        cache = self.filled(capacity, [])
        for count, key in enumerate(range(25), 1):
            cache[key] = -key
            assert len(cache) == cache.currsize == min(count, capacity)
            assert cache[key] == -key
        assert cache.maxsize == capacity

    def test_contains_iteration_and_length_tell_the_same_keys_and_each_has_its_own_value(self) -> None:
        """Also `get`, with its default for the others."""
        cache = self.filled(4, range(9))
        held = list(cache)
        assert len(held) == len(set(held)) == len(cache) == 4
        assert sorted(held) == [key for key in range(9) if key in cache]
        assert {key: cache[key] for key in held} == {key: f"value {key}" for key in held}
        assert [cache.get(key, "none") == "none" for key in range(9)] == [key not in held for key in range(9)]

    def test_a_key_that_is_not_held_is_a_key_error(self) -> None:
        """For reading, deleting and popping, also after the key was deleted once."""
        cache = self.filled(3, [1])
        del cache[1]
        for act in (lambda: cache[1], lambda: cache.pop(1), lambda: cache.__delitem__(1), cache.popitem):
            with pytest.raises(KeyError):
                act()
        assert len(cache) == 0

    def test_hits_and_updates_change_no_content(self) -> None:
        """But for the value that was updated."""
        cache = self.filled(4, range(4))
        for _ in range(3):
            assert [cache[key] for key in (3, 0, 0, 2)] == ["value 3", "value 0", "value 0", "value 2"]
        cache[2] = "new"
        assert dict(cache.items()) == {0: "value 0", 1: "value 1", 2: "new", 3: "value 3"}

    def test_popitem_empties_it_one_entry_at_a_time(self) -> None:
        """Each with its value."""
        cache = self.filled(5, range(8))
        held = dict(cache.items())
        assert dict([cache.popitem() for _ in range(5)]) == held
        assert len(cache) == cache.currsize == 0

    def test_deleted_entries_leave_room(self) -> None:
        """The next key evicts nothing."""
        cache = self.filled(4, range(4))
        del cache[1]
        cache[9] = "value 9"
        assert sorted(cache) == [0, 2, 3, 9]

    def test_a_cleared_cache_is_as_good_as_new(self) -> None:
        """The same references then leave the same content."""
        # Random numbers go on where they were, so there nothing is drawn before.
        cache = self.filled(3, [1, 2, 3] if self.name == "random" else [1, 2, 3, 1, 4, 2])
        cache.clear()
        assert len(cache) == cache.currsize == 0
        for key in FUTURE[:15]:
            cache[key] = f"value {key}"
        assert dict(cache.items()) == dict(self.filled(3, FUTURE[:15]).items())

    def test_a_copy_goes_its_own_way(self) -> None:
        """What is done to it does not reach the original."""
        cache = self.filled(3, range(5))
        held = dict(cache.items())
        other = copy.copy(cache)
        assert dict(other.items()) == held
        for key in range(20, 30):
            other[key] = 0
        assert dict(cache.items()) == held
        assert dict([cache.popitem() for _ in range(3)]) == held

    def test_a_cache_of_no_entries_refuses_every_value(self) -> None:
        """As cachetools' own do."""
        with pytest.raises(ValueError, match="too large"):
            self.filled(0, [1])
