"""Readers and writers of a map that several processes share, each of which may be stopped or killed at any time."""

from __future__ import annotations

import os
import struct
import time
from contextlib import contextmanager, suppress
from enum import IntEnum
from typing import TYPE_CHECKING
from weakref import WeakSet

try:
    import fcntl
except ImportError:  # Windows: nobody makes one there
    fcntl = None  # type: ignore[assignment]

import numpy as np

from srj.lookup.layout import At

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from srj.lookup.map_file import MapFile

_SHORTEST, _LONGEST = 50e-6, 1e-3  # seconds between two tries
_SUSPENDED_SECONDS = 1.0  # after a lock could not be had, others wait for it no longer, until its holder lets go
_LONGEST_WAIT = 5.0  # seconds altogether, while others take their turns


class Byte(IntEnum):
    """What is locked of a map: bytes of the very file that is mapped, whatever becomes of its name. Their content is no matter."""

    IN_USE = 0
    DATA = 2  # not beside each other, for the system would join them
    TURNSTILE = 4


class MapLock:
    """A lock that many may share or one hold alone, with a bound on the wait.

    The system gives locks to whoever asks first, so readers without pause would keep a writer out for ever. Hence the turnstile, a
    second lock: a waiting writer holds it alone, and readers pass it before they ask. A process that is killed lets go of both.

    Not thread-safe: the threads of a process take turns by a lock of their own, for locks belong to the open file.

    Args:
        map_file: whose lock it is.
        patience: seconds to wait while nobody who holds it alone lets go: a stopped process must not hang the others.
    """

    def __init__(self, map_file: MapFile, patience: float = 0.25) -> None:
        self._map_file = map_file
        self._patience = patience
        self._turnstile: int = Byte.TURNSTILE
        self._turns = np.frombuffer(map_file.memory, np.int64, 1, At.TURNS * 8)
        self._suspended_until = float("-inf")
        self._suspended_at = 0
        self._descriptor = -1
        self._open()  # now, while the file surely has its name
        _locks.add(self)

    @contextmanager
    def shared(self) -> Iterator[bool]:
        """Hold it together with other readers; False when it can't be had in time."""
        with self._held(fcntl.LOCK_SH) as held:
            yield held

    @contextmanager
    def exclusive(self) -> Iterator[bool]:
        """Hold it alone; False when it can't be had in time."""
        with self._held(fcntl.LOCK_EX) as held:
            yield held

    def close(self) -> None:
        """Close its file."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = -1

    @contextmanager
    def _held(self, how: int) -> Iterator[bool]:
        descriptor = self._open()
        if descriptor < 0:
            yield False
            return
        suspended = time.monotonic() < self._suspended_until and self._suspended_at == self._turns[0]
        wait = _Wait(0.0 if suspended else self._patience, self._turns)
        held = False
        try:
            with suppress(OSError):  # the system has no more locks
                held = wait.acquire(descriptor, how, self._turnstile) and wait.acquire(descriptor, how, Byte.DATA)
            release(descriptor, self._turnstile)
            if not held and not suspended:
                self._suspended_until, self._suspended_at = time.monotonic() + _SUSPENDED_SECONDS, int(self._turns[0])
            yield held
        finally:
            if self._descriptor == descriptor:  # else this is a child, forked meanwhile, and the lock is not its own
                if held and how == fcntl.LOCK_EX:
                    self._turns[0] += 1
                # Both, for an exception may have come before the turnstile was let go; the other way it does nothing.
                for byte in (Byte.DATA, self._turnstile):
                    release(descriptor, byte)

    def _open(self) -> int:
        """The map's file, opened for this lock alone; -1 when what stands under its name now, if anything, is another file."""
        if self._descriptor < 0:
            try:
                descriptor = os.open(self._map_file.path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
            except OSError:
                return -1
            if identity(descriptor) != self._map_file.identity:
                os.close(descriptor)
                return -1
            self._descriptor = descriptor
        return self._descriptor


_locks: WeakSet[MapLock] = WeakSet()


def _forget() -> None:
    """In a forked child: its copies of the open files would keep what a killed parent held. It opens its own when it needs them."""
    for lock in list(_locks):
        lock.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


class _Wait:
    """A wait for both locks that goes on while others take their turns: many workers on few cores are slow, not stopped."""

    def __init__(self, patience: float, turns: npt.NDArray[np.int64]) -> None:
        self._turns = turns
        self._seen = int(turns[0])
        self._patience = patience
        self._until = time.monotonic() + patience
        self._end = time.monotonic() + max(patience, _LONGEST_WAIT)

    def acquire(self, descriptor: int, how: int, byte: int) -> bool:
        """Lock a byte of an open file; whether that was possible in time."""
        while not acquire(descriptor, how, min(self._until, self._end), byte):
            seen = int(self._turns[0])
            if seen == self._seen or not self._patience or time.monotonic() >= self._end:
                return False
            self._seen, self._until = seen, time.monotonic() + self._patience
        return True


def acquire(descriptor: int, how: int, until: float, byte: int | None = None) -> bool:
    """Lock an open file; whether that was possible until then.

    Args:
        descriptor: of the file.
        how: ``fcntl.LOCK_SH`` or ``fcntl.LOCK_EX``.
        until: on the monotonic clock; a time that has passed means one try.
        byte: which is locked; None: the file as a whole, which is a lock apart.

    Raises:
        OSError: the system has no such locks, or no more of them.
    """
    pause = _SHORTEST
    while True:
        with suppress(BlockingIOError):
            if byte is None:
                fcntl.flock(descriptor, how | fcntl.LOCK_NB)
            else:
                _set(descriptor, fcntl.F_RDLCK if how == fcntl.LOCK_SH else fcntl.F_WRLCK, byte)
            return True
        if time.monotonic() >= until:
            return False
        time.sleep(pause)
        pause = min(2 * pause, _LONGEST)


def release(descriptor: int, byte: int) -> None:
    """Let go of a byte, whether it was locked or not."""
    _set(descriptor, fcntl.F_UNLCK, byte)


def _set(descriptor: int, how: int, byte: int) -> None:
    # Of the open file, as flock's are, and not of the process: then its threads and its other maps are told apart.
    fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, struct.pack("hhqqi0q", how, os.SEEK_SET, byte, 1, 0))


def identity(descriptor: int) -> tuple[int, int]:
    """Which file it is, by whatever name."""
    status = os.fstat(descriptor)
    return status.st_dev, status.st_ino
