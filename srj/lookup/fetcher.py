"""The batch thread: collects missing keys into flights and flies several at a time over its own connections."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from typing import TYPE_CHECKING, Protocol

import numpy as np

from srj.errors import ConnectionFailedError, DatabaseError, SrjError
from srj.lookup.flight import Arrivals, Flight

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Hashable

    import numpy.typing as npt
    import pyarrow as pa

    from srj.databases.base import Answer, Connection
    from srj.lookup.keys import Keys

# Idle connections are closed after this many seconds: long enough for the next micro-batch, short for the server.
_IDLE_SECONDS = 30.0
_SWEEP_SECONDS = 10.0  # how often they are looked for
# A key's place is one number, its flight's and below it these bits for the position: hundreds of thousands of tuples in the
# index would cost more than all else here, for Python's garbage collector walks through them again and again.
_POSITION_BITS = 20
_POSITIONS = (1 << _POSITION_BITS) - 1
# How long to wait for somebody else's connection where the server accepts no further one.
_CROWDED_SECONDS = 0.05


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
        fresh: seconds after a flight's start in which keys may still join it: the shorter ttl of the cache; None: always.
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
        fresh: float | None = None,
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
        self._fresh = fresh
        self._places: dict[Hashable, int] = {}
        self._flights: dict[int, Flight] = {}  # by number, while they are on their way
        self._numbers = 0
        self._open = 0
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
        new = self._not_joinable(values)
        if len(new) == len(values):
            self._fill(keys, values)
        elif new:
            self._fill(keys.take(np.array(new)), [values[position] for position in new])
        places = np.fromiter(map(self._places.__getitem__, values), np.int64, len(values))
        numbers, flight_of = np.unique(places >> _POSITION_BITS, return_inverse=True)
        flights = [self._flights[number] for number in numbers.tolist()]
        for flight in flights:
            flight.announce_to(arrivals)
        return flights, flight_of, places & _POSITIONS

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
        try:
            asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(timeout=10)
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(timeout=10)

    def _not_joinable(self, values: list[Hashable]) -> list[int]:
        """Positions of the keys that are not on their way, or in a flight that started too long ago to answer for now."""
        places = self._places
        since = float("-inf") if self._fresh is None else self._clock() - self._fresh
        stale = {number for number, flight in self._flights.items() if flight.started is not None and flight.started <= since}
        if not stale:
            return [position for position, value in enumerate(values) if value not in places]
        return [
            position for position, value in enumerate(values) if value not in places or places[value] >> _POSITION_BITS in stale
        ]

    def _fill(self, keys: Keys, values: list[Hashable]) -> None:
        start = 0
        while start < len(values):
            if self._filling is None:
                self._filling = Flight(self._numbers)
                self._flights[self._numbers] = self._filling
                self._numbers += 1
                self._loop.call_soon_threadsafe(self._arm, self._filling)
            flight, taken = self._filling, len(self._filling)
            count = min(self._most_keys - taken, len(values) - start)
            part = values[start : start + count]
            flight.add(keys.slice(start, count), part)
            first = (flight.number << _POSITION_BITS) + taken
            self._places.update(zip(part, range(first, first + count), strict=True))
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
        self._loop.call_soon(self._sweep)
        self._loop.run_forever()
        self._loop.close()

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
                # Not where a later flight has taken the key over, since this one became too old to join.
                if self._places.get(value, -1) >> _POSITION_BITS == flight.number:
                    del self._places[value]
            del self._flights[flight.number]
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

    async def _ask_once(self, flight: Flight, columns: tuple[pa.Array, ...]) -> Answer:
        connection = await self._connection()
        try:
            flight.started = self._clock()
            answer = await connection.lookup(columns, self._lookup_timeout)
            flight.seconds = self._clock() - flight.started
        except BaseException:
            await self._drop(connection)
            raise
        self._idle.append((self._clock(), connection))
        return answer

    async def _connection(self) -> Connection:
        """An idle connection that still works, else a new one, else the next that another flight gives back."""
        while True:
            while self._idle:
                connection = self._idle.pop()[1]
                if connection.is_usable():
                    return connection
                await self._drop(connection)
            try:
                connection = await self._open_connection(self._connect_timeout)
            except ConnectionFailedError:
                # Only what is really open can come back: flights that wait for the same dead server don't count.
                if not self._open:
                    raise
                await asyncio.sleep(_CROWDED_SECONDS)
            else:
                self._open += 1
                return connection

    async def _drop(self, connection: Connection) -> None:
        self._open -= 1
        await connection.close()

    def _sweep(self) -> None:
        task = self._loop.create_task(self._close_idle(self._clock() - _IDLE_SECONDS))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self._loop.call_later(_SWEEP_SECONDS, self._sweep)

    async def _close_idle(self, since: float) -> None:
        """Close connections that have been idle since before then; all of them if negative."""
        closing = [entry for entry in self._idle if since < 0 or entry[0] <= since]
        self._idle = [entry for entry in self._idle if entry not in closing]
        await asyncio.gather(*(self._drop(connection) for _, connection in closing))

    async def _close(self) -> None:
        tasks = [task for task in self._tasks if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._close_idle(-1.0)
