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
_READER, _WRITTEN, _READ, _REFERENCES, _THRESHOLD, _MISSED = range(64, 70)
_SEEN_AT, _WORKERS = 128, 256  # where the times stand at which workers wrote last, by their process numbers; how many
_IS_WORKING = 10.0  # seconds since then
_IS_AWAY = 60.0  # seconds since the reader wrote last: Spark ends workers that idle for so long
_HARDLY_ANY = 1  # the threshold of a reader that looks at nothing; 0 stands for all
_PATIENCE = 0.02  # seconds for the lock; what can't be written then is left out


class Read(NamedTuple):
    """What the reader gets.

    Attributes:
        hashes: that nobody has read yet, in the order in which they were written.
        references: how many lookups of keys these stand for, with those of keys that are not looked at.
        missed: how many of these the cache did not know.
        is_new: this process did not read before, and knows nothing of the earlier ones.
    """

    hashes: U64
    references: int
    missed: int
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
        self._me, self._is_reader = os.getpid(), False

    def exchange(self, hashes: U64, missed: int) -> Read | None:
        """Write the hashes of the keys of a batch; the reader gets all that it has not read, these included.

        Args:
            hashes: of the keys.
            missed: how many of them the cache did not know.

        Returns:
            None in a process that does not read.
        """
        with self._lock.exclusive() as held:
            if not held:  # these keys are left out
                return Read(hashes[:0], 0, 0, is_new=False) if self._is_reader else None
            header, now = self._header, time.monotonic()
            is_new = header[_READER] != self._me or not self._is_reader
            if is_new and not self._is_unread(now):
                is_new = self._is_reader = False
            elif is_new:
                # What was written before is a sample that was made for another reader.
                header[_READER], self._is_reader = self._me, True
                self._start(0)
            self._seen_at[self._me % _WORKERS] = now
            threshold = header[_THRESHOLD : _THRESHOLD + 1].view(np.uint64)[0]
            taken = (hashes[hashes < threshold] if threshold else hashes)[-_KEYS:]
            written = int(header[_WRITTEN])
            self._ring[np.arange(written, written + taken.size) % _KEYS] = taken
            written += taken.size
            header[_WRITTEN] = written
            header[_REFERENCES] += hashes.size
            header[_MISSED] += missed
            if not self._is_reader:
                return None
            begin = max(int(header[_READ]), written - _KEYS)
            read = Read(self._ring[np.arange(begin, written) % _KEYS], int(header[_REFERENCES]), int(header[_MISSED]), is_new)
            header[_READ], header[_REFERENCES], header[_MISSED] = written, 0, 0
        return read

    def look_at(self, rate: float) -> None:
        """Let only hashes below this share of all be written, next to none for 0; for the reader."""
        threshold = 0 if rate >= 1 else max(int(rate * 2**64), _HARDLY_ANY)
        mine = self._header[_THRESHOLD : _THRESHOLD + 1].view(np.uint64)
        if int(mine[0]) != threshold:
            with self._lock.exclusive() as held:
                if held and self._header[_READER] == self._me:
                    self._start(threshold)

    def _is_unread(self, now: float) -> bool:
        """Whether somebody else has to read, for the reader has ended or does not come."""
        header = self._header
        reader, unread = int(header[_READER]), int(header[_WRITTEN] - header[_READ])
        is_away = now - self._seen_at[reader % _WORKERS] > _IS_AWAY
        if header[_THRESHOLD] == _HARDLY_ANY and header[_MISSED]:  # it would look again, if it came
            unread = int(header[_REFERENCES])
        # A log of this process that could not be left in time names it still, or a dead one of the same number.
        return unread >= _KEYS // 2 or is_away or reader == self._me or not _is_alive(reader)

    def _start(self, threshold: int) -> None:
        """From now on hashes below this are written, 0: all; those that were written otherwise are left out."""
        header = self._header
        header[_THRESHOLD : _THRESHOLD + 1].view(np.uint64)[0] = threshold
        header[_READ], header[_REFERENCES] = header[_WRITTEN], 0

    @property
    def workers(self) -> int:
        """How many have written of late."""
        return max(1, int(np.count_nonzero(self._seen_at > time.monotonic() - _IS_WORKING)))

    def close(self) -> None:
        """Leave it to the others."""
        if self._is_reader:
            with self._lock.exclusive() as held:
                if held and self._header[_READER] == self._me:
                    self._header[_READER] = 0
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
