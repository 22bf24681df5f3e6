"""The cache that all workers of an executor share: found by others, kept whole by whoever is killed or stopped."""

from __future__ import annotations

import multiprocessing
import os
import random
import resource
import signal
import stat
import subprocess
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from srj.lookup.cache import ColumnarCache
from srj.lookup.entries import Entries
from srj.lookup.keys import Keys
from srj.lookup.layout import block_bytes
from srj.lookup.map_file import MapFile, open_map
from srj.lookup.placement import Placement
from srj.lookup.shared_cache import SharedCache

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

SCHEMA = pa.schema({"value": pa.string(), "number": pa.int64()})
SIZE: dict[str, Any] = {"size_bytes": 1_000_000, "size_rows": None, "unique": True}
SPAWN = multiprocessing.get_context("spawn")


def over(memory: Any) -> ColumnarCache:
    """A cache of the tests' table over a map."""
    return ColumnarCache([pa.int64()], SCHEMA, ttl=None, missing_ttl=None, memory=memory, **SIZE)


def opened(folder: Path, name: str = "one") -> MapFile | None:
    """The map in this folder, made if need be."""
    return open_map(folder / "srj", name, block_bytes([pa.int64()], SCHEMA, **SIZE), over)


def shared(folder: Path, patience: float = 0.25) -> SharedCache:
    """The cache in it."""
    map_file = opened(folder)
    assert map_file is not None
    return SharedCache(over(map_file.memory), map_file, patience)


def fill(cache: SharedCache, numbers: list[int], now: float = 0.0) -> None:
    """Rows that carry their key, long enough for the heap."""
    rows = pa.record_batch(
        {"value": [f"the value of key {number:08d}" for number in numbers], "number": pa.array(numbers, pa.int64())}, schema=SCHEMA
    )
    cache.insert(Keys((pa.array(numbers, pa.int64()),)), np.ones(len(numbers), np.int32), rows, now)


def known(cache: SharedCache, numbers: list[int]) -> list[int]:
    """The keys among these that are found; their rows are checked."""
    found = cache.lookup(Keys((pa.array(numbers, pa.int64()),)), 0.0)
    hits = [number for number, hit in zip(numbers, found.hit.tolist(), strict=True) if hit]
    assert found.rows["number"].to_pylist() == hits
    assert found.rows["value"].to_pylist() == [f"the value of key {number:08d}" for number in hits]
    return hits


@contextmanager
def process(function: Callable[..., None], *arguments: object) -> Iterator[Any]:
    """Another process, killed at the end."""
    child = SPAWN.Process(target=function, args=arguments)
    child.start()
    try:
        yield child
    finally:
        child.kill()
        child.join()


def fill_elsewhere(folder: Path, numbers: list[int]) -> None:
    """For another process."""
    fill(shared(folder), numbers)


def test_what_one_process_stores_another_finds_also_when_the_first_has_ended(tmp_path: Path) -> None:
    """Spark ends idle workers; the cache is the executor's."""
    with process(fill_elsewhere, tmp_path, list(range(500))) as child:
        child.join()
        assert child.exitcode == 0
    cache = shared(tmp_path)
    assert known(cache, list(range(450, 550))) == list(range(450, 500))
    fill(cache, [600])
    assert known(shared(tmp_path), [600]) == [600]
    cache.clear()
    assert known(shared(tmp_path), [600, 1]) == []


def die_in(folder: Path, owner: type, name: str, numbers: list[int]) -> None:
    """Store some keys, then be killed while others are being stored."""
    cache = shared(folder)
    fill(cache, numbers)
    real = getattr(owner, name)

    def die(*arguments: Any, **more: Any) -> None:
        real(*arguments, **more)
        os.kill(os.getpid(), signal.SIGKILL)

    setattr(owner, name, die)
    fill(cache, [number + 250 for number in numbers])


@pytest.mark.parametrize(
    ("owner", "name"),
    [(Placement, "find"), (Placement, "place"), (Placement, "write"), (Entries, "release"), (Entries, "write"), (Entries, "store")],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
def test_a_worker_killed_while_it_stores_costs_a_cold_cache_and_no_wrong_row(tmp_path: Path, owner: type, name: str) -> None:
    """Whoever comes next finds the change unfinished."""
    numbers = list(range(500))
    with process(die_in, tmp_path, owner, name, numbers) as child:
        child.join()
        assert child.exitcode == -signal.SIGKILL
    cache = shared(tmp_path)
    assert known(cache, numbers) == []
    assert cache.stats().entries == 0
    fill(cache, numbers)
    assert known(cache, numbers) == numbers
    assert cache.stats().bypasses == 0


def hold(folder: Path, ready: Any) -> None:
    """Hold the cache alone until killed."""
    with shared(folder)._lock.exclusive():
        ready.set()
        time.sleep(600)


def test_a_stopped_holder_hangs_nobody(tmp_path: Path) -> None:
    """The others do without the cache, and count it; once the holder is gone they have it again."""
    cache = shared(tmp_path, patience=0.1)
    fill(cache, [1])
    ready = SPAWN.Event()
    with process(hold, tmp_path, ready) as child:
        assert ready.wait(60)
        os.kill(child.pid, signal.SIGSTOP)
        start = time.monotonic()
        for _ in range(200):
            assert known(cache, [1]) == []
            fill(cache, [2])
        assert time.monotonic() - start < 5, "each of them waited"
        assert cache.stats().bypasses == 400
    until = time.monotonic() + 10
    while known(cache, [1, 2]) != [1]:  # the first waits for nobody for a second
        assert time.monotonic() < until


def test_its_memory_is_what_was_asked_reserved_and_its_owners_alone(tmp_path: Path) -> None:
    """No holes that a full disk would tear open later."""
    cache = shared(tmp_path)
    file = tmp_path / "srj" / "one"
    status = file.stat()
    assert 0.9 * 1_000_000 <= status.st_size <= 1_000_000
    assert status.st_blocks * 512 >= status.st_size
    assert cache.stats().bytes_reserved == status.st_size
    assert stat.S_IMODE(status.st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700


def test_a_folder_or_file_that_others_may_touch_is_refused(tmp_path: Path) -> None:
    """Each worker has a cache of its own then."""
    (tmp_path / "srj").mkdir(mode=0o755)
    (tmp_path / "srj").chmod(0o755)
    assert opened(tmp_path) is None
    (tmp_path / "srj").chmod(0o700)
    (tmp_path / "elsewhere").write_bytes(b"x")
    (tmp_path / "srj" / "one").symlink_to(tmp_path / "elsewhere")
    assert opened(tmp_path) is None
    (tmp_path / "srj" / "one").unlink()
    assert opened(tmp_path) is not None


def open_with_little_room(folder: Path) -> None:
    """In a process that may write small files only."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
    assert opened(folder) is None
    assert list((folder / "srj").iterdir()) == []


def test_no_room_for_the_file_leaves_nothing_behind(tmp_path: Path) -> None:
    """As by a quota."""
    with process(open_with_little_room, tmp_path) as child:
        child.join()
        assert child.exitcode == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a file system")
def test_a_full_file_system_leaves_nothing_behind(tmp_path: Path) -> None:
    """In memory or on a disk, it is found out at once and not by a signal later."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=500k", "tmpfs", str(tmp_path)], check=True)
    try:
        assert opened(tmp_path) is None
        assert list((tmp_path / "srj").iterdir()) == []
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)


def test_maps_that_nobody_uses_are_removed_but_the_last_few(tmp_path: Path) -> None:
    """A condition that changes in each micro-batch makes a map each time."""
    used = opened(tmp_path, "used")
    assert used is not None
    for number in range(8):
        map_file = opened(tmp_path, f"idle{number}")
        assert map_file is not None
        os.utime(map_file.path, (number, number))
        map_file.close()
    assert {path.name for path in (tmp_path / "srj").iterdir()} == {"used", "idle5", "idle6", "idle7"}


def live_dangerously(folder: Path, seed: int) -> None:
    """Look and store without pause; whatever is found must be right."""
    cache, chance = shared(folder), random.Random(seed)
    while True:
        numbers = chance.sample(range(60_000), 400)
        missing = sorted(set(numbers) - set(known(cache, numbers)))
        fill(cache, missing)


def test_killed_and_stopped_at_random_nobody_ever_sees_a_wrong_value(tmp_path: Path) -> None:
    """Four processes over a cache that is too small for their keys, for a few seconds."""
    chance = random.Random(1)
    children = [SPAWN.Process(target=live_dangerously, args=(tmp_path, seed)) for seed in range(4)]
    for child in children:
        child.start()
    try:
        until = time.monotonic() + 8
        kills = 0
        while time.monotonic() < until:
            time.sleep(chance.uniform(0.05, 0.3))
            at = chance.randrange(4)
            assert children[at].exitcode is None, "a process found a wrong value, or failed"
            if chance.random() < 0.5:
                os.kill(children[at].pid or 0, signal.SIGSTOP)
                time.sleep(chance.uniform(0.0, 0.4))
                os.kill(children[at].pid or 0, signal.SIGCONT)
            else:
                children[at].kill()
                children[at].join()
                kills += 1
                children[at] = SPAWN.Process(target=live_dangerously, args=(tmp_path, 100 + kills))
                children[at].start()
        assert kills > 3
        assert all(child.exitcode is None for child in children)
    finally:
        for child in children:
            child.kill()
            child.join()
    cache = shared(tmp_path)
    numbers = list(range(400))
    fill(cache, numbers)
    assert known(cache, numbers) == numbers
