"""The keys that an executor's workers look up, in the order of their lookups, for the one worker that measures reuse distances.

Each worker sees a part of the stream, but they share a cache: what it needs shows in all their keys together.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from srj.lookup.map_file import open_map
from srj.lookup.map_lock import MapLock

if TYPE_CHECKING:
    from pathlib import Path

    import numpy.typing as npt

    from srj.lookup.map_file import MapFile

    U64 = npt.NDArray[np.uint64]

_KEYS = 1 << 18  # the last so many hashes are kept
_FOLDER = "keys"
_HEADER_WORDS = 512  # the first 64 are the lock's
_READER, _WRITTEN, _READ, _REFERENCES, _THRESHOLD = range(64, 69)
_SEEN_AT, _WORKERS = 128, 256  # where the times stand at which workers wrote last, by their process numbers; how many
_IS_WORKING = 10.0  # seconds since then
_PATIENCE = 0.02  # seconds for the lock; what can't be written then is left out
_ALL = np.uint64(2**64 - 1)


class Read(NamedTuple):
    """What the reader gets.

    Attributes:
        hashes: that nobody has read yet, in the order in which they were written.
        references: how many lookups of keys these stand for, with those of keys that are not looked at.
        is_new: this process did not read before, and knows nothing of the earlier ones.
    """

    hashes: U64
    references: int
    is_new: bool


class KeyLog:
    """A ring of hashes in a map.

    One process reads, the first that writes. When it has ended, or has not come for so long that half the ring is unread, the next
    that writes takes its place.

    Args:
        map_file: made by `open_log`.
    """

    def __init__(self, map_file: MapFile) -> None:
        self._map_file = map_file
        self._lock = MapLock(map_file, _PATIENCE)
        self._header = np.frombuffer(map_file.memory, np.int64, _HEADER_WORDS)
        self._seen_at = self._header[_SEEN_AT : _SEEN_AT + _WORKERS].view(np.float64)
        self._ring = np.frombuffer(map_file.memory, np.uint64, _KEYS, _HEADER_WORDS * 8)
        self._me = os.getpid()

    def exchange(self, hashes: U64) -> Read | None:
        """Write the hashes of the keys of a batch; the reader gets all that it has not read, these included.

        Returns:
            None in a process that does not read, and where the lock can't be had.
        """
        references, threshold = hashes.size, self._header[_THRESHOLD : _THRESHOLD + 1].view(np.uint64)[0]
        if threshold:
            hashes = hashes[hashes < threshold]
        hashes = hashes[-_KEYS:]
        with self._lock.exclusive() as held:
            if not held:
                return None
            header, written = self._header, int(self._header[_WRITTEN])
            places = np.arange(written, written + hashes.size) % _KEYS
            self._ring[places] = hashes
            written += hashes.size
            header[_WRITTEN] = written
            header[_REFERENCES] += references
            self._seen_at[self._me % _WORKERS] = time.monotonic()
            is_new = header[_READER] != self._me
            if is_new:
                if written - header[_READ] < _KEYS // 2 and _is_alive(int(header[_READER])):
                    return None
                header[_READER], header[_THRESHOLD] = self._me, 0
            begin = max(int(header[_READ]), written - _KEYS)
            read = Read(self._ring[np.arange(begin, written) % _KEYS], int(header[_REFERENCES]), is_new)
            header[_READ], header[_REFERENCES] = written, 0
        return read

    def look_at(self, rate: float) -> None:
        """Let only hashes below this share of all be written; for the reader."""
        self._header[_THRESHOLD : _THRESHOLD + 1].view(np.uint64)[0] = _ALL if rate >= 1 else max(int(rate * 2**64), 1)

    @property
    def workers(self) -> int:
        """How many have written of late."""
        return max(1, int(np.count_nonzero(self._seen_at > time.monotonic() - _IS_WORKING)))

    def close(self) -> None:
        """Leave it to the others."""
        self._lock.close()
        self._map_file.close()


def open_log(folder: Path, name: str) -> KeyLog | None:
    """The log of this name in an executor's folder, which exists; None where there can be none."""
    map_file = open_map(folder / _FOLDER, name, (_HEADER_WORDS + _KEYS) * 8, lambda _: None)
    if map_file is None:
        return None
    if len(map_file.memory) != (_HEADER_WORDS + _KEYS) * 8:
        map_file.close()
        return None
    return KeyLog(map_file)


def _is_alive(process: int) -> bool:
    if not process:
        return False
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
