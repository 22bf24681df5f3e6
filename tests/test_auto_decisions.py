"""Where another byte buys more, the cache or the rows that wait; and when a move is worth it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest

from srj.lookup.auto_size import AutoSize
from srj.lookup.entry_room import Answered
from srj.lookup.key_log import Read
from srj.lookup.operator import Operator
from srj.sizing import Costs, MissRatioCurve, Phase, Watch, best_size
from tests.scripted import Scripted, scripted_engine

if TYPE_CHECKING:
    from collections.abc import Iterator


class Watched(Watch):
    """A watch that stands where it is told to."""

    phase, bound = None, None  # type: ignore[assignment]  # given

    def __init__(self, phase: Phase, bound: int | None, curve: MissRatioCurve, noise: float = 0.02) -> None:
        self.phase, self.bound, self.noise, self._curve = phase, bound, noise, curve  # type: ignore[misc,assignment]

    def curve(self) -> MissRatioCurve:
        """As given."""
        return self._curve


@pytest.fixture
def auto() -> Iterator[AutoSize]:
    """Of an engine with 2 MB, half of them the cache's, before any lookup."""
    engine = scripted_engine(Scripted({}), unique=True, cache="auto", memory=2_000_000)
    assert engine._auto is not None
    yield engine._auto
    engine.close()


def test_a_move_that_only_the_model_advises_has_to_save_five_percent_twice(auto: AutoSize) -> None:
    """Lookups that cost the same a key want all the cache: the more of what comes again it can hold, the more that saves."""
    most, costs = auto._most, Costs(auto._room.per_entry, event=100, fixed=0.0, each=1e-5)
    little, much = (MissRatioCurve(np.array([0.0, most / share]), np.array([1.0, 0.0]), 1e6) for share in (0.05, 0.9))
    by_lookup = costs._replace(fixed=1.0, each=0.0, most_keys=1e9)  # room to wait is all

    def advised(curve: MissRatioCurve, costs: Costs) -> int | None:
        return auto._by_costs(curve, costs, auto._advised)

    assert [advised(little, costs) for _ in range(2)] == [None, None]
    assert advised(much, costs) is None
    assert advised(little, costs) is None  # not twice in turn
    assert advised(little, by_lookup) is None
    assert auto._advised == -1
    assert advised(much, costs) is None  # the other way
    assert advised(much, costs) == pytest.approx(most, rel=0.01)


def test_what_the_model_advised_counts_at_the_next_decision_only(auto: AutoSize, monkeypatch: pytest.MonkeyPatch) -> None:
    """An hour in which a bound decides makes old advice worthless."""
    costs = Costs(auto._room.per_entry, event=100, fixed=0.0, each=1e-5)
    much = MissRatioCurve(np.array([0.0, auto._most / 0.9]), np.array([1.0, 0.0]), 1e6)
    monkeypatch.setattr(AutoSize, "_costs", property(lambda _: costs))
    watch = Watched(Phase.FULL, None, much)
    assert auto._wanted(watch) is None
    assert auto._wanted(Watched(Phase.CLOSED, int(auto._room.entries / 1.3), much)) is None
    assert auto._wanted(watch) is None
    assert auto._wanted(watch) is not None


@pytest.mark.parametrize(("fixed", "each", "slack"), [(0.0, 1e-5, 1.25), (0.03, 1e-6, 1.15)])
def test_the_slack_of_a_tight_cache(
    auto: AutoSize, monkeypatch: pytest.MonkeyPatch, fixed: float, each: float, slack: float
) -> None:
    """1.25 entries a key where lookups cost by the key; the least where they cost the same whatever they ask."""
    bound = int(0.7 * auto._memory / auto._room.per_entry)
    curve = MissRatioCurve(np.array([0.0, bound]), np.array([1.0, 0.1]), 1e6)
    costs = Costs(auto._room.per_entry, 100, fixed, each, most_keys=1e9)
    monkeypatch.setattr(AutoSize, "_costs", property(lambda _: costs))
    assert auto._with_slack(bound, Watched(Phase.MATCHED, bound, curve)) == pytest.approx(slack * bound, abs=2)


def test_room_for_what_is_too_small_a_change_to_be_seen(auto: AutoSize) -> None:
    """Of 100 keys a quarter is watched, so that two thirds more pass for chance; where memory is ample they find room."""
    curve = MissRatioCurve(np.array([0.0, 100.0]), np.array([1.0, 0.0]), 1e6)
    for phase in (Phase.CLOSED, Phase.MATCHED):
        assert auto._with_slack(100, Watched(phase, 100, curve, noise=0.69)) == pytest.approx(1.15 * 169, abs=2)
    assert auto._with_slack(100, Watched(Phase.CLOSED, 100, curve)) == pytest.approx(125, abs=2)
    assert auto._with_slack(100, Watched(Phase.MATCHED, 100, curve)) == pytest.approx(150, abs=2)


def test_a_search_that_began_with_a_wrong_notion_of_what_fits_hears_the_right_one(auto: AutoSize) -> None:
    """It goes on; what gave up for want of memory that is there begins anew, and what has a bound needs none."""
    right = auto._watched
    for thought, told in ((int(1.2 * right), int(1.2 * right)), (2 * right, right), (right // 2, right)):
        watch = auto.watch = Watch(thought)
        auto._references, auto._measured_at = 50_000, 0
        auto._correct(watch)
        assert auto.watch is watch
        assert (watch.memory, watch._pattern.memory) == (told, told)
        watch.hold(3 * right)
        auto._correct(watch)
        assert watch.memory == 3 * right, "not measured again so soon"
    full = auto.watch = Watch(right // 2)
    full.add(np.arange(right, dtype=np.uint64) << np.uint64(32))
    assert full.phase is Phase.FULL
    auto._references, auto._measured_at = 50_000, 0
    auto._correct(full)
    assert auto.watch is not full
    assert auto.watch.memory == right


def test_before_costs_are_known_the_cache_goes_to_the_knee_if_that_is_far(auto: AutoSize) -> None:
    def bends_at(entries: float) -> MissRatioCurve:
        return MissRatioCurve(np.array([0.0, entries, 20 * entries]), np.array([1.0, 0.3, 0.1]), 1e6)

    present = auto._room.entries
    assert auto._by_knee(bends_at(present / 4)) == pytest.approx(1.15 * present / 4, rel=0.01)
    for near in (0.85, 1.2):
        assert auto._by_knee(bends_at(near * present / 1.15)) is None


def test_where_memory_is_tight_a_working_set_has_more_than_the_least_only_if_what_waits_can_spare_it(auto: AutoSize) -> None:
    """By hand: 1.15 or 1.25 entries a key, of 70 % of what fits, the latter leaves the rows that wait three fifths of the room."""
    bound = int(0.7 * auto._memory / auto._room.per_entry)
    curve = MissRatioCurve(np.array([0.0, bound]), np.array([1.0, 0.1]), 1e6)
    least, fair = int(1.15 * bound), int(1.25 * bound)
    by_key, by_lookup = (
        Costs(auto._room.per_entry, 100, fixed, each, most_keys=1e9) for fixed, each in ((1e-4, 1e-5), (0.03, 1e-6))
    )
    assert auto._hardly_dearer(fair, least, curve, by_key)
    assert not auto._hardly_dearer(fair, least, curve, by_lookup)
    assert not auto._hardly_dearer(fair, least, curve, None)


def test_while_a_search_goes_on_the_cache_grows_only_where_it_does_not_hold_what_was_seen(auto: AutoSize) -> None:
    """By half at least, for how far it has to go is not known; where 1.5 entries a key are wanted, 1.48 are enough."""
    present = auto._room.entries
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
    # c entries: (1 - c / 2000) * 0.01 / ((1000 - c) / 2), which is least where c is; half of what waits fills the next lookup.
    assert costs.seconds([0, 500], curve, 100_000).tolist() == pytest.approx([2e-5, 3e-5])
    assert best_size(curve, 100_000, costs) == pytest.approx(1_000 / 16, abs=1)


def test_rows_that_wait_in_their_order_fill_lookups_more_slowly() -> None:
    curve = MissRatioCurve(np.array([0.0, 100.0]), np.array([0.1, 0.1]), 1e6)
    costs = Costs(entry=100, event=100, fixed=0.01, each=0.0)
    # 1,000 rows wait: 1,000 misses where only these do, else 100; half of them in the lookup that flies.
    assert costs.seconds([0], curve, 100_000).tolist() == pytest.approx([0.1 * 0.01 / 500])
    assert costs._replace(hits_wait=True).seconds([0], curve, 100_000).tolist() == pytest.approx([0.1 * 0.01 / 50])
    # Of three such the fourth part of what waits each.
    assert costs._replace(in_flight=3).seconds([0], curve, 100_000).tolist() == pytest.approx([0.1 * 0.01 / 250 / 3])


def test_of_rows_that_come_together_those_wait_that_have_to_whatever_room_there_is() -> None:
    """By hand: room for 100 rows, and batches of 1,000, of which a tenth misses; in their order all wait, and a tenth is asked."""
    curve = MissRatioCurve(np.array([0.0, 100.0]), np.array([0.1, 0.1]), 1e6)
    costs = Costs(entry=100, event=100, fixed=0.01, each=0.0, batch=1_000)
    for hits_wait in (False, True):
        of_room = costs._replace(hits_wait=hits_wait).seconds([0], curve, 10_000)
        assert of_room.tolist() == pytest.approx([0.1 * 0.01 / 100])
    # Half of the room for 500 missing rows is more than the 100 of a batch.
    assert costs.seconds([0], curve, 50_000).tolist() == pytest.approx([0.1 * 0.01 / 250])


def test_what_a_key_costs_the_worker_counts_however_large_lookups_are() -> None:
    """By hand: half of the rows miss, of which four fifths ask: 0.4 keys a row, with 20 us each beside 10 ms for 200 keys."""
    curve = MissRatioCurve(np.array([0.0, 100.0]), np.array([0.5, 0.5]), 1e6)
    costs = Costs(entry=100, event=100, fixed=0.01, each=0.0, asked=0.8, work=20e-6)
    assert costs.seconds([0], curve, 50_000).tolist() == pytest.approx([0.4 * (0.01 / 200 + 20e-6)])


def test_the_worker_s_time_for_a_key_is_measured(auto: AutoSize) -> None:
    """Both threads' time since the batch before; each batch moves what is known by a sixteenth."""
    auto.asked(100, 200, seconds=0.001, elsewhere=0.003)
    assert (auto._work, auto._asked) == pytest.approx((40e-6 / 16, 1 - 0.5 / 16))
    auto.asked(100, 200, seconds=0.001, elsewhere=0.003)
    assert auto._work == pytest.approx(40e-6 / 16 * 15 / 16 + 10e-6 / 16)


def test_a_real_miss_takes_time_of_the_processor() -> None:
    engine = scripted_engine(Scripted({key: ["x"] for key in range(3_000)}), unique=True, cache="auto", memory=2_000_000)
    try:
        operator = Operator(engine)
        for start in range(0, 3_000, 100):
            list(operator.in_order([(pa.array(range(start, start + 100)),)]))
        assert engine._auto is not None
        assert 1e-7 < engine._auto._work < 1e-2
    finally:
        engine.close()


class Log:
    """Of a worker beside others: what it writes, and reads, is as told."""

    def __init__(self, read: Read | None) -> None:
        self.read, self.workers = read, 2

    def exchange(self, _hashes: np.ndarray, _missed: int) -> Read | None:
        """As told."""
        return self.read

    def look_at(self, rate: float) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""


def test_a_worker_that_does_not_read_looks_at_nothing_but_the_cache_s_bytes(
    auto: AutoSize, monkeypatch: pytest.MonkeyPatch
) -> None:
    auto._log = Log(None)  # type: ignore[assignment]
    auto._room.nbytes = 1
    monkeypatch.setattr(auto._room, "measure", lambda: pytest.fail("measured in each batch"))
    auto.see(np.arange(10, dtype=np.uint64), 10)
    assert auto.watch is None
    assert auto._room.nbytes == auto._cache.stats().bytes_reserved


def test_all_workers_keys_count_for_how_long_a_cache_stays_large(auto: AutoSize) -> None:
    hashes = np.arange(10, dtype=np.uint64)
    auto._log = Log(Read(hashes, 1_000, 0, is_new=True))  # type: ignore[assignment]
    auto.see(hashes, 0)
    assert auto._seen == 1_000


def test_a_growth_that_failed_forbids_no_smaller_cache(auto: AutoSize, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auto._cache, "resize", lambda *_: False)
    auto._move(auto._most)
    assert auto._moving is not None
    auto._moving.join()
    assert auto._grown == (0, 0)


def test_fixed_columns_are_no_part_of_what_stands_in_the_heap(auto: AutoSize) -> None:
    """A key's 80 rows of a text of 40 bytes: 3,200 bytes beside Arrow's offsets, whatever number of rows the table promised."""
    auto._room._answered = lambda: Answered(10, 11 * 80.0, 11 * 80 * (40.0 + auto._room._contents.inline_bytes))
    auto._room.measure()
    assert auto._room.outside == pytest.approx(1.3 * 3_200)


def test_only_what_made_the_cache_larger_forbids_a_smaller_one(auto: AutoSize) -> None:
    for entries, grown in ((auto._room.entries // 2, (0, 0)), (auto._room.entries, (0, auto._room.entries))):
        auto._move(entries)
        assert auto._moving is not None
        auto._moving.join()
        assert auto._grown == grown


def test_a_cache_that_keeps_nothing_learns_from_the_answers_how_many_pages_a_key_needs() -> None:
    """80 rows where two were described, so that a page has one: 79 beside the key's first row."""
    engine = scripted_engine(Scripted({}), cache="auto", memory=2_000_000)
    try:
        auto = engine._auto
        assert auto is not None
        auto._room._answered = lambda: Answered(10, 11 * 80.0, 11 * 8_000.0)
        auto._room.measure()
        assert auto._room.paged == pytest.approx(1.3 * 79)
    finally:
        engine.close()


def test_a_cache_that_has_all_it_may_is_not_made_anew_for_what_whole_sets_take(auto: AutoSize) -> None:
    """More keys than 15/16 of the memory hold with slack: all of it is wanted, once; also while a search goes on."""
    curve = MissRatioCurve(np.array([0.0, 1.0]), np.array([1.0, 0.0]), 1e6)
    for phase in (Phase.CLOSED, Phase.MATCHED, Phase.SEARCHING):
        assert auto._wanted(Watched(phase, int(0.95 * auto._most), curve)) == auto._most
    auto._move(auto._most)
    assert auto._moving is not None
    auto._moving.join()
    for phase in (Phase.CLOSED, Phase.MATCHED, Phase.SEARCHING):
        assert auto._wanted(Watched(phase, int(0.95 * auto._most), curve)) is None


def test_rows_are_put_in_order_once_in_a_cache_of_the_same_sizes(auto: AutoSize, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not in one for the rows that it held when it was last measured; and it is no change of size."""
    auto._move(auto._room.entries // 2)
    assert auto._moving is not None
    auto._moving.join()
    auto.take_resizes()
    present, made = auto._cache.geometry, []
    monkeypatch.setattr(auto._cache, "resize", lambda geometry, *_: made.append(geometry) or True)
    monkeypatch.setattr(auto._room, "outside", 5_000.0)
    auto._next_move = float("-inf")
    asleep = Watch(1_000)
    asleep.is_asleep = True
    for _ in range(2):
        auto._decide(asleep)
        auto._moving.join()
    assert made == [present]
    assert auto.take_resizes() == 0


def test_a_tiny_bound_leaves_a_cache_that_takes_hardly_any_memory(auto: AutoSize) -> None:
    """1,024 entries where a sixteenth of the memory holds more, else as many as that."""
    curve = MissRatioCurve(np.array([0.0, 1.0]), np.array([1.0, 0.0]), 1e6)
    assert auto._memory / 16 / auto._room.per_entry > 1_024
    assert auto._wanted(Watched(Phase.CLOSED, 3, curve)) == 1_024
    auto._memory = 500_000
    assert auto._wanted(Watched(Phase.CLOSED, 3, curve)) == int(500_000 / 16 / auto._room.per_entry) < 1_024
