"""A cache's memory as a file in Spark's own local folder, which all Python workers of an executor map.

Workers are ended when they idle for a minute, and any of them may get any task: what one of them fetched outlives it here.
Spark removes the folder with the executor, also when the driver was killed. Nothing is cleaned up by the workers themselves,
which are killed without warning, except what nobody uses any more (`_sweep`).
"""

from __future__ import annotations

import mmap
import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

try:
    import fcntl
except ImportError:  # Windows has no such locks, so each worker has a cache of its own there
    fcntl = None  # type: ignore[assignment]

from srj.lookup.layout import POPULATE_WRITE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FOLDER = "srj"
LOCKS = (".lock", ".turn")  # beside each map
_MOST_IDLE = 3  # maps that nobody uses now are kept for the next micro-batch, but no more than these
_TRIES = 10


class MapFile:
    """An open map; `memory` is valid as long as somebody refers to it.

    Args:
        path: the file.
        descriptor: open, with a shared lock on it that says that it is in use. Belongs to the map from now on.
        nbytes: its size.
    """

    def __init__(self, path: Path, descriptor: int, nbytes: int) -> None:
        self.path = path
        self._descriptor = descriptor
        try:
            self.memory = mmap.mmap(descriptor, nbytes)
        except BaseException:
            os.close(descriptor)
            raise

    def close(self) -> None:
        """Say that this process uses it no longer."""
        # The map keeps the file open, and with it the lock, as long as anybody refers to its memory.
        fcntl.flock(self._descriptor, fcntl.LOCK_UN)
        os.close(self._descriptor)


def executor_folder() -> Path | None:
    """Where this executor's maps are; None outside Spark's workers."""
    folders = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")
    return Path(folders[0]) / FOLDER if folders[0] else None


def open_map(folder: Path, name: str, nbytes: int, prepare: Callable[[mmap.mmap], object]) -> MapFile | None:
    """The map of this name, made first if it is not there.

    Args:
        folder: made if need be, for this user alone.
        name: a map of the same name holds the same.
        nbytes: the size of a new one; one that is there keeps its own.
        prepare: given the zeros of a new map before anybody else sees it.

    Returns:
        None where it can't be had: no room on the disk, somebody else's folder or file, a system without locks.
    """
    if fcntl is None or not hasattr(os, "posix_fallocate"):
        return None
    path = folder / name
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not _is_own(folder.lstat(), 0o077):
            return None
        for _ in range(_TRIES):
            found = _open(path)
            if found is None:
                _sweep(folder)
                found = _create(path, nbytes, prepare)
            if found is not None:
                return found
    except (OSError, ValueError, OverflowError):
        return None
    return None


def _is_own(status: os.stat_result, forbidden: int) -> bool:
    return status.st_uid == os.geteuid() and not status.st_mode & forbidden


def _open(path: Path) -> MapFile | None:
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    try:
        # Held as long as the map is in use; who sweeps takes it away for a moment only.
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        status = os.fstat(descriptor)
        if not _is_own(status, 0o077):
            raise PermissionError(f"{path} is another user's")
        os.utime(descriptor)
        if not path.exists() or path.stat().st_ino != status.st_ino:  # swept in between
            os.close(descriptor)
            return None
    except BaseException:
        with suppress(OSError):
            os.close(descriptor)
        raise
    return MapFile(path, descriptor, status.st_size)


def _create(path: Path, nbytes: int, prepare: Callable[[mmap.mmap], object]) -> MapFile | None:
    """A new map, complete before it has its name; None when somebody else was faster."""
    unnamed = path.with_name(f"{path.name}.{os.getpid()}")
    unnamed.unlink(missing_ok=True)
    descriptor = os.open(unnamed, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH)
            # All of it now: a file with holes on a full disk would end the process with a signal later.
            os.posix_fallocate(descriptor, 0, nbytes)
        except BaseException:
            os.close(descriptor)
            raise
        made = MapFile(path, descriptor, nbytes)
        try:
            with suppress(OSError):  # else page by page, when they are first written
                made.memory.madvise(POPULATE_WRITE)
            prepare(made.memory)
            os.link(unnamed, path)
        except FileExistsError:
            made.close()
            return None
        except BaseException:
            made.close()
            raise
        return made
    finally:
        unnamed.unlink(missing_ok=True)


def _sweep(folder: Path) -> None:
    """Remove maps that nobody uses, but the last few."""
    idle = sorted(_idle(folder), reverse=True)
    for _, path in idle[_MOST_IDLE - 1 :]:
        for suffix in ("", *LOCKS):
            path.with_name(path.name + suffix).unlink(missing_ok=True)


def _idle(folder: Path) -> Iterator[tuple[float, Path]]:
    for path in folder.iterdir():
        if path.suffix in LOCKS:
            continue
        with suppress(OSError):
            descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                yield path.stat().st_mtime, path
            finally:
                os.close(descriptor)
