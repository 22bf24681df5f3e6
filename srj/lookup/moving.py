"""A cache's entries moved into one of another size while it is in use."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    import numpy.typing as npt

    from srj.lookup.cache import ColumnarCache

    I64 = npt.NDArray[np.int64]

_WAYS = 8_192  # copied together, some milliseconds in which nobody can write
_BYTES = 64_000_000  # of their rows, at most
_OF_THE_NEW = 16  # and no more than such a part of the new cache's


class Abandoned(Exception):  # noqa: N818  no fault of anybody's
    """The old cache can't be read now: it was torn, or somebody keeps it."""


class Move:
    """Two passes: `bulk`, a part at a time, while others read and write; `rest`, what changed meanwhile, with nobody else there.

    Args:
        old, new: of the same contents; the new one is empty, and seen by nobody else.
    """

    def __init__(self, old: ColumnarCache, new: ColumnarCache) -> None:
        self._old, self._new = old, new
        ways = old.geometry.ways
        self._marks = np.zeros(ways, np.uint64)  # of what was copied
        self._places = np.full(ways, -1, np.int64)  # where it is in the new cache
        new.begin_as(old)

    def bulk(self, reading: Callable[[], AbstractContextManager[bool]]) -> None:
        """Copy all entries.

        Args:
            reading: a context in which the old cache may be read; it says whether it may.

        Raises:
            Abandoned: it can't be read.
        """
        with reading() as held:
            if not held or self._old.is_torn:
                raise Abandoned
            # No more are taken than there are places.
            ways, use, left_out = self._old.most_useful(self._new.geometry.ways)
            self._marks[left_out] = self._old.marks(left_out)  # nothing that `rest` has to look after
            ages = self._old.ages(ways)
        # The most useful come last, and find the places of others. And what was used together lies together, of what was stored
        # together in the order in which it was: where texts lie as their keys' hashes have it, lookups of a stream that
        # goes round take a fifth longer.
        for part in self._parts(ways[np.lexsort((ages, use))]):
            with reading() as held:
                if not held or self._old.is_torn:
                    raise Abandoned
                marks = self._old.marks(part)
                copies = self._old.copies(part[marks != 0])
            self._marks[part] = marks
            self._places[copies.ways] = self._new.adopt(copies)

    def rest(self) -> None:
        """Copy what has been stored since, and drop what has left, with the old cache held alone.

        Raises:
            Abandoned: it was torn meanwhile.
        """
        if self._old.is_torn:
            raise Abandoned
        marks = self._old.marks(np.arange(self._marks.size))
        changed = np.flatnonzero(marks != self._marks)
        # Also what has only left: a later answer may have come and left, after which an earlier one must not come back.
        gone = np.unique(self._places[changed])  # some found the place of others
        self._new.drop(gone[gone >= 0])
        for part in self._parts(changed[marks[changed] != 0]):
            self._new.adopt(self._old.copies(part))
        self._new.begin_as(self._old)

    def _parts(self, ways: I64) -> Iterator[I64]:
        # Those of one part find no places among each other.
        most = min(_WAYS, self._new.geometry.ways // _OF_THE_NEW)
        start = 0
        while start < ways.size:
            stop = start + max(1, min(most, int(self._old.most_hits * _BYTES / 2**30)))
            yield ways[start:stop]
            start = stop
