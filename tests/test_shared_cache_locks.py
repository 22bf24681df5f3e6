"""The locks of the executor's cache belong to the file that is mapped, to one process, and never fail a task."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from srj.lookup import map_file
from srj.lookup.map_file import open_map
from srj.lookup.shared_cache import SharedCache
from tests.shared_map import PROCESSES, fill, known, opened, over, process, shared

if TYPE_CHECKING:
    from pathlib import Path


def remove_as_a_cleaner(folder: Path) -> None:
    """Every file beside the map: all that a cleaner of old files may find untouched for days."""
    for path in (folder / "srj").iterdir():
        if path.name != "one":
            path.unlink()


def test_two_never_hold_one_map_alone_whatever_is_removed_from_its_folder(tmp_path: Path) -> None:
    """What was opened before and after."""
    old = shared(tmp_path, patience=0.01)
    fill(old, [1])
    remove_as_a_cleaner(tmp_path)
    new = shared(tmp_path, patience=0.01)
    assert known(new, [1]) == [1]
    with old._lock.exclusive() as one, new._lock.exclusive() as other:
        assert (one, other) == (True, False)


def test_a_map_that_was_removed_is_not_mixed_up_with_the_next_of_its_name(tmp_path: Path) -> None:
    """Each has its own lock and its own rows."""
    old = shared(tmp_path, patience=0.01)
    fill(old, [1])
    (tmp_path / "srj" / "one").unlink()
    new = shared(tmp_path, patience=0.01)
    assert known(new, [1]) == []
    with old._lock.exclusive() as one, new._lock.exclusive() as other:
        assert (one, other) == (True, True)
    assert known(old, [1]) == [1]
    assert old.stats().bypasses == new.stats().bypasses == 0


def test_a_lock_that_cannot_be_opened_is_done_without_and_counted(tmp_path: Path) -> None:
    """The folder is gone, or another file has the map's name; no task fails."""
    the_map = opened(tmp_path)
    assert the_map is not None
    shutil.rmtree(tmp_path / "srj")
    cache = SharedCache(the_map, over)
    fill(cache, [1])
    assert known(cache, [1]) == []
    other = opened(tmp_path)
    assert other is not None
    fill(cache, [1])
    assert known(cache, [1]) == []
    assert cache.stats().bypasses == 4
    cache.close()


def sleeping_child() -> int:
    """A fork that does nothing but live."""
    pid = os.fork()
    if not pid:
        time.sleep(600)
        os._exit(0)
    return pid


def test_a_child_forked_while_a_map_is_made_does_not_keep_the_folder(tmp_path: Path) -> None:
    """By another thread of the user's, say."""
    children = []

    def prepare(memory: Any) -> None:
        children.append(sleeping_child())
        over(memory)

    try:
        assert open_map(tmp_path / "srj", "one", 1_000_000, prepare) is not None
        assert opened(tmp_path, "two") is not None
    finally:
        for pid in children:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    assert len(children) == 1


def fork_while_holding(folder: Path, pids: Any) -> None:
    """Hold the cache alone, with a child that lives on when this process is killed."""
    with shared(folder)._lock.exclusive() as held:
        assert held
        pids.send(sleeping_child())
        time.sleep(600)


def test_a_killed_holder_s_child_does_not_keep_the_lock(tmp_path: Path) -> None:
    """The others have the cache again at once."""
    cache = shared(tmp_path)
    fill(cache, [1])
    here, there = PROCESSES.Pipe()
    with process(fork_while_holding, tmp_path, there) as child:
        assert here.poll(60)
        grandchild = here.recv()
        try:
            child.kill()
            child.join()
            assert known(cache, [1]) == [1]
            assert cache.stats().bypasses == 0
        finally:
            os.kill(grandchild, signal.SIGKILL)


def test_a_forked_child_takes_its_turn_as_any_other_process(tmp_path: Path) -> None:
    """Its parent's lock is not its own."""
    cache = shared(tmp_path, patience=0.01)
    with cache._lock.exclusive():
        pid = os.fork()
        if not pid:
            held = True
            try:
                with cache._lock.shared() as held:
                    pass
            finally:
                os._exit(held)
        assert os.waitpid(pid, 0)[1] == 0


def test_a_stopped_map_maker_is_waited_for_two_seconds_and_no_more(tmp_path: Path) -> None:
    """Each of its engines' starts would wait as long."""
    assert opened(tmp_path, "other") is not None
    folder = os.open(tmp_path / "srj", os.O_RDONLY)
    fcntl.flock(folder, fcntl.LOCK_EX)
    begin = time.monotonic()
    with pytest.warns(UserWarning, match="without progress.*each worker has one of its own"):
        assert opened(tmp_path) is None
    assert 1.9 < time.monotonic() - begin < 10
    os.close(folder)
    assert opened(tmp_path) is not None


def test_a_map_that_takes_long_to_make_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As long as it grows: four parts, each of which takes more than half of the patience."""
    monkeypatch.setattr(map_file, "_PATIENCE", 0.5)
    monkeypatch.setattr(map_file, "_PART", 2**18)
    reserve, begun = os.posix_fallocate, threading.Event()

    def slow(descriptor: int, start: int, size: int) -> None:
        begun.set()
        time.sleep(0.3)
        reserve(descriptor, start, size)

    monkeypatch.setattr(os, "posix_fallocate", slow)
    with ThreadPoolExecutor(1) as maker:
        made = maker.submit(opened, tmp_path)
        assert begun.wait(60)
        found = opened(tmp_path)
        first = made.result()
    assert first is not None
    assert found is not None
    assert found.identity == first.identity
