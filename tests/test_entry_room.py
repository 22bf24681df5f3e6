"""What an entry takes: by the rows that the cache holds, and by those answered where these tell more."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from srj.lookup.entry_room import Answered, EntryRoom
from srj.lookup.interface import CacheStats
from srj.lookup.layout import Contents

CONTENTS = Contents.of([pa.int64()], pa.schema({"value": pa.string()}), unique=True)
INLINE = CONTENTS.inline_bytes
NOTHING = CacheStats(0, 20_000, 0, 2_000_000, 0, 0, outside_room=1_000_000)


class Told:
    """A cache and answers that are as is said."""

    def __init__(self, stats: CacheStats, answered: Answered) -> None:
        self.now, self.answered = stats, answered
        self.room = EntryRoom(self, CONTENTS, lambda: self.answered)

    def stats(self) -> CacheStats:
        """As a cache tells them."""
        return self.now

    def answer(self, keys: int, nbytes: float) -> None:
        """So many more keys, with a row of so many bytes each beside what stands in the columns."""
        before = self.answered
        self.answered = Answered(before.keys + keys, before.rows + keys, before.nbytes + keys * (nbytes + INLINE))


@pytest.fixture
def told() -> Told:
    """An empty cache, and nothing answered; one key is expected, of 16 bytes."""
    return Told(NOTHING, Answered(0, 1.0, 16.0 + INLINE))


def test_many_entries_tell_what_rows_take(told: Told) -> None:
    """1,000 of 100 bytes, the heaviest of 120; what was answered, of 50, does not count. With room for what may be longer."""
    told.answer(1_000, 50)
    for heaviest, margin in ((120, 1.2), (100, 1.0), (500, 1.3)):
        told.now = replace(NOTHING, entries=1_000, outside=100_000, heaviest=heaviest)
        told.room.measure()
        assert told.room.outside == pytest.approx(margin * 100)
    assert told.room.entries == 10_000


def test_few_entries_tell_it_together_with_the_answers(told: Told) -> None:
    """Whatever is more: long keys stand in the cache alone, rows that found no room are answered alone."""
    told.answer(999, 40)
    for outside, more in ((100 * 36, 40), (100 * 90, 90)):
        told.now = replace(NOTHING, entries=100, outside=outside)
        told.room.measure()
        assert told.room.outside == pytest.approx(1.3 * more, rel=0.01)


def test_where_much_finds_no_room_the_late_answers_tell_it(told: Told) -> None:
    """1,000 short entries that stay, of 24 bytes each, and 600 answers of 3,000: a tenth and more was refused."""
    told.answer(1_000, 24)
    told.now = replace(NOTHING, entries=1_000, outside=24_000, heaviest=24)
    told.room.measure()
    assert told.room.outside == pytest.approx(24)
    told.answer(600, 3_000)
    told.now = replace(told.now, refused=59)
    told.room.measure()
    assert not told.room.is_crowded
    told.answer(600, 3_000)
    told.now = replace(told.now, refused=59 + 60)
    told.room.measure()
    assert told.room.is_crowded
    assert told.room.outside == pytest.approx(1.3 * 3_000)
    told.room.moved()
    told.room.measure()
    assert not told.room.is_crowded
    assert told.room.outside == pytest.approx(24)


def test_a_cache_is_divided_anew_for_other_rows_and_not_again_for_such(told: Told) -> None:
    told.answer(1_000, 1_000)
    told.room.measure()
    entries = told.room.for_such_rows()
    assert entries == pytest.approx(2_000_000 / (1_300 / 0.75), rel=0.1)
    assert told.room.geometry(entries, 2_000_000, least_waiting=100_000, is_ample=False) is not None
    assert told.room.for_such_rows() == entries, "not done"
    told.room.moved()
    assert told.room.for_such_rows() is None
    told.answer(9_000, 2_000)
    told.room.measure()
    assert told.room.for_such_rows() is not None


def test_of_a_few_entries_whole_sets_have_no_room_for_values_that_are_not_wanted(told: Told) -> None:
    """21 of 100 kB: three sets have 24 ways, and the heap for 21."""
    told.answer(5_000, 100_000)
    told.room.measure()
    found = told.room.geometry(21, 10_000_000, least_waiting=0, is_ample=False)
    assert found is not None
    (geometry, nbytes), whole = found, told.room.geometry(24, 10_000_000, least_waiting=0, is_ample=False)
    assert geometry.sets == 3
    assert whole is not None
    assert nbytes == pytest.approx(21 / 24 * whole[1], rel=0.02)
