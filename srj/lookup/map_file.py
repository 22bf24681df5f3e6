"""A cache's memory as a file in Spark's own local folder, which all Python workers of an executor map.

Workers are ended when they idle for a minute, and any of them may get any task: what one of them fetched outlives it here.
Spark removes the folder with the executor, also when the driver was killed. Nothing is cleaned up by the workers themselves,
which are killed without warning, except what nobody uses any more (`_sweep`).
"""

from __future__ import annotations

import mmap
import os
import time
import warnings
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

try:
    import fcntl
except ImportError:  # Windows has no such locks, so each worker has a cache of its own there
    fcntl = None  # type: ignore[assignment]

from srj.lookup.layout import POPULATE_WRITE
from srj.lookup.map_lock import Byte, acquire, identity, release

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FOLDER = "srj"
_MOST_IDLE = 3  # maps that nobody uses now are kept for the next micro-batch, but no more than these
_UNFINISHED = ".new"
_PATIENCE = 2.0  # seconds to wait for another process that makes a map, while nothing is seen of its progress
_LONGEST_WAIT = 30.0  # seconds altogether
_PART = 2**26  # bytes that are reserved at a time, so that whoever waits sees the progress


class MapFile:
    """An open map; `memory` is valid as long as somebody refers to it.

    Args:
        path: the file, as long as it has this name: something may remove it.
        descriptor: open, with a shared lock on it that says that it is in use. Belongs to the map from now on.
        nbytes: its size.
        unfinished: the name it has until it takes `path`; None: it has that.
    """

    def __init__(self, path: Path, descriptor: int, nbytes: int, unfinished: Path | None = None) -> None:
        self.path = path
        self._descriptor, self._unfinished = descriptor, unfinished
        try:
            self.identity = identity(descriptor)
            self.memory = mmap.mmap(descriptor, nbytes)
        except BaseException:
            os.close(descriptor)
            raise

    @property
    def has_name(self) -> bool:
        """Whether the file of that name is this one."""
        try:
            status = self.path.stat()
        except OSError:
            return False
        return (status.st_dev, status.st_ino) == self.identity

    def take_name(self) -> None:
        """From now on it is the map of its path, in place of any before."""
        if self._unfinished is not None:
            self._unfinished.rename(self.path)
            self._unfinished = None

    def close(self) -> None:
        """Say that this process uses it no longer; what took no name goes."""
        if self._unfinished is not None:
            self._unfinished.unlink(missing_ok=True)
        # The map keeps the file open, and with it the lock, as long as anybody refers to its memory.
        release(self._descriptor, Byte.IN_USE)
        os.close(self._descriptor)


def executor_folder() -> Path | None:
    """Where this executor's maps are; None outside Spark's workers."""
    folders = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")
    return Path(folders[0]) / FOLDER if folders[0] else None


def open_map(folder: Path, name: str, nbytes: int, prepare: Callable[[mmap.mmap], object]) -> MapFile | None:
    """The map of this name, made first if it is not there.

    Args:
        folder: made if need be, for this user alone; what it stands in must be there.
        name: a map of the same name holds the same.
        nbytes: the size of a new one; one that is there keeps its own.
        prepare: given the zeros of a new map before anybody else sees it.

    Returns:
        None where it can't be had: no room on the disk, somebody else's folder or file, a system without locks.
    """
    if not hasattr(fcntl, "F_OFD_SETLK") or not hasattr(os, "posix_fallocate"):
        return None
    path = folder / name
    try:
        folder.mkdir(mode=0o700, exist_ok=True)  # not its parents: Spark, when it stops, removes them for good
        _check_own(folder, folder.lstat())
        found = _open(path)
        if found is None:
            # One process makes it: many at once would need its room many times.
            with _alone(folder):
                found = _open(path)
                if found is None:
                    _sweep(folder)
                    found = _create(path, nbytes, prepare)
    except (OSError, ValueError, OverflowError) as error:
        warnings.warn(
            f"expected a cache of {nbytes:,} bytes in {folder} for all workers, got {error}; each worker has one of its own, so "
            "make room there, let spark.local.dir name another folder, or give a smaller cache",
            stacklevel=2,
        )
        return None
    return found


def unnamed_map(path: Path, nbytes: int) -> MapFile | None:
    """A new map that has no name yet, to be given one by `MapFile.take_name`, or to be closed.

    Args:
        path: the name that it may take, of another map.
        nbytes: its size.

    Returns:
        None where there is no room for it.
    """
    try:
        with ExitStack() as held:
            _sweep_unfinished(path.parent, held)
        return _reserve(path.with_name(f"{path.name}.{os.getpid()}{_UNFINISHED}"), path, nbytes)
    except (OSError, ValueError, OverflowError):
        return None


def _check_own(path: Path, status: os.stat_result) -> None:
    if status.st_uid != os.geteuid() or status.st_mode & 0o077:
        raise PermissionError(f"{path}, which others may write or read")


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Be the only process that makes or removes maps; a process that is killed lets go."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        end = time.monotonic() + _LONGEST_WAIT
        seen = _progress(folder)
        while not acquire(descriptor, fcntl.LOCK_EX, time.monotonic() + _PATIENCE):
            last, seen = seen, _progress(folder)
            if seen == last or time.monotonic() >= end:
                raise _kept(folder)
        yield
    finally:
        fcntl.flock(descriptor, fcntl.LOCK_UN)  # a child forked meanwhile has the file open as well, and with it the lock
        os.close(descriptor)


def _progress(folder: Path) -> list[tuple[str, int]]:
    """What changes while another process makes or removes maps."""
    seen = [("", folder.stat().st_mtime_ns)]
    for unfinished in folder.glob(f"*{_UNFINISHED}"):
        with suppress(FileNotFoundError):  # finished just now
            seen.append((unfinished.name, unfinished.stat().st_mtime_ns))
    return seen


def _lock_use(descriptor: int, path: Path) -> None:
    """Say that a map is in use."""
    if not acquire(descriptor, fcntl.LOCK_SH, time.monotonic() + _PATIENCE, Byte.IN_USE):
        raise _kept(path)


def _kept(path: Path) -> TimeoutError:
    return TimeoutError(f"no lock on {path} in {_PATIENCE:.0f} s without progress, which a stopped process may hold")


def _open(path: Path) -> MapFile | None:
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    try:
        # Held as long as the map is in use: what nobody holds may be swept.
        _lock_use(descriptor, path)
        status = os.fstat(descriptor)
        _check_own(path, status)
        if not status.st_nlink:  # swept in between
            os.close(descriptor)
            return None
        os.utime(descriptor)
    except BaseException:
        with suppress(OSError):
            os.close(descriptor)
        raise
    return MapFile(path, descriptor, status.st_size)


def _create(path: Path, nbytes: int, prepare: Callable[[mmap.mmap], object]) -> MapFile:
    """A new map, complete before it has its name."""
    made = _reserve(path.with_name(path.name + _UNFINISHED), path, nbytes)
    try:
        prepare(made.memory)
        made.take_name()
    except BaseException:
        made.close()
        raise
    return made


def _reserve(unfinished: Path, path: Path, nbytes: int) -> MapFile:
    """A new map without its name, in use."""
    descriptor = os.open(unfinished, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        try:
            _lock_use(descriptor, unfinished)
            # All of it now: a file with holes on a full disk would end the process with a signal later.
            for start, size in _parts(descriptor, nbytes):
                os.posix_fallocate(descriptor, start, size)
        except BaseException:
            os.close(descriptor)
            raise
        made = MapFile(path, descriptor, nbytes, unfinished)
        try:
            with suppress(OSError):  # else page by page, when they are first written
                for start, size in _parts(descriptor, nbytes):
                    made.memory.madvise(POPULATE_WRITE, start, size)
        except BaseException:
            made.close()
            raise
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
    return made


def _parts(descriptor: int, nbytes: int) -> Iterator[tuple[int, int]]:
    """Where each part of a new map starts, and its size; whoever waits for the map sees that one was begun."""
    for start in range(0, nbytes, _PART):
        os.utime(descriptor)
        yield start, min(_PART, nbytes - start)


def _sweep(folder: Path) -> None:
    """Remove what a killed process did not finish, and maps that nobody uses, but the last few."""
    with ExitStack() as held:
        _sweep_unfinished(folder, held)
        idle = sorted(((path.stat().st_mtime, path) for path in folder.iterdir() if _is_idle(path, held)), reverse=True)
        for _, path in idle[_MOST_IDLE - 1 :]:
            path.unlink(missing_ok=True)


def _sweep_unfinished(folder: Path, held: ExitStack) -> None:
    """Remove what a killed process did not finish; what is being made is in use."""
    for unfinished in folder.glob(f"*{_UNFINISHED}"):
        if _is_idle(unfinished, held):
            unfinished.unlink(missing_ok=True)


def _is_idle(path: Path, held: ExitStack) -> bool:
    """Whether nobody uses a map; nobody can begin to until `held` ends."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
    except OSError:  # not ours
        return False
    held.callback(os.close, descriptor)
    held.callback(release, descriptor, Byte.IN_USE)  # before it, for a child forked meanwhile
    return acquire(descriptor, fcntl.LOCK_EX, time.monotonic(), Byte.IN_USE)
