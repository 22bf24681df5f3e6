"""Processes that a process started, and theirs: found, taken over from parents that have ended, and ended."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_SET_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER of Linux's prctl
_LOOK_EVERY = 0.02


def adopt_orphans(on: bool = True) -> bool:
    """Whether this process, not the system's first, becomes the parent of descendants whose own has ended; only Linux can."""
    with suppress(OSError, AttributeError):
        return bool(ctypes.CDLL(None).prctl(_SET_SUBREAPER, int(on), 0, 0, 0) == 0) and on
    return False


def children() -> dict[int, list[int]]:
    """All processes' children, as far as they are there now and the system shows them in /proc."""
    found: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*"):
        # What follows the name, which may hold spaces.
        with suppress(OSError, IndexError):
            parent = int((path / "stat").read_text(errors="replace").rpartition(")")[2].split()[1])
            found.setdefault(parent, []).append(int(path.name))
    return found


def descendants(process: int) -> list[int]:
    """Its children, theirs, and so on, as far as they are there now."""
    known, found, new = children(), list[int](), [process]
    while new:
        new = [child for one in new for child in known.get(one, [])]
        found += new
    return found


def kill_descendants(process: int) -> None:
    """Kill them; not the process."""
    for one in descendants(process):
        with suppress(OSError):
            os.kill(one, signal.SIGKILL)


@contextmanager
def adopting() -> Iterator[Adopted]:
    """Orphans that this process gets while it is open."""
    able = adopt_orphans()
    try:
        yield Adopted(able)
    finally:
        if able:
            adopt_orphans(on=False)


class Adopted:
    """Children that this process did not have before.

    Args:
        able: whether it gets any.
    """

    def __init__(self, able: bool) -> None:
        self.able = able
        self._before = set(children().get(os.getpid(), []))

    def end(self, grace: float) -> None:
        """Wait until all have ended; those that have not after this time, in seconds, are killed, with their descendants."""
        until = time.monotonic() + grace
        while left := self._left():
            if time.monotonic() >= until:
                for one in left:
                    kill_descendants(one)
                    with suppress(OSError):
                        os.kill(one, signal.SIGKILL)
            if time.monotonic() >= until + grace + 5:  # what the system does not let go
                return
            time.sleep(_LOOK_EVERY)

    def _left(self) -> list[int]:
        """Those that run; who has ended is gone after this."""
        left = []
        for child in set(children().get(os.getpid(), [])) - self._before:
            with suppress(OSError):
                if os.waitpid(child, os.WNOHANG)[0] == 0:
                    left.append(child)
        return left
