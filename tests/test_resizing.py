"""A cache gets another size while it is in use: nothing is lost for which there is room, and no row becomes another's."""

from __future__ import annotations

import os
import signal
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from srj.lookup.keys import Keys
from srj.lookup.moving import Move
from srj.lookup.shared_cache import SharedCache
from tests.cache_values import ALL_COLUMNS, KEY_TYPES, Model, audit, key_numbers, make_cache, make_rows
from tests.shared_map import CONTENTS, fill, known, process, shared

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import numpy.typing as npt

    from srj.lookup.cache import Copies
    from srj.lookup.map_file import MapFile

LARGE, SMALL = 4_000_000, 200_000


@contextmanager
def always() -> Iterator[bool]:
    """The cache may be read."""
    yield True


def resized(cache: SharedCache, size: int) -> bool:
    """Give it another size."""
    geometry = CONTENTS.fit(size, None)
    return cache.resize(geometry, CONTENTS.size(geometry), threading.Lock())


@pytest.mark.parametrize("types", KEY_TYPES, ids=lambda types: ",".join(map(str, types)))
@pytest.mark.parametrize("unique", [True, False])
def test_keys_of_every_type_move_with_their_rows_and_what_changes_meanwhile_too(types: Any, unique: bool) -> None:
    """Half of the keys change between the two passes of a move; absent keys, several rows and all column types are among them."""
    numbers = list(range(key_numbers(types)))
    options: dict[str, Any] = {"unique": unique, "rows_per_key": 5.0, "widths": [170] * (len(types) + len(ALL_COLUMNS))}
    cache = make_cache(types, ALL_COLUMNS, size_rows=16 * len(numbers) + 64, **options)
    model = Model(types, ALL_COLUMNS, None, None)
    for start in range(0, len(numbers), 700):
        model.insert(cache, numbers[start : start + 700], 0, lambda number: number % (2 if unique else 9), 0.0)
    new = make_cache(types, ALL_COLUMNS, size_rows=32 * len(numbers) + 64, **options)
    move = Move(cache, new)
    move.bulk(always)
    for start in range(0, len(numbers) // 2, 700):
        some = numbers[::2][start : start + 700]
        if some:
            model.insert(cache, some, 1, lambda number: (number + 1) % (2 if unique else 9), 1.0)
    move.rest()
    audit(new)
    assert model.check(new, numbers, 2.0, complete=True) == len(numbers)


@pytest.mark.parametrize("policy", ["lru", "lfu", "clock", "sieve"])
def test_a_smaller_cache_keeps_the_hot_rows(policy: str) -> None:
    """What the rule knows of each entry moves with it: of 4,000 keys the 400 that were used stay, in a cache of a quarter."""
    from srj.cache_policies import by_name  # noqa: PLC0415  only here

    options: dict[str, Any] = {"policy": by_name(policy, with_rule=True), "widths": [8, 170]}
    cache, new = make_cache(size_rows=4_600, **options), make_cache(size_rows=1_000, **options)
    hot = np.random.default_rng(1).permutation(4_000)[:400]
    cache.insert(Keys((pa.array(np.arange(4_000)),)), np.ones(4_000, np.int32), make_rows(cache._columns, range(4_000)), 0.0)
    for _ in range(3):
        cache.lookup(Keys((pa.array(hot),)), 0.0)
    move = Move(cache, new)
    move.bulk(always)
    assert new.lookup(Keys((pa.array(hot),)), 0.0).hit.mean() >= 0.98
    before = new.stats()
    move.rest()  # which finds nothing to do: what was left out has not changed
    assert new.stats().entries == before.entries
    assert new.lookup(Keys((pa.array(hot),)), 0.0).hit.mean() >= 0.98
    assert new.stats().entries >= 900
    assert new.stats().evictions == cache.stats().evictions


@pytest.mark.parametrize("policy", ["fifo", "random"])
def test_a_policy_without_use_moves_as_many_rows_as_fit(policy: str) -> None:
    """Of FIFO's the newest; each with its own values."""
    from srj.cache_policies import by_name  # noqa: PLC0415  only here

    options: dict[str, Any] = {"policy": by_name(policy, with_rule=True), "widths": [8, 170]}
    cache, new = make_cache(size_rows=4_600, **options), make_cache(size_rows=1_000, **options)
    for start in range(0, 4_000, 500):
        keys = np.arange(start, start + 500)
        cache.insert(Keys((pa.array(keys),)), np.ones(500, np.int32), make_rows(cache._columns, keys), 0.0)
    Move(cache, new).bulk(always)
    found = new.lookup(Keys((pa.array(np.arange(4_000)),)), 0.0)
    assert new.stats().entries >= 900
    assert int(found.hit.sum()) == new.stats().entries
    kept = np.flatnonzero(found.hit)
    assert found.rows.column(0).to_pylist() == make_rows(cache._columns, kept).column(0).to_pylist()
    if policy == "fifo":
        assert found.hit[3_000:].mean() >= 0.85
        assert found.hit[:2_000].mean() <= 0.02


def test_entries_move_in_the_order_of_their_use() -> None:
    """So that texts that are read together lie together in the new cache, and not as their keys' hashes have it."""
    cache, new = (make_cache(size_rows=rows, widths=[8, 170]) for rows in (8_000, 9_200))
    cache.insert(Keys((pa.array(np.arange(4_000)),)), np.ones(4_000, np.int32), make_rows(cache._columns, range(4_000)), 0.0)
    used = np.random.default_rng(1).permutation(4_000)
    cache.lookup(Keys((pa.array(used),)), 0.0)
    moved: list[int] = []
    adopt = new.adopt

    def seen(copies: Copies) -> npt.NDArray[np.int64]:
        moved.extend(copies.keys.columns[0].to_pylist())
        return adopt(copies)

    new.adopt = seen  # type: ignore[method-assign]
    Move(cache, new).bulk(always)
    place = np.empty(4_000, np.int64)
    place[used] = np.arange(4_000)
    assert sorted(moved) == list(range(4_000))
    assert (np.diff(place[moved] // 64) >= 0).all(), "64 keys of a batch share a tick"


def test_a_move_takes_over_no_expired_entry_and_lets_none_live_longer() -> None:
    cache, new = make_cache(ttl=10.0), make_cache(ttl=10.0)
    for start, keys in ((0.0, range(10)), (5.0, range(10, 20))):
        cache.insert(Keys((pa.array(keys),)), np.ones(10, np.int32), make_rows(cache._columns, keys), start)
    cache.lookup(Keys((pa.array([0]),)), 11.0)
    move = Move(cache, new)
    move.bulk(always)
    move.rest()
    assert new.stats().entries == 10
    assert new.lookup(Keys((pa.array(range(20)),)), 14.9).hit.sum() == 10
    assert not new.lookup(Keys((pa.array(range(20)),)), 15.1).hit.any()


def test_every_process_goes_on_with_the_new_cache_and_nothing_is_lost(tmp_path: Path) -> None:
    cache, other = shared(tmp_path), shared(tmp_path)
    before = cache.stats().capacity
    cache.notes[:3] = 1.5, 2.5, 3.5
    fill(cache, list(range(2_000)))
    assert resized(cache, LARGE)
    assert cache.stats().capacity > 3 * before
    fill(other, list(range(2_000, 3_000)))
    assert known(other, list(range(3_000))) == list(range(3_000))
    assert known(cache, list(range(3_000))) == list(range(3_000))
    assert other.stats().capacity == cache.stats().capacity == shared(tmp_path).stats().capacity
    assert cache.notes[:3].tolist() == other.notes[:3].tolist() == [1.5, 2.5, 3.5]
    assert cache.maps == other.maps == 2
    assert [path.name for path in (tmp_path / "srj").iterdir()] == ["one"]


def use_until_killed(folder: Path, seed: int) -> None:
    """Look keys up and store those that are missing, for ever; every row is checked."""
    cache, rng = shared(folder), np.random.default_rng(seed)
    while True:
        numbers = np.unique(rng.integers(0, 3_000, 200)).tolist()
        missing = sorted(set(numbers) - set(known(cache, numbers)))
        if missing:
            fill(cache, missing)


def test_while_others_read_and_write_and_are_killed_no_row_becomes_anothers(tmp_path: Path) -> None:
    """Sizes go up and down beside three processes, of which one is killed at a time; these end if a row is another key's."""
    cache = shared(tmp_path)
    done = 0
    for turn in range(4):
        with (
            process(use_until_killed, tmp_path, turn),
            process(use_until_killed, tmp_path, 100 + turn) as one,
            process(use_until_killed, tmp_path, 200 + turn) as two,
        ):
            end = time.monotonic() + 1.5
            while time.monotonic() < end:
                done += resized(cache, LARGE if done % 2 else SMALL)
                time.sleep(0.02)
            assert one.is_alive()
            assert two.is_alive()
        known(cache, list(range(3_000)))
    assert done >= 8


def resize_and_die(folder: Path, where: str) -> None:
    """Be killed in the middle of it."""
    cache = shared(folder)

    def die(*_: object, **__: object) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    if where == "before":
        Move.rest = die  # type: ignore[method-assign]
    elif where == "named":
        SharedCache._begin = die  # type: ignore[method-assign]
    else:
        from pathlib import Path as AnyPath  # noqa: PLC0415

        AnyPath.rename = die  # type: ignore[assignment, method-assign]
    resized(cache, LARGE)


@pytest.mark.parametrize("where", ["before", "marked", "named"])
def test_who_is_killed_while_he_resizes_costs_nobody_a_row(tmp_path: Path, where: str) -> None:
    cache = shared(tmp_path)
    fill(cache, list(range(1_000)))
    with process(resize_and_die, tmp_path, where) as child:
        child.join()
        assert child.exitcode == -signal.SIGKILL
    assert known(cache, list(range(1_000))) == list(range(1_000))
    assert known(shared(tmp_path), list(range(1_000))) == list(range(1_000))
    assert cache.maps == (2 if where == "named" else 1)
    # And it can be resized again, what was left of the first attempt notwithstanding.
    assert resized(cache, SMALL)
    assert len(known(cache, list(range(1_000)))) > 300
    assert [path.name for path in (tmp_path / "srj").iterdir()] == ["one"]


def test_beside_lookups_and_inserts_of_the_same_process(tmp_path: Path) -> None:
    """As an engine has it: one lock for all its threads; and what waited for the lock meanwhile is stored in the new cache."""
    cache, turn, is_over = shared(tmp_path), threading.Lock(), threading.Event()
    sizes = [CONTENTS.fit(size, None) for size in (LARGE, SMALL, 1_000_000)]
    done = []

    def resize() -> None:
        while not is_over.is_set():
            geometry = sizes[len(done) % 3]
            done.append(cache.resize(geometry, CONTENTS.size(geometry), turn))

    resizer = threading.Thread(target=resize)
    resizer.start()
    rng, end = np.random.default_rng(1), time.monotonic() + 3
    while time.monotonic() < end:
        numbers = np.unique(rng.integers(0, 3_000, 300)).tolist()
        with turn:
            there = set(known(cache, numbers))
            fill(cache, [number for number in numbers if number not in there])
            assert len(known(cache, numbers)) > 0.9 * len(numbers)
    is_over.set()
    resizer.join()
    assert all(done)


def test_an_insert_that_waited_for_a_move_goes_into_the_new_cache(tmp_path: Path) -> None:
    """Else each move would lose what comes in meanwhile."""
    cache, other = shared(tmp_path), shared(tmp_path)
    real = cache._lock.exclusive

    @contextmanager
    def late() -> Iterator[bool]:
        assert resized(other, LARGE)  # after this one has looked, before it has the lock
        with real() as held:
            yield held

    cache._lock.exclusive = late  # type: ignore[method-assign]
    fill(cache, [1, 2, 3])
    assert known(other, [1, 2, 3]) == [1, 2, 3]


def test_who_has_no_name_any_more_takes_no_other_cache_out_of_use(tmp_path: Path) -> None:
    """A process that missed two moves must not put its old entries in place of the newest."""
    cache, other = shared(tmp_path), shared(tmp_path)
    assert resized(other, LARGE)
    cache._cache.is_moved = False  # it has not seen the flag
    assert not resized(cache, SMALL)
    fill(other, [7])
    assert known(shared(tmp_path), [7]) == [7]
    assert sorted(path.name for path in (tmp_path / "srj").iterdir()) == ["one"]


def test_without_room_for_both_the_old_one_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = shared(tmp_path)
    fill(cache, list(range(100)))

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.posix_fallocate", full)
    assert not resized(cache, LARGE)
    monkeypatch.undo()
    assert known(cache, list(range(100))) == list(range(100))
    assert cache.maps == 1


def test_who_can_not_open_the_new_one_goes_on_with_the_old(tmp_path: Path) -> None:
    """It asks again a second later."""
    cache = shared(tmp_path)
    answers: list[MapFile | None] = []
    other = shared(tmp_path)
    real, other._again = other._again, lambda: answers.append(None)  # type: ignore[func-returns-value]
    fill(cache, list(range(100)))
    assert resized(cache, LARGE)
    assert known(other, list(range(100))) == list(range(100))
    assert known(other, list(range(100))) == list(range(100))
    assert len(answers) == 1
    other._again, other._look_again = real, 0.0
    fill(cache, [500])
    assert known(other, [500]) == [500]
