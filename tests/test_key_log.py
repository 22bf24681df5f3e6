"""The ring to which all workers write the keys that they look up, and which one of them reads."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np

from srj.lookup.key_log import _KEYS, _THRESHOLD, _WRITTEN, KeyLog, open_log
from tests.shared_map import process

if TYPE_CHECKING:
    from pathlib import Path


def log_in(folder: Path) -> KeyLog:
    (folder / "srj").mkdir(mode=0o700, exist_ok=True)
    log = open_log(folder / "srj", "one")
    assert log is not None
    return log


def hashes(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.uint64)


def write_and(folder: Path, numbers: list[int], seconds: float) -> None:
    """In another process."""
    log = log_in(folder)
    log.exchange(hashes(*numbers), len(numbers))
    time.sleep(seconds)


def test_one_process_reads_what_all_write_in_their_order(tmp_path: Path) -> None:
    log = log_in(tmp_path)
    first = log.exchange(hashes(1, 2), 0)
    assert first is not None
    assert (first.hashes.tolist(), first.references, first.is_new) == ([1, 2], 2, True)
    with process(write_and, tmp_path, [3, 4, 5], 0.0) as child:
        child.join()
        assert child.exitcode == 0
    second = log.exchange(hashes(6), 0)
    assert second is not None
    assert (second.hashes.tolist(), second.references, second.missed, second.is_new) == ([3, 4, 5, 6], 4, 3, False)
    assert log.workers == 2
    third = log.exchange(hashes(7), 0)
    assert third is not None
    assert third.missed == 0


def test_a_log_that_could_not_be_left_is_read_by_the_process_s_next(tmp_path: Path) -> None:
    left, now = log_in(tmp_path), log_in(tmp_path)
    assert left.exchange(hashes(1), 0) is not None
    read = now.exchange(hashes(2), 0)
    assert read is not None
    assert (read.hashes.tolist(), read.is_new) == ([2], True)


def test_what_others_miss_while_the_rate_changes_is_told(tmp_path: Path) -> None:
    reader, other = log_in(tmp_path), log_in(tmp_path)
    other._me = -1  # as if in another process
    assert reader.exchange(hashes(1), 0) is not None
    assert other.exchange(hashes(2, 3), 2) is None
    reader.look_at(0.0)
    assert other.exchange(hashes(4), 1) is None
    read = reader.exchange(hashes(5), 0)
    assert read is not None
    assert (read.hashes.tolist(), read.missed) == ([], 3)


def test_a_reader_that_looks_at_nothing_is_replaced_where_others_miss_and_it_does_not_come(tmp_path: Path) -> None:
    reader, other = log_in(tmp_path), log_in(tmp_path)
    other._me = 1  # a process that lives
    assert reader.exchange(hashes(1), 0) is not None
    reader.look_at(0.0)
    many = np.arange(_KEYS // 2, dtype=np.uint64) + 5
    assert [other.exchange(many, 0), other.exchange(many, 0)] == [None, None]  # nothing missed: nothing to look at
    assert other.exchange(many, 1) is None
    assert other.exchange(hashes(2), 0) is not None


def test_when_the_reader_has_ended_the_next_takes_its_place(tmp_path: Path) -> None:
    """And begins anew: what the one before had left was a sample made for it."""
    with process(write_and, tmp_path, [1], 0.0) as child:
        child.join()
    log = log_in(tmp_path)
    log._header[_THRESHOLD] = 5
    read = log.exchange(hashes(2, 2**40), 0)
    assert read is not None
    assert (read.is_new, read.hashes.tolist(), read.references) == (True, [2, 2**40], 2)


def test_a_reader_that_leaves_lets_another_read(tmp_path: Path) -> None:
    first, second = log_in(tmp_path), log_in(tmp_path)
    second._me = -1  # as if in another process
    assert first.exchange(hashes(1), 0) is not None
    assert second.exchange(hashes(2), 0) is None
    first.close()
    read = second.exchange(hashes(3), 0)
    assert read is not None
    assert read.hashes.tolist() == [3]


def test_a_reader_that_does_not_get_the_lock_stays_one(tmp_path: Path) -> None:
    """Its batch is left out; what it has learnt is not."""
    log, other = log_in(tmp_path), log_in(tmp_path)
    assert log.exchange(hashes(1), 0) is not None
    with other._lock.exclusive():
        read = log.exchange(hashes(2), 0)
    assert read is not None
    assert (read.hashes.tolist(), read.references, read.is_new) == ([], 0, False)


def test_a_reader_that_does_not_come_is_replaced_when_half_the_ring_is_unread(tmp_path: Path) -> None:
    with process(write_and, tmp_path, [1], 60.0) as child:
        log = log_in(tmp_path)
        deadline = time.monotonic() + 20
        while not log._header[_WRITTEN] and time.monotonic() < deadline:
            time.sleep(0.01)
        many = np.arange(_KEYS // 4, dtype=np.uint64)
        assert [log.exchange(many, 0) for _ in range(2)] == [None, None]
        read = log.exchange(many, 0)
        assert child.is_alive()
    assert read is not None
    assert read.is_new


def test_keys_that_are_not_looked_at_count_and_are_not_written(tmp_path: Path) -> None:
    log = log_in(tmp_path)
    log.exchange(hashes(1), 0)
    log.look_at(0.5)
    read = log.exchange(hashes(5, 2**63 + 5, 7), 0)
    assert read is not None
    assert (read.hashes.tolist(), read.references) == ([5, 7], 3)
    log.look_at(1.0)
    more = log.exchange(hashes(2**63 + 5), 0)
    assert more is not None
    assert more.hashes.tolist() == [2**63 + 5]


def test_a_batch_longer_than_the_ring_leaves_its_last_keys(tmp_path: Path) -> None:
    log = log_in(tmp_path)
    read = log.exchange(np.arange(_KEYS + 10, dtype=np.uint64), 0)
    assert read is not None
    assert read.hashes.size == _KEYS
    assert (int(read.hashes[0]), int(read.hashes[-1]), read.references) == (10, _KEYS + 9, _KEYS + 10)
