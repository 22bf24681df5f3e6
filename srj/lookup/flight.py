"""A batch of distinct keys on its way to the database and back."""

from __future__ import annotations

import queue
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from srj.lookup.joined import run_starts
from srj.lookup.keys import Keys

if TYPE_CHECKING:
    from collections.abc import Hashable

    import numpy.typing as npt
    import pyarrow as pa

    from srj.databases.base import Answer

# Where an operator hears of the flights it waits for: each when it has landed, once for every batch that waits for it.
Arrivals = queue.SimpleQueue["Flight"]


@dataclass(eq=False)
class Flight:
    """Keys that are asked together; filled until it is sealed, then asked, then landed with rows or an error.

    Attributes:
        number: which flight of its fetcher it is.
        size: the keys it is to have.
        parts, values: the keys, as columns and as Python values (which the in-flight index needs).
        sealed: no more keys may join.
        landed: `counts`, `starts` and `rows`, or `error`, are there.
        counts: int32, a key's number of rows; starts: int64, where they begin in `rows`.
        started: when the lookup that answered was sent, on the engine's clock; minus infinity: not yet.
        seconds, retries: what it took.
        is_overtaken: some of its keys may be asked anew by a later flight, since this one failed or is too old to join.
    """

    number: int = 0
    size: int = 1
    parts: list[Keys] = field(default_factory=list)
    values: list[Hashable] = field(default_factory=list)
    sealed: bool = False
    landed: bool = False
    error: Exception | None = None
    counts: npt.NDArray[np.int32] = field(default_factory=lambda: np.zeros(0, np.int32))
    starts: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    rows: pa.RecordBatch | None = None
    started: float = float("-inf")
    seconds: float = 0.0
    retries: int = 0
    is_overtaken: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _listeners: list[Arrivals] = field(default_factory=list)
    _counted: bool = False

    def __len__(self) -> int:
        return len(self.values)

    @property
    def landed_rows(self) -> pa.RecordBatch:
        """`rows`, once it has landed without an error."""
        if self.rows is None:
            raise AssertionError("a flight's rows are asked for only after it landed")
        return self.rows

    def add(self, keys: Keys, values: list[Hashable]) -> None:
        """Fill it further."""
        self.parts.append(keys)
        self.values += values

    def keys(self) -> Keys:
        """All its keys."""
        return Keys.concat(self.parts)

    def announce_to(self, arrivals: Arrivals) -> None:
        """Put it there when it has landed; at once if it has already."""
        with self._lock:
            if not self.landed:
                self._listeners.append(arrivals)
                return
        arrivals.put(self)

    def land(self, answer: Answer) -> None:
        """Take the answer. `announce` follows."""
        self.counts = np.bincount(answer.ordinals, minlength=len(self)).astype(np.int32)
        self.starts = run_starts(self.counts)
        self.rows = answer.rows

    def fail(self, error: Exception) -> None:
        """Take an error in the answer's place."""
        self.error = error

    def announce(self) -> None:
        """Tell all who wait that it has landed."""
        with self._lock:
            self.landed = True
        for arrivals in self._listeners:  # nobody adds to them any more
            arrivals.put(self)
        self._listeners.clear()

    def take_count(self) -> bool:
        """True for the first who asks: of all who wait for a flight, one adds it to its metrics."""
        with self._lock:
            first, self._counted = not self._counted, True
        return first
