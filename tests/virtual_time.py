"""Time that passes when a test says so: answers land in the order, and at the moments, that it chose, and nobody sleeps."""

from __future__ import annotations

import asyncio
import math
import queue
import threading
from typing import TYPE_CHECKING, Any

from srj.lookup.operator import Operator
from tests.scripted import scripted_engine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from srj.lookup.engine import Engine
    from srj.lookup.flight import Flight
    from tests.scripted import Scripted


class VirtualTime:
    """A clock for engines, their batch threads' timers, and the operators that wait for them.

    What is due in the batch threads, be it a lookup's answer or the end of a flight's patience, happens in its order: while time
    passes between two batches of the input, and when an operator waits for something to land. Each thing is done with all that it
    leads to before the next begins, so that one schedule always gives one output.

    Attributes:
        now: the time, in seconds.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self._lock = threading.RLock()  # one thread lets time pass
        self._loops: list[Any] = []

    def engine(self, database: Scripted, **options: Any) -> Engine:
        """An engine in this time."""
        engine = scripted_engine(database, clock=lambda: self.now, **options)
        loop = engine._fetcher._loop
        asyncio.run_coroutine_threadsafe(self._take_over(loop), loop).result()
        with self._lock:
            self._loops.append(loop)
        return engine

    def operator(self, engine: Engine, *waiting_bytes: int) -> Operator:
        """An operator that lets time pass where it would wait."""
        operator = Operator(engine, *waiting_bytes)
        operator._arrivals = _Arrivals(self)
        return operator

    def between(self, batches: Iterable[Any], gaps: Iterable[float]) -> Iterator[Any]:
        """The batches, each after so many seconds."""
        for batch, gap in zip(batches, gaps, strict=False):
            self.let_pass(gap)
            yield batch

    def let_pass(self, seconds: float) -> None:
        """Let happen what is due until then."""
        with self._lock:
            end = self.now + seconds
            while (due := self._next_due()) <= end:
                self.now = due
            self.now = end

    def wait(self, has_happened: Callable[[], bool]) -> None:
        """Let happen what is due next until this has."""
        with self._lock:
            while True:
                due = self._next_due()
                if has_happened():
                    return
                if due == math.inf:
                    raise AssertionError("an operator waits, and nothing will ever happen")
                self.now = due

    async def _take_over(self, loop: Any) -> None:
        for timer in loop._scheduled:  # the search for idle connections, on the real clock
            timer.cancel()
        loop.time = lambda: self.now

    def _next_due(self) -> float:
        """When something is due, once all that was due has happened."""
        return min((asyncio.run_coroutine_threadsafe(self._settle(loop), loop).result() for loop in self._loops), default=math.inf)

    async def _settle(self, loop: Any) -> float:
        while True:
            await asyncio.sleep(0)
            due = min((timer.when() for timer in loop._scheduled if not timer.cancelled()), default=math.inf)
            if not loop._ready and due > self.now:
                return due


class _Arrivals(queue.SimpleQueue["Flight"]):
    """Where an operator waits."""

    def __init__(self, time: VirtualTime) -> None:
        self._time = time

    def get(self, block: bool = True, timeout: float | None = None) -> Flight:  # noqa: ARG002  the queue's own
        """The next flight to land."""
        self._time.wait(lambda: not self.empty())
        return self.get_nowait()
