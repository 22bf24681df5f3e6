"""The batch thread: collects missing keys into flights and flies several at a time over its own connections."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections import deque
from itertools import repeat
from typing import TYPE_CHECKING

import numpy as np

from srj.errors import ConnectionFailedError, DatabaseError, LookupTimeoutError, SrjError
from srj.lookup.flight import Arrivals, Flight
from srj.lookup.pool import Pool

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Hashable

    import numpy.typing as npt
    import pyarrow as pa

    from srj.databases.base import Answer
    from srj.lookup.batching import Batching
    from srj.lookup.keys import Keys
    from srj.lookup.pool import Opener
    from srj.lookup.slots import Slots

# A key's place is one number, its flight's and below it these bits for the position: hundreds of thousands of tuples in the
# index would cost more than all else here, for Python's garbage collector walks through them again and again.
_POSITION_BITS = 20
_POSITIONS = (1 << _POSITION_BITS) - 1


class Fetcher:
    """Answers missing keys in batches.

    A key is asked once however many rows and operators wait for it. `request`, `take_landed` and `flush` are called with `lock`
    held; nothing here blocks the caller. A key stays in flight until `take_landed`, for the batch thread must not wait for the lock
    each time that an answer comes: the database would wait as well.

    Args:
        open_connection: opens one connection.
        lock: guards the index of keys in flight together with the cache, so that a key is always in one of them.
        on_landed: called in the batch thread, without the lock, when a flight has its answer: may refuse it.
        after_landing: called there when those who wait have heard of it; raises nothing.
        most_keys: how many keys may be in a flight now, for the memory that their rows take.
        slots: how many connections there may be.
        batching: how many keys are put into a flight, and how many flights, and so connections, there are at a time.
        max_wait: seconds that a flight may wait to be filled.
        connect_timeout, lookup_timeout: seconds.
        retries: how often a flight is sent again after its connection failed.
        fresh: seconds after a flight's start in which keys may still join it: the shorter ttl of the cache; None: always.
        clock: seconds; the cache's clock.
    """

    def __init__(
        self,
        open_connection: Opener,
        lock: threading.Lock,
        on_landed: Callable[[Flight], None],
        after_landing: Callable[[], None],
        *,
        most_keys: Callable[[], int],
        slots: Slots,
        batching: Batching,
        max_wait: float,
        connect_timeout: float,
        lookup_timeout: float,
        retries: int,
        fresh: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._lock = lock
        self._on_landed = on_landed
        self._after_landing = after_landing
        self._most_keys = most_keys
        self._batching = batching
        self._max_wait = max_wait
        self._lookup_timeout = lookup_timeout
        self._retries = retries
        self._clock = clock
        self._fresh = fresh
        self._places: dict[Hashable, int] = {}
        self._flights: dict[int, Flight] = {}  # by number, while their keys are in flight
        self._landed: deque[Flight] = deque()
        self._numbers = 0
        self._filling: Flight | None = None
        self._timer: asyncio.TimerHandle | None = None  # of the flight that is being filled
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._pool = Pool(
            open_connection,
            slots,
            connect_timeout=connect_timeout,
            patience=connect_timeout + lookup_timeout,
            on_crowded=batching.refused,
            start=self._start,
            clock=clock,
        )
        self._ready: deque[Flight] = deque()  # sealed, and waiting for one of those under way to land
        self._flying = 0
        self._is_closing = False
        self._asking = 0  # flights whose lookup is under way
        self.worked = 0.0  # seconds of the processor in the batch thread, up to the last landing
        self._thread = threading.Thread(target=self._run, name="srj-fetcher", daemon=True)
        self._thread.start()

    def request(self, keys: Keys, arrivals: Arrivals) -> tuple[list[Flight], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Ask for distinct keys, joining those in flight to their flights.

        Returns:
            The flights that carry them, each of which will be put into `arrivals`; for each key the index of its flight
            among them, and its position in that flight.
        """
        values = keys.values()
        new = self._not_joinable(values)
        if len(new) == len(values):
            places = self._fill(keys, values)
        else:
            places = np.fromiter(map(self._places.get, values, repeat(-1)), np.int64, len(values))
            if new:
                places[new] = self._fill(keys.take(np.array(new)), [values[position] for position in new])
        in_flights = places >> _POSITION_BITS
        numbers = np.unique(in_flights)
        flights = [self._flights[number] for number in numbers.tolist()]
        for flight in flights:
            flight.announce_to(arrivals)
        return flights, np.searchsorted(numbers, in_flights), places & _POSITIONS

    def take_landed(self) -> list[Flight]:
        """The flights that have landed, whose keys are in flight no more: the caller, who holds `lock`, stores their answers."""
        landed = []
        while self._landed:
            flight = self._landed.popleft()
            self._forget(flight)
            if flight.error is None:
                landed.append(flight)
        return landed

    def flush(self) -> None:
        """Send the flight that is being filled: nobody will add to it soon."""
        if self._filling is not None:
            self._seal(self._filling)

    @property
    def is_filling_idly(self) -> bool:
        """Whether a flight is being filled that could be sent now."""
        return self._filling is not None and self._flying + len(self._ready) < self._batching.in_flight

    @property
    def is_alive(self) -> bool:
        """Whether the batch thread runs; when it does not, nothing in flight will ever land."""
        return self._thread.is_alive()

    def close(self) -> None:
        """Close the connections and end the batch thread; flights on their way fail."""
        try:
            asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(timeout=10)
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(timeout=10)

    def _not_joinable(self, values: list[Hashable]) -> list[int]:
        """Positions of the keys that are not on their way, or in a flight that failed or started too long ago to answer for now."""
        places = self._places
        since = float("-inf") if self._fresh is None else self._clock() - self._fresh
        stale = {
            number
            for number, flight in self._flights.items()
            if flight.error is not None or float("-inf") < flight.started <= since
        }
        if not stale:
            if places.keys().isdisjoint(values):  # twice as fast as one by one
                return list(range(len(values)))
            return [position for position, value in enumerate(values) if value not in places]
        for number in stale:
            self._flights[number].is_overtaken = True
        return [
            position for position, value in enumerate(values) if value not in places or places[value] >> _POSITION_BITS in stale
        ]

    def _forget(self, flight: Flight) -> None:
        del self._flights[flight.number]
        places = self._places
        if flight.is_overtaken:
            for value in flight.values:
                # Not where a later flight has taken the key over, which may have landed before this one.
                if places.get(value, -1) >> _POSITION_BITS == flight.number:
                    del places[value]
        else:
            for value in flight.values:
                places.pop(value, None)  # 0.0 and -0.0 are two keys to Arrow and one to a dict

    def _fill(self, keys: Keys, values: list[Hashable]) -> npt.NDArray[np.int64]:
        """Put keys into flights; their places."""
        places = np.arange(len(values), dtype=np.int64)
        start, most_keys = 0, self._most_keys()
        while start < len(values):
            if self._filling is None:
                idle = self._batching.in_flight - self._flying - len(self._ready)
                self._filling = Flight(self._numbers, self._batching.size(most_keys, len(values), idle))
                self._flights[self._numbers] = self._filling
                self._numbers += 1
                self._loop.call_soon_threadsafe(self._arm, self._filling)
            flight, taken = self._filling, len(self._filling)
            most = min(flight.size, most_keys)
            stop = min(start + max(1, most - taken), len(values))
            flight.add(keys.slice(start, stop - start), values[start:stop])
            places[start:stop] += (flight.number << _POSITION_BITS) + taken - start
            start = stop
            if len(flight) >= most:
                self._seal(flight)
        self._places.update(zip(values, places.tolist(), strict=True))
        return places

    def _seal(self, flight: Flight) -> None:
        flight.sealed = True
        self._filling = None
        self._loop.call_soon_threadsafe(self._take_off, flight)

    # What follows runs in the batch thread.

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.call_soon(self._pool.sweep)
        self._loop.run_forever()
        self._loop.close()

    def _arm(self, flight: Flight) -> None:
        self._timer = self._loop.call_later(self._max_wait, self._seal_late, flight)

    def _seal_late(self, flight: Flight) -> None:
        if not flight.sealed:
            with self._lock:
                if not flight.sealed:
                    self._seal(flight)

    def _take_off(self, flight: Flight) -> None:
        # Its timer, which may have long to go, would keep all its rows until then. The next flight's has not begun.
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._ready.append(flight)
        self._launch()

    def _launch(self) -> None:
        while self._ready and self._flying < self._batching.in_flight and not self._is_closing:
            self._flying += 1
            self._start(self._fly(self._ready.popleft()))

    async def _fly(self, flight: Flight) -> None:
        try:
            try:
                flight.land(await self._ask(flight))
            finally:
                self._flying -= 1
                self._launch()  # before all that is to be done with the answer: the database shall not wait for it
            self._on_landed(flight)
        except SrjError as error:
            flight.fail(error)
        except asyncio.CancelledError:
            flight.fail(_closed())
        except Exception as error:  # whatever it is, those who wait must hear of it rather than wait for ever
            flight.fail(error)
        # First this: whoever hears of it can store it, and does so at the end of a task, after which nobody may come for long.
        self._landed.append(flight)
        self.worked = time.thread_time()
        flight.announce()
        self._after_landing()

    async def _ask(self, flight: Flight) -> Answer:
        """One lookup, sent again after a failed connection, each time after a longer and random pause."""
        columns = flight.keys().columns
        while True:
            try:
                return await self._ask_once(flight, columns)
            except ConnectionFailedError as error:
                await self._pool.close_idle()  # they were likely cut with this one
                if flight.retries >= self._retries:
                    tries = f"{flight.retries + 1} attempts" if flight.retries else "one attempt"
                    raise ConnectionFailedError(f"{error} (given up after {tries})") from error
            await asyncio.sleep(0.1 * 2**flight.retries * random.uniform(0.5, 1.5))  # noqa: S311  not a secret
            flight.retries += 1

    async def _ask_once(self, flight: Flight, columns: tuple[pa.Array, ...]) -> Answer:
        connection = await self._pool.take()
        self._asking += 1
        asking = self._asking
        try:
            flight.started = self._clock()
            answer = await connection.lookup(columns, self._lookup_timeout)
            landed = self._clock()
            flight.seconds = landed - flight.started
        except BaseException as error:
            if isinstance(error, LookupTimeoutError):
                self._batching.timed_out()
            await self._pool.drop(connection)
            raise
        finally:
            self._asking -= 1
        self._pool.give_back(connection)
        self._batching.landed(len(flight), flight.seconds, landed, flying=asking, is_busy=bool(self._ready))
        return answer

    def _start(self, work: Coroutine[None, None, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _close(self) -> None:
        self._is_closing = True  # what is ready, or will be, fails below
        tasks = [task for task in self._tasks if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._pool.close()
        with self._lock:  # those that were still being filled, or whose task never began
            for flight in self._flights.values():
                if not flight.landed:
                    flight.fail(_closed())
                    flight.announce()


def _closed() -> DatabaseError:
    return DatabaseError("expected an answer from the database, but srj was closed while it was awaited; make a new lookup")
