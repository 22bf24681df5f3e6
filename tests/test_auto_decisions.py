"""Where another byte buys more, the cache or the rows that wait; and when a move is worth it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from srj.sizing import Costs, MissRatioCurve, best_size
from tests.scripted import Scripted, scripted_engine

if TYPE_CHECKING:
    from collections.abc import Iterator

    from srj.lookup.auto_size import AutoSize


@pytest.fixture
def auto() -> Iterator[AutoSize]:
    """Of an engine with 2 MB, half of them the cache's, before any lookup."""
    engine = scripted_engine(Scripted({}), unique=True, cache="auto", memory=2_000_000)
    assert engine._auto is not None
    yield engine._auto
    engine.close()


def test_a_move_that_only_the_model_advises_has_to_save_five_percent_twice(auto: AutoSize) -> None:
    """Lookups that cost the same a key want all the cache: the more of what comes again it can hold, the more that saves."""
    most, costs = auto._most, Costs(auto._per_entry, event=100, fixed=0.0, each=1e-5)
    little, much = (MissRatioCurve(np.array([0.0, most / share]), np.array([1.0, 0.0]), 1e6) for share in (0.05, 0.9))
    by_lookup = costs._replace(fixed=1.0, each=0.0, most_keys=1e9)  # room to wait is all
    assert [auto._by_costs(little, costs) for _ in range(2)] == [None, None]
    assert auto._by_costs(much, costs) is None
    assert auto._by_costs(little, costs) is None  # not twice in turn
    assert auto._by_costs(little, by_lookup) is None
    assert auto._advised == -1
    assert auto._by_costs(much, costs) is None  # the other way
    assert auto._by_costs(much, costs) == pytest.approx(most, rel=0.01)


def test_before_costs_are_known_the_cache_goes_to_the_knee_if_that_is_far(auto: AutoSize) -> None:
    def bends_at(entries: float) -> MissRatioCurve:
        return MissRatioCurve(np.array([0.0, entries, 20 * entries]), np.array([1.0, 0.3, 0.1]), 1e6)

    present = auto._entries
    assert auto._by_knee(bends_at(present / 4)) == pytest.approx(1.15 * present / 4, rel=0.01)
    for near in (0.85, 1.2):
        assert auto._by_knee(bends_at(near * present / 1.15)) is None


def test_where_memory_is_tight_a_working_set_has_more_than_the_least_only_if_what_waits_can_spare_it(auto: AutoSize) -> None:
    """By hand: 1.15 or 1.25 entries a key, of 70 % of what fits, the latter leaves the rows that wait three fifths of the room."""
    bound = int(0.7 * auto._memory / auto._per_entry)
    curve = MissRatioCurve(np.array([0.0, bound]), np.array([1.0, 0.1]), 1e6)
    least, fair = int(1.15 * bound), int(1.25 * bound)
    by_key, by_lookup = (Costs(auto._per_entry, 100, fixed, each, most_keys=1e9) for fixed, each in ((1e-4, 1e-5), (0.03, 1e-6)))
    assert auto._hardly_dearer(fair, least, curve, by_key)
    assert not auto._hardly_dearer(fair, least, curve, by_lookup)
    assert not auto._hardly_dearer(fair, least, curve, None)


def test_while_a_search_goes_on_the_cache_grows_only_where_it_does_not_hold_what_was_seen(auto: AutoSize) -> None:
    """By half at least, for how far it has to go is not known; where 1.5 entries a key are wanted, 1.48 are enough."""
    present = auto._entries
    assert auto._by_search(int(1.5 * present / 1.48), int(present / 1.48)) is None
    assert auto._by_search(int(1.15 * present), present) == min(int(1.5 * present), auto._most)


def test_more_cache_is_worth_what_it_saves() -> None:
    """By hand: a straight curve to 1,000 entries; lookups that cost the same a key whatever their size want all the cache."""
    curve = MissRatioCurve(np.array([0.0, 1_000.0]), np.array([1.0, 0.0]), 1e6)
    size = best_size(curve, 50_000, Costs(entry=100, event=100, fixed=0.0, each=1e-5))
    assert size == pytest.approx(500 * 15 / 16, rel=0.02)


def test_where_lookups_are_dear_room_to_wait_is_worth_more_than_cache() -> None:
    """By hand: rows that wait fill lookups of 10 ms each, whatever their size; seconds a row are the same for every split."""
    curve = MissRatioCurve(np.array([0.0, 1_000.0]), np.array([1.0, 0.5]), 1e6)
    costs = Costs(entry=100, event=100, fixed=0.01, each=0.0, most_keys=1e9)
    # c entries: (1 - c / 2000) * 0.01 / (1000 - c), which is least where c is.
    assert costs.seconds([0, 500], curve, 100_000).tolist() == pytest.approx([1e-5, 1.5e-5])
    assert best_size(curve, 100_000, costs) == pytest.approx(1_000 / 16, abs=1)


def test_rows_that_wait_in_their_order_fill_lookups_more_slowly() -> None:
    curve = MissRatioCurve(np.array([0.0, 100.0]), np.array([0.1, 0.1]), 1e6)
    costs = Costs(entry=100, event=100, fixed=0.01, each=0.0)
    # 1,000 rows wait: 1,000 misses where only these do, else 100.
    assert costs.seconds([0], curve, 100_000).tolist() == pytest.approx([0.1 * 0.01 / 1_000])
    assert costs._replace(hits_wait=True).seconds([0], curve, 100_000).tolist() == pytest.approx([0.1 * 0.01 / 100])


def test_of_rows_that_come_together_those_wait_that_have_to_whatever_room_there_is() -> None:
    """By hand: room for 100 rows, and batches of 1,000, of which a tenth misses; in their order all wait, and a tenth is asked."""
    curve = MissRatioCurve(np.array([0.0, 100.0]), np.array([0.1, 0.1]), 1e6)
    costs = Costs(entry=100, event=100, fixed=0.01, each=0.0, batch=1_000)
    for hits_wait in (False, True):
        of_room = costs._replace(hits_wait=hits_wait).seconds([0], curve, 10_000)
        assert of_room.tolist() == pytest.approx([0.1 * 0.01 / 100])
    # Room for 500 missing rows is more than the 100 of a batch.
    assert costs.seconds([0], curve, 50_000).tolist() == pytest.approx([0.1 * 0.01 / 500])
