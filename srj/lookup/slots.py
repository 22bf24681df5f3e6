"""The connections of an executor to one database: so many and no more, over all its Python workers.

Each is a byte of a file that its holder has locked, so a killed worker's are free at once. A worker that has none and needs one
says so by a lock that others can see; who has several, or has had one for long, then gives one back.
"""

from __future__ import annotations

import os
import struct
import warnings
from contextlib import suppress
from hashlib import sha256
from typing import TYPE_CHECKING
from weakref import WeakSet

try:
    import fcntl
except ImportError:  # Windows: each worker counts its own there
    fcntl = None  # type: ignore[assignment]

from srj.lookup.map_lock import acquire, release

if TYPE_CHECKING:
    from pathlib import Path

    from srj.table import DatabaseUrl

_FOLDER = "connections"
_WANTED = 1 << 20  # the byte that those hold together who wait for their first connection


class Slots:
    """Counts connections; used by one thread.

    Args:
        folder: where the files of this executor stand; None: only this process's are counted.
        url: the database; all lookups in it share their slots.
        most: connections.
    """

    def __init__(self, folder: Path | None, url: DatabaseUrl, most: int) -> None:
        self._most = most
        self._held: set[int] = set()
        self._is_waiting = False
        self._descriptor = -1
        self._path: Path | None = None
        if folder is not None and hasattr(fcntl, "F_OFD_SETLK"):
            place = f"{url.dialect} {url.host} {url.port} {url.database} {url.user}"
            self._path = folder / _FOLDER / sha256(place.encode()).hexdigest()[:16]
        _all.add(self)

    def take(self) -> int | None:
        """A slot for a new connection; None while there is none, and where others wait for their first (once, without any)."""
        self._open()
        if self.is_wanted:
            # Who has just given one back would else have it again before they look.
            if not self._held:
                self._wait(waits=True)
            return None
        for slot in range(self._most):
            if slot not in self._held and self._lock(slot):
                self._held.add(slot)
                self._wait(waits=False)
                return slot
        if not self._held:
            self._wait(waits=True)
        return None

    def wait_no_longer(self) -> None:
        """Who waited for its first connection has given up: others may keep theirs."""
        self._wait(waits=False)

    def give_back(self, slot: int) -> None:
        """The connection is closed."""
        self._held.discard(slot)
        if self._descriptor >= 0:
            release(self._descriptor, 2 * slot)

    @property
    def are_shared(self) -> bool:
        """Whether other processes count with these."""
        return self._descriptor >= 0

    @property
    def is_wanted(self) -> bool:
        """Whether another worker waits for its first connection."""
        if self._descriptor < 0 or self._is_waiting:
            return False
        asked = struct.pack("hhqqi0q", fcntl.F_WRLCK, os.SEEK_SET, _WANTED, 1, 0)
        try:
            answer = fcntl.fcntl(self._descriptor, fcntl.F_OFD_GETLK, asked)
        except OSError as error:
            self._count_alone(error)
            return False
        return bool(struct.unpack("hhqqi0q", answer)[0] != fcntl.F_UNLCK)

    def close(self) -> None:
        """Give all back."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor, self._path = -1, None
        self._held.clear()

    def _open(self) -> None:
        """Only when there is something to count: a worker that finds all in the cache leaves no file."""
        path, self._path = self._path, None
        if path is None:
            return
        try:
            for folder in (path.parent.parent, path.parent):
                folder.mkdir(mode=0o700, exist_ok=True)  # not what they stand in: Spark, when it stops, removes that for good
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            self._count_alone(error)

    def _lock(self, slot: int) -> bool:
        try:
            # Not beside each other, for the system would join them.
            return self._descriptor < 0 or acquire(self._descriptor, fcntl.LOCK_EX, 0.0, 2 * slot)
        except OSError as error:
            self._count_alone(error)
            return True

    def _count_alone(self, error: OSError) -> None:
        """Where the system has no locks, or no more of them."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = -1
        warnings.warn(
            f"expected to count this executor's connections with its other workers, got {error}; each opens up to {self._most} now",
            stacklevel=3,
        )

    def _wait(self, *, waits: bool) -> None:
        if waits == self._is_waiting or self._descriptor < 0:
            return
        self._is_waiting = waits
        with suppress(OSError):  # then nobody hears of it
            if waits:
                acquire(self._descriptor, fcntl.LOCK_SH, 0.0, _WANTED)
            else:
                release(self._descriptor, _WANTED)


_all: WeakSet[Slots] = WeakSet()


def _forget() -> None:
    """In a forked process: what is locked through these files is its parent's."""
    for slots in list(_all):
        with suppress(OSError):
            slots.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
