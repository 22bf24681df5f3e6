"""Readers and writers of a map that several processes share, each of which may be stopped or killed at any time."""

from __future__ import annotations

import os
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

try:
    import fcntl
except ImportError:  # Windows: nobody makes one there
    fcntl = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from collections.abc import Iterator

    from srj.lookup.map_file import MapFile

LOCKS = (".lock", ".turn")  # beside each map
_SHORTEST, _LONGEST = 50e-6, 1e-3  # seconds between two tries
_SUSPENDED_SECONDS = 1.0  # after a lock could not be had, others wait for it no longer


class MapLock:
    """A lock that many may share or one hold alone, with a bound on the wait.

    The system gives locks to whoever asks first, so readers without pause would keep a writer out for ever. Hence the turnstile, a
    second lock: a waiting writer holds it alone, and readers pass it before they ask. A process that is killed lets go of both.

    Not thread-safe: the threads of a process take turns by a lock of their own, for locks belong to the open file.

    Args:
        map_file: whose lock it is.
        patience: seconds to wait for whoever holds it: a stopped process must not hang the others.
    """

    def __init__(self, map_file: MapFile, patience: float = 0.25) -> None:
        self._paths = [map_file.path.with_name(map_file.path.name + suffix) for suffix in LOCKS]
        self._patience = patience
        self._suspended_until = float("-inf")
        self._pid = 0
        self._descriptors: list[int] = []

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
        """Close its files."""
        if self._pid == os.getpid():
            for descriptor in self._descriptors:
                os.close(descriptor)
        self._descriptors = []

    @contextmanager
    def _held(self, how: int) -> Iterator[bool]:
        lock, turnstile = self._open()
        now = time.monotonic()
        until = now if now < self._suspended_until else now + self._patience
        try:
            held = acquire(turnstile, how, until) and acquire(lock, how, until)
            fcntl.flock(turnstile, fcntl.LOCK_UN)
            if not held and now >= self._suspended_until:
                self._suspended_until = time.monotonic() + _SUSPENDED_SECONDS
            yield held
        finally:
            # Both, for an exception may have come before the turnstile was let go; the other way it does nothing.
            for descriptor in (lock, turnstile):
                fcntl.flock(descriptor, fcntl.LOCK_UN)

    def _open(self) -> list[int]:
        """The files, opened by this process itself: a fork would share its parent's locks."""
        if self._pid != os.getpid():
            self._descriptors = [os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600) for path in self._paths]
            self._pid = os.getpid()
        return self._descriptors


def acquire(descriptor: int, how: int, until: float) -> bool:
    """Lock an open file; whether that was possible until then.

    Args:
        descriptor: of the file.
        how: ``fcntl.LOCK_SH`` or ``fcntl.LOCK_EX``.
        until: on the monotonic clock; a time that has passed means one try.
    """
    pause = _SHORTEST
    while True:
        with suppress(BlockingIOError):
            fcntl.flock(descriptor, how | fcntl.LOCK_NB)
            return True
        if time.monotonic() >= until:
            return False
        time.sleep(pause)
        pause = min(2 * pause, _LONGEST)
