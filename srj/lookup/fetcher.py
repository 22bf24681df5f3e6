"""The batch thread: collects missing keys into flights and flies several at a time over its own connections."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from itertools import repeat
from typing import TYPE_CHECKING, Protocol

import numpy as np

from srj.errors import ConnectionFailedError, DatabaseError, SrjError
from srj.lookup.flight import Arrivals, Flight

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Hashable

    import numpy.typing as npt

    from srj.databases.base import Answer, Connection
    from srj.lookup.keys import Keys

# Idle connections are closed after this many seconds: long enough for the next micro-batch, short for the server.
_IDLE_SECONDS = 30.0


class Opener(Protocol):
    """Opens a connection, given a timeout in seconds."""

    def __call__(self, timeout: float, /) -> Coroutine[None, None, Connection]:
        """A new connection, or a `ConnectionFailedError`."""
        ...


class Fetcher:
    """Answers missing keys in batches.

    A key is asked once however many rows and operators wait for it. `request` and `flush` are called with `lock` held;
    nothing here blocks the caller.

    Args:
        open_connection: opens one connection.
        lock: guards the index of keys in flight together with the cache, so that a key is always in one of them.
        on_landed: called in the batch thread, with `lock` held, when a flight has its answer: stores it in the cache.
        most_keys: keys in a flight.
        in_flight: flights, and so connections, at a time.
        latency: seconds that a flight may wait to be filled.
        connect_timeout, lookup_timeout: seconds.
        retries: how often a flight is sent again after its connection failed.
        clock: seconds; the cache's clock.
    """

    def __init__(
        self,
        open_connection: Opener,
        lock: threading.Lock,
        on_landed: Callable[[Flight], None],
        *,
        most_keys: int,
        in_flight: int,
        latency: float,
        connect_timeout: float,
        lookup_timeout: float,
        retries: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._open_connection = open_connection
        self._lock = lock
        self._on_landed = on_landed
        self._most_keys = most_keys
        self._latency = latency
        self._connect_timeout = connect_timeout
        self._lookup_timeout = lookup_timeout
        self._retries = retries
        self._clock = clock
        self._places: dict[Hashable, tuple[Flight, int]] = {}
        self._filling: Flight | None = None
        self._idle: list[tuple[float, Connection]] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._slots = asyncio.Semaphore(in_flight)
        self._thread = threading.Thread(target=self._run, name="srj-fetcher", daemon=True)
        self._thread.start()

    def request(self, keys: Keys, arrivals: Arrivals) -> tuple[list[Flight], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Ask for distinct keys, joining those in flight to their flights.

        Returns:
            The flights that carry them, each of which will be put into `arrivals`; for each key the index of its flight
            among them, and its position in that flight.
        """
        values = keys.values()
        places = [self._places.get(value) for value in values] if self._places else [None] * len(values)
        new = [position for position, place in enumerate(places) if place is None]
        if len(new) == len(values):
            self._fill(keys, values)
        elif new:
            self._fill(keys.take(np.array(new)), [values[position] for position in new])
        found = [self._places[value] for value in values]
        flights = list(dict.fromkeys(flight for flight, _ in found))
        for flight in flights:
            flight.announce_to(arrivals)
        index = {flight: number for number, flight in enumerate(flights)}
        flight_of = np.fromiter((index[flight] for flight, _ in found), np.int64, len(found))
        position_in = np.fromiter((position for _, position in found), np.int64, len(found))
        return flights, flight_of, position_in

    def flush(self) -> None:
        """Send the flight that is being filled: nobody will add to it soon."""
        if self._filling is not None:
            self._seal(self._filling)

    @property
    def is_alive(self) -> bool:
        """Whether the batch thread runs; when it does not, nothing in flight will ever land."""
        return self._thread.is_alive()

    def close(self) -> None:
        """Close the connections and end the batch thread; flights on their way fail."""
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(timeout=10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=10)

    def _fill(self, keys: Keys, values: list[Hashable]) -> None:
        start = 0
        while start < len(values):
            if self._filling is None:
                self._filling = Flight()
                self._loop.call_soon_threadsafe(self._arm, self._filling)
            flight, taken = self._filling, len(self._filling)
            count = min(self._most_keys - taken, len(values) - start)
            part = values[start : start + count]
            flight.add(keys.slice(start, count), part)
            self._places.update(zip(part, zip(repeat(flight), range(taken, taken + count)), strict=False))
            start += count
            if len(flight) == self._most_keys:
                self._seal(flight)

    def _seal(self, flight: Flight) -> None:
        flight.sealed = True
        self._filling = None
        self._loop.call_soon_threadsafe(self._take_off, flight)

    # What follows runs in the batch thread.

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    def _arm(self, flight: Flight) -> None:
        self._loop.call_later(self._latency, self._seal_late, flight)

    def _seal_late(self, flight: Flight) -> None:
        with self._lock:
            if not flight.sealed:
                self._seal(flight)

    def _take_off(self, flight: Flight) -> None:
        task = self._loop.create_task(self._fly(flight))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _fly(self, flight: Flight) -> None:
        try:
            async with self._slots:
                flight.land(await self._ask(flight))
        except SrjError as error:
            flight.fail(error)
        except asyncio.CancelledError:
            flight.fail(DatabaseError("expected an answer from the database, but srj was closed while it was awaited"))
        except Exception as error:  # whatever it is, those who wait must hear of it rather than wait for ever
            flight.fail(error)
        with self._lock:
            if flight.error is None:
                try:
                    self._on_landed(flight)
                except Exception as error:  # as above
                    flight.fail(error)
            for value in flight.values:
                self._places.pop(value, None)
            flight.announce()

    async def _ask(self, flight: Flight) -> Answer:
        """One lookup, sent again after a failed connection, each time after a longer and random pause."""
        columns = flight.keys().columns
        while True:
            try:
                return await self._ask_once(flight, columns)
            except ConnectionFailedError as error:
                await self._close_idle(-1.0)  # they were likely cut with this one
                if flight.retries >= self._retries:
                    tries = f"{flight.retries + 1} attempts" if flight.retries else "one attempt"
                    raise ConnectionFailedError(f"{error} (given up after {tries})") from error
            await asyncio.sleep(0.1 * 2**flight.retries * random.uniform(0.5, 1.5))  # noqa: S311  not a secret
            flight.retries += 1

    async def _ask_once(self, flight: Flight, columns: tuple[object, ...]) -> Answer:
        connection = self._idle.pop()[1] if self._idle else await self._open_connection(self._connect_timeout)
        try:
            flight.started = self._clock()
            answer = await connection.lookup(columns, self._lookup_timeout)
            flight.seconds = self._clock() - flight.started
        except BaseException:
            await connection.close()
            raise
        if connection.is_usable():
            self._idle.append((self._clock(), connection))
            self._loop.call_later(_IDLE_SECONDS + 1, self._take_idle)
        return answer

    def _take_idle(self) -> None:
        task = self._loop.create_task(self._close_idle(self._clock() - _IDLE_SECONDS))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _close_idle(self, since: float) -> None:
        """Close connections that have been idle since before then; all of them if negative."""
        closing = [entry for entry in self._idle if since < 0 or entry[0] <= since]
        self._idle = [entry for entry in self._idle if entry not in closing]
        for _, connection in closing:
            await connection.close()

    async def _close(self) -> None:
        tasks = [task for task in self._tasks if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._close_idle(-1.0)
