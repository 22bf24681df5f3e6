"""The open connections of a fetcher: lent to one flight at a time, kept for the next, closed when they idle or others need them."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import TYPE_CHECKING, Protocol

from srj.errors import ConnectionFailedError, LookupTimeoutError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from srj.databases.base import Connection
    from srj.lookup.slots import Slots

# Idle connections are closed after this many seconds: long enough for the next micro-batch, short for the server.
_IDLE_SECONDS = 30.0
_SWEEP_SECONDS = 10.0  # how often they are looked for
_WATCH_SECONDS = 0.1  # how often a worker with idle connections looks whether another is in need of one
_TURN_SECONDS = 1.0  # how long a worker keeps its only connection where others have none
_CROWDED_SECONDS = 0.05  # between two tries to have one where there may be no further one
_PATIENCE = 10.0  # and so many times as long as the last try took, in which a server that is full may have kept silent


class Opener(Protocol):
    """Opens a connection, given a timeout in seconds."""

    def __call__(self, timeout: float, /) -> Coroutine[None, None, Connection]:
        """A new connection, or a `ConnectionFailedError`."""
        ...


class Pool:
    """Used by the tasks of one event loop.

    Args:
        open_connection: opens one connection.
        slots: how many there may be.
        connect_timeout: seconds.
        patience: seconds to wait for a connection that others have.
        on_crowded: called with the number that this worker has open when it can't have one more.
        start: runs a coroutine on its own.
        clock: seconds.
    """

    def __init__(
        self,
        open_connection: Opener,
        slots: Slots,
        *,
        connect_timeout: float,
        patience: float,
        on_crowded: Callable[[int], None],
        start: Callable[[Coroutine[None, None, None]], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._open_connection = open_connection
        self._slots = slots
        self._connect_timeout = connect_timeout
        self._patience = patience
        self._on_crowded = on_crowded
        self._start = start
        self._clock = clock
        self._slot_of: dict[int, tuple[Connection, int]] = {}  # by the identity of each open connection
        self._idle: list[tuple[float, Connection]] = []  # since when
        self._turns: deque[asyncio.Future[Connection]] = deque()  # of those who wait
        self._pause, self._next_try = 0.0, float("-inf")  # where the server takes no more connections
        self._since = 0.0  # when the first of those that are open was opened
        self._is_watched = False

    async def take(self) -> Connection:
        """An idle connection that still works, else a new one, else the next that another flight or worker gives back."""
        end = self._clock() + self._patience
        turn: asyncio.Future[Connection] | None = None
        try:
            while True:
                connection = None
                if turn is not None and turn.done():
                    connection, turn = turn.result(), None
                elif self._idle:
                    connection = self._idle.pop()[1]
                if connection is not None:
                    if connection.is_usable():
                        return connection
                    await self.drop(connection)
                elif (opened := await self._try_to_open(end, turn)) is not None:
                    return opened
                else:
                    if turn is None:
                        # Connections that are given back go to those first who have waited longest.
                        turn = asyncio.get_running_loop().create_future()
                        self._turns.append(turn)
                    await asyncio.wait({turn}, timeout=_CROWDED_SECONDS)
        finally:
            if turn is not None:
                if turn.done():
                    self.give_back(turn.result())
                else:
                    self._turns.remove(turn)

    async def _try_to_open(self, end: float, turn: asyncio.Future[Connection] | None) -> Connection | None:
        """A new connection, if there may be one more."""
        if not self._slot_of or self._clock() >= self._next_try:
            slot = self._slots.take()
            if slot is not None:
                opened = await self._open_out_of_turn(slot, turn)
                if opened is not None:
                    return opened
            elif self._clock() > end:
                self._slots.wait_no_longer()
                raise LookupTimeoutError(
                    f"expected a connection to be free within {self._patience:g} s, got all in use by other lookups of this "
                    "executor; let Batch(connections=…) be more, or give it fewer cores"
                )
        if self._slot_of:
            self._on_crowded(len(self._slot_of))
        return None

    async def _open_out_of_turn(self, slot: int, turn: asyncio.Future[Connection] | None) -> Connection | None:
        """A new connection, or None; meanwhile what is given back goes to others, who would have to wait as long for nothing."""
        if turn is None:
            return await self._open(slot)
        self._turns.remove(turn)
        try:
            return await self._open(slot)
        finally:
            self._turns.appendleft(turn)

    def give_back(self, connection: Connection) -> None:
        """Keep it for the next flight, if no other worker is in need of it."""
        now = self._clock()
        if self._slots.is_wanted and (len(self._slot_of) > 1 or now - self._since > _TURN_SECONDS):
            self._start(self.drop(connection))
            return
        if self._turns:
            self._turns.popleft().set_result(connection)
            return
        self._idle.append((now, connection))
        if self._slots.are_shared and not self._is_watched:
            self._is_watched = True
            asyncio.get_running_loop().call_later(_WATCH_SECONDS, self._watch)

    async def drop(self, connection: Connection) -> None:
        """Close it."""
        _, slot = self._slot_of.pop(id(connection))
        try:
            await connection.close()
        finally:
            self._slots.give_back(slot)

    async def close_idle(self, since: float = float("inf")) -> None:
        """Close connections that have been idle since before then."""
        closing = [entry for entry in self._idle if entry[0] <= since]
        self._idle = [entry for entry in self._idle if entry not in closing]
        await asyncio.gather(*(self.drop(connection) for _, connection in closing))

    def sweep(self) -> None:
        """Close idle connections, now and for as long as the loop runs."""
        self._start(self.close_idle(self._clock() - _IDLE_SECONDS))
        asyncio.get_running_loop().call_later(_SWEEP_SECONDS, self.sweep)

    async def close(self) -> None:
        """Close all, when no flight has any, and hold no slot any more."""
        self._idle.clear()
        await asyncio.gather(*(self.drop(connection) for connection, _ in list(self._slot_of.values())))
        self._slots.close()

    async def _open(self, slot: int) -> Connection | None:
        """A new connection; None where the server takes no more than there are."""
        began = self._clock()
        if self._pause:  # one at a time tries again
            self._next_try = began + self._connect_timeout
        try:
            connection = await self._open_connection(self._connect_timeout)
        except BaseException as error:
            self._slots.give_back(slot)
            # Only what is really open can come back: flights that wait for the same dead server don't count.
            if isinstance(error, ConnectionFailedError) and self._slot_of:
                now = self._clock()
                self._pause = max(_CROWDED_SECONDS, _PATIENCE * (now - began))
                self._next_try = now + self._pause
                return None
            raise
        self._pause, self._next_try = 0.0, float("-inf")
        if not self._slot_of:
            self._since = self._clock()
        self._slot_of[id(connection)] = connection, slot
        return connection

    def _watch(self) -> None:
        self._is_watched = bool(self._idle)
        if self._idle:
            if self._slots.is_wanted:
                self._start(self.close_idle())
            asyncio.get_running_loop().call_later(_WATCH_SECONDS, self._watch)
