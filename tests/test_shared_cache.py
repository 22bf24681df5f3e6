"""The cache that all workers of an executor share: found by others, kept whole by whoever is killed or stopped."""

from __future__ import annotations

import os
import resource
import signal
import stat
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from srj.lookup.entries import Entries
from srj.lookup.placement import Placement
from tests.shared_map import PROCESSES, fill, known, opened, process, shared


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


def stop_in(folder: Path, owner: type, name: str, numbers: list[int]) -> None:
    """Store keys, and be stopped once while others are being stored."""
    cache = shared(folder)
    fill(cache, numbers)
    real = getattr(owner, name)

    def stop(*arguments: Any, **more: Any) -> Any:
        setattr(owner, name, real)
        found = real(*arguments, **more)
        os.kill(os.getpid(), signal.SIGSTOP)
        return found

    setattr(owner, name, stop)
    fill(cache, [number + 250 for number in numbers])


@pytest.mark.parametrize(
    ("owner", "name"),
    [(Placement, "place"), (Placement, "write"), (Entries, "release"), (Entries, "write"), (Entries, "store")],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
def test_a_worker_stopped_while_it_stores_is_done_without_and_ends_its_work_later(tmp_path: Path, owner: type, name: str) -> None:
    """Others count what they do without the cache; when it goes on, nothing is lost and no row is wrong."""
    with process(stop_in, tmp_path, owner, name, list(range(500))) as child:
        until = time.monotonic() + 60
        while "State:\tT" not in Path(f"/proc/{child.pid}/status").read_text():
            assert time.monotonic() < until
            time.sleep(0.01)
        cache = shared(tmp_path, patience=0.1)
        for _ in range(10):
            assert known(cache, list(range(750))) == []
            fill(cache, [1000])
        assert cache.stats().bypasses == 20
        os.kill(child.pid, signal.SIGCONT)
        child.join()
        assert child.exitcode == 0
    assert known(shared(tmp_path), list(range(1001))) == list(range(750))


def hold(folder: Path, ready: Any) -> None:
    """Hold the cache alone until killed."""
    with shared(folder)._lock.exclusive():
        ready.set()
        time.sleep(600)


def test_a_stopped_holder_hangs_nobody(tmp_path: Path) -> None:
    """The others do without the cache, and count it; once the holder is gone they have it again."""
    cache = shared(tmp_path, patience=0.1)
    fill(cache, [1])
    ready = PROCESSES.Event()
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
    with pytest.warns(UserWarning, match="srj, which others may write or read; each worker has one of its own"):
        assert opened(tmp_path) is None
    (tmp_path / "srj").chmod(0o700)
    (tmp_path / "elsewhere").write_bytes(b"x")
    (tmp_path / "srj" / "one").symlink_to(tmp_path / "elsewhere")
    with pytest.warns(UserWarning, match="symbolic links"):
        assert opened(tmp_path) is None
    (tmp_path / "srj" / "one").unlink()
    assert opened(tmp_path) is not None


def open_with_little_room(folder: Path) -> None:
    """In a process that may write small files only."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
    with pytest.warns(UserWarning, match="File too large; each worker has one of its own"):
        assert opened(folder) is None
    assert list((folder / "srj").iterdir()) == []


def test_no_room_for_the_file_leaves_nothing_behind(tmp_path: Path) -> None:
    """As by a quota."""
    with process(open_with_little_room, tmp_path) as child:
        child.join()
        assert child.exitcode == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a file system")
def test_a_full_file_system_leaves_nothing_behind(tmp_path: Path) -> None:
    """A full tmpfs is found out at once and not by a signal later."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=500k", "tmpfs", str(tmp_path)], check=True)
    try:
        with pytest.warns(UserWarning, match="No space left on device; each worker has one of its own"):
            assert opened(tmp_path) is None
        assert list((tmp_path / "srj").iterdir()) == []
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a file system")
def test_a_full_disk_leaves_nothing_behind(tmp_path: Path) -> None:
    """An ext4 file system on a block device, filled by others: a new map is refused, one that was there before stays whole."""
    image, disk = tmp_path / "image", tmp_path / "disk"
    disk.mkdir()
    with image.open("wb") as file:
        file.truncate(8 * 2**20)
    subprocess.run(["mkfs.ext4", "-q", "-F", "-m", "0", str(image)], check=True)
    subprocess.run(["mount", "-o", "loop", str(image), str(disk)], check=True)
    try:
        cache = shared(disk, name="before")
        rest = os.statvfs(disk)
        with (disk / "others").open("wb") as others:
            os.posix_fallocate(others.fileno(), 0, rest.f_bavail * rest.f_frsize - 500_000)
        with pytest.warns(UserWarning, match="No space left on device; each worker has one of its own"):
            assert opened(disk) is None
        assert [path.name for path in (disk / "srj").iterdir()] == ["before"]
        # What was reserved before is whole: its pages are written back to the full disk.
        fill(cache, list(range(500)))
        subprocess.run(["sync", "-f", str(disk)], check=True)
        assert known(cache, list(range(500))) == list(range(500))
        (disk / "others").unlink()
        assert opened(disk) is not None
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)


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
