"""The lookup engine of a process: a cache and a fetcher, shared by all operators that ask the same of the same table."""

from __future__ import annotations

import os
import pickle
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from srj.databases import database
from srj.databases.failures import shown
from srj.errors import DatabaseError, LookupFailedError, MultipleMatchesError
from srj.lookup.batching import Batching, Limits
from srj.lookup.entry_room import Answered
from srj.lookup.fetcher import Fetcher
from srj.lookup.joined import concat_rows, row_bytes, run_sums
from srj.lookup.keys import Keys
from srj.lookup.make_cache import make_auto_size, make_cache
from srj.lookup.map_file import executor_folder
from srj.lookup.metrics import PHASES, UNKNOWN, Chosen
from srj.lookup.shared_cache import SharedCache
from srj.lookup.slots import Slots

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import numpy.typing as npt

    from srj.databases.base import Connection, Description
    from srj.lookup.flight import Arrivals, Flight
    from srj.lookup.interface import Cache, CacheStats, Found
    from srj.lookup.pool import Opener
    from srj.lookup.spec import LookupSpec

# Bytes of rows that one probe may bring out of the cache.
_MOST_BYTES = 2**30
# Bytes of rows that a flight is expected to bring: the server holds its answer several times over while it puts it together, and
# is slower with more, 66 µs a row of 10 KB with 10 MB, 25 with 3.
FLIGHT_BYTES = 4_000_000
# Answers go into the cache together, so many keys or bytes if nobody looks there before: an insert of 1,000 keys takes twice
# as long a key as one of 8,000, and while the batch thread stores nothing it asks nothing.
_STORED_KEYS = 24_000
_STORED_BYTES = 8_000_000
_NEAR = 0.02  # share of the shorter ttl by which an entry may expire early for that


@dataclass(frozen=True)
class Admitted:
    """What became of a batch of m keys.

    Attributes:
        found: what the cache knew.
        missed: positions of the keys that it did not know.
        flights: what carries them.
        flight_of, position_in: for each missed key, the index of its flight and its position there.
    """

    found: Found
    missed: npt.NDArray[np.int64]
    flights: list[Flight]
    flight_of: npt.NDArray[np.int64]
    position_in: npt.NDArray[np.int64]


class Engine:
    """Cache and fetcher of one lookup.

    The lock makes probe-and-request one step, and storing what has landed another: a key is in the cache, or in flight, or not
    yet asked.

    Args:
        spec: what to ask, and how.
        connect: opens a connection; default: to the spec's database.
        clock: seconds, on one clock for all processes of a machine.
        shared_as: the name under which the executor's other processes find the same cache; None: a cache of its own.
        cache: one that was made, and maybe filled, before; None: the one that the spec asks for.

    Attributes:
        spec, clock: as given.
    """

    def __init__(
        self,
        spec: LookupSpec,
        connect: Opener | None = None,
        clock: Callable[[], float] = time.monotonic,
        shared_as: str | None = None,
        cache: Cache | None = None,
    ) -> None:
        self.spec = spec
        self.clock = clock
        self._lock = threading.Lock()
        self._is_closed = False
        self._cache = make_cache(spec, shared_as) if cache is None else cache
        self._heaviest = 1
        # The estimate counts as one key seen, so that the first real ones outweigh it.
        self._landed_keys, self._landed_bytes = 1, expected_bytes(spec.description)
        self._landed_rows = spec.description.rows_per_key
        self._answered = Answered(0, self._landed_rows, self._landed_bytes)
        self._stored_keys, self._stored_bytes = self._landed_keys, self._landed_bytes
        self._failure: Exception | None = None
        # Keys stored together leave a cache that is not larger no room for each other: they would count as what it can't keep.
        self._most_together = self._cache.stats().capacity // 2
        self._one_row = spec.description.unique or spec.at_most_one
        settings = spec.settings
        shorter_ttl = min((ttl for ttl in (settings.ttl, settings.missing_ttl) if ttl is not None), default=None)
        self._near = float("inf") if shorter_ttl is None else shorter_ttl * _NEAR
        notes = None if self._cache.notes is None else self._cache.notes[: Batching.WORDS]
        self._batching = Batching(Limits.of(settings.batch, settings.lookup_timeout), notes)
        self._maps = getattr(self._cache, "maps", 0)
        self._auto = make_auto_size(
            spec,
            self._cache,
            self._batching,
            self._lock,
            self._attach,
            lambda: self._answered,
            shared_as,
        )
        self._fetcher = Fetcher(
            connect or _opener(spec),
            self._lock,
            self._land,
            self._store_if_much,
            most_keys=self._flight_keys,
            slots=Slots(executor_folder() if shared_as is not None else None, spec.question.url, settings.batch.connections),
            batching=self._batching,
            max_wait=settings.batch.wait,
            connect_timeout=settings.connect_timeout,
            lookup_timeout=settings.lookup_timeout,
            retries=settings.retries,
            fresh=shorter_ttl,
            clock=clock,
        )

    def admit(self, keys: Keys, arrivals: Arrivals) -> Admitted:
        """Probe the cache, and ask for what it does not know."""
        with self._lock:
            self._refuse_closed()
            begun = time.thread_time()
            self._store()
            stored = time.thread_time()
            found = self._cache.lookup(keys, self.clock())
            missed = (~found.hit).nonzero()[0]
            if self._auto is not None:
                self._attach()
                self._auto.see(keys.encoded.hashes, missed.size)
            if not len(missed):
                return Admitted(found, missed, [], missed, missed)
            probed = time.thread_time()
            distinct, inverse = (keys if len(missed) == len(keys) else keys.take(missed)).distinct()
            flights, flight_of, position_in = self._fetcher.request(distinct, arrivals)
            if self._auto is not None:
                here = stored - begun + time.thread_time() - probed
                self._auto.asked(len(distinct), missed.size, here, self._fetcher.worked)
            return Admitted(found, missed, flights, flight_of[inverse], position_in[inverse])

    @property
    def most_keys(self) -> int:
        """Keys that may be probed at once, so that what they hit never takes more than 1 GB however large their rows are."""
        with self._lock:
            self._refuse_closed()
            return max(1, min(_MOST_BYTES // self._heaviest, self._cache.most_hits))

    @property
    def bytes_per_key(self) -> float:
        """What the rows of a key that is asked take: as seen so far, before that as the table's description has it."""
        return self._landed_bytes / self._landed_keys

    def waiting_bytes(self, rows: int, nbytes: int, *, hits_wait: bool) -> int | None:
        """What may wait in an operator; None where nothing but its own bound says.

        Args:
            rows, nbytes: that wait in it now.
            hits_wait: whether rows are among them whose keys are known.
        """
        if self._auto is None:
            return None
        self._auto.waited(rows, nbytes, hits_wait=hits_wait)
        return self._auto.waiting_bytes

    def _attach(self) -> None:
        """Go on with the notes of the cache as it is now, which may have been put in place of another."""
        maps = getattr(self._cache, "maps", 0)
        if maps != self._maps and self._cache.notes is not None:
            self._maps, self._most_together = maps, self._cache.stats().capacity // 2
            self._batching.attach(self._cache.notes[: Batching.WORDS])

    def _flight_keys(self) -> int:
        """Keys that may fly together."""
        return max(1, int(FLIGHT_BYTES / max(1.0, self.bytes_per_key)))

    @property
    def in_flight(self) -> int:
        """Lookups to be sent at a time."""
        return self._batching.in_flight

    def chosen(self, cache: CacheStats) -> Chosen:
        """What holds now, whoever has chosen it.

        Args:
            cache: its present state.
        """
        with self._lock:
            watch = None if self._auto is None else self._auto.watch
        # 0 where there is none: what is unknown would leave the bound of an earlier phase.
        phase, bound = (UNKNOWN, UNKNOWN) if watch is None else (PHASES.index(watch.phase.value), watch.bound or 0)
        return Chosen(
            cache.capacity,
            cache.bytes_reserved or UNKNOWN,  # a factory's cache does not say
            phase,
            bound,
            min(self._batching.best_size, self._flight_keys()),
            self._batching.in_flight,
        )

    def take_resizes(self) -> int:
        """How often the cache's size was changed by this process since this was last asked."""
        with self._lock:
            return 0 if self._auto is None else self._auto.take_resizes()

    def flush(self) -> None:
        """Send what is being collected."""
        with self._lock:
            if not self._is_closed:
                self._fetcher.flush()

    def hurry(self) -> None:
        """Send what is being collected if it can be sent at once: rows that could leave are waiting for others."""
        if self._fetcher.is_filling_idly:
            self.flush()

    @property
    def is_alive(self) -> bool:
        """Whether flights can land."""
        return self._fetcher.is_alive

    def cache_stats(self) -> CacheStats:
        """The cache's state."""
        with self._lock:
            self._refuse_closed()
            self._store()
            return self._cache.stats()

    def close(self) -> None:
        """Close connections and the batch thread, and give the cache's memory back. Who waits for a flight gets an error."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
        try:
            if self._auto is not None:
                self._auto.close()
            self._fetcher.close()
        finally:
            with self._lock:
                self._batching.detach()
                if isinstance(self._cache, SharedCache):
                    self._cache.close()
                # Engine and fetcher hold each other, so the memory would stay until the garbage collector comes by.
                del self._cache
                self._auto = None

    def _refuse_closed(self) -> None:
        if self._is_closed:
            raise DatabaseError("expected an open lookup, got one that was closed; make a new one")

    def _land(self, flight: Flight) -> None:
        """Look at an answer before those who wait for it may; in the batch thread."""
        if self._one_row and (flight.counts > 1).any():
            position = int((flight.counts > 1).argmax())
            got = f"got {flight.counts[position]} for {shown(flight.keys().columns, position)}"
            table = self.spec.question.table
            if self.spec.description.unique:
                raise LookupFailedError(
                    f"expected at most one row of {table} for a key, as its unique index promised when the query started, {got}; "
                    "start the query again"
                )
            raise MultipleMatchesError(
                f"expected at most one row of {table} for a key (on_multiple='error'), {got}; use on_multiple='first' or 'all'"
            )
        self._heaviest = max(self._heaviest, _heaviest_answer(flight))
        self._landed_keys += len(flight)
        self._landed_rows += flight.landed_rows.num_rows
        self._landed_bytes += _row_bytes(flight)
        # At once, for who reads it holds no lock.
        self._answered = Answered(self._landed_keys - 1, self._landed_rows, self._landed_bytes)

    def _store_if_much(self) -> None:
        """Keep what waits to be stored bounded though nobody looks into the cache; in the batch thread."""
        if self._landed_keys - self._stored_keys > _STORED_KEYS or self._landed_bytes - self._stored_bytes > _STORED_BYTES:
            with self._lock:
                try:
                    self._store()
                except Exception as error:  # for the next who comes: those who waited for these answers have them
                    self._failure = error

    def _store(self) -> None:
        """Put what has landed into the cache, with the lock held."""
        if self._is_closed:
            return
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        landed = self._fetcher.take_landed()
        self._stored_keys += sum(map(len, landed))
        self._stored_bytes += sum(map(_row_bytes, landed))
        for flights in _together(landed, self._near, self._most_together):
            keys = Keys.concat([flight.keys() for flight in flights])
            counts = np.concatenate([flight.counts for flight in flights])
            rows = concat_rows([flight.landed_rows for flight in flights])
            self._cache.insert(keys, counts, rows, flights[0].started)


def _together(flights: list[Flight], near: float, most_keys: int) -> Iterator[list[Flight]]:
    """Groups of flights to be stored at once, each as of its first start.

    An overtaken flight goes alone, for its overtaker may have the same keys; of the others those that started within `near`
    seconds: an entry then expires that little early, never late. A group of several has no more keys than `most_keys`.
    """
    group: list[Flight] = []
    count = 0
    for flight in sorted(flights, key=lambda one: one.started):
        alone = flight.is_overtaken or (bool(group) and group[0].is_overtaken)
        if group and (alone or flight.started > group[0].started + near or count + len(flight) > most_keys):
            yield group
            group, count = [], 0
        group.append(flight)
        count += len(flight)
    if group:
        yield group


def _row_bytes(flight: Flight) -> int:
    return int(flight.landed_rows.nbytes)


def _opener(spec: LookupSpec) -> Opener:
    system = database(spec.question.url.dialect)

    async def connect(timeout: float) -> Connection:
        return await system.connect(spec.question, spec.description, timeout)

    return connect


def _heaviest_answer(flight: Flight) -> int:
    """The most bytes that the rows of one of its keys take, at least 1."""
    rows = flight.landed_rows
    if rows.num_rows == 0 or rows.num_columns == 0:
        return 1
    return max(1, int(run_sums(row_bytes(rows), flight.starts, flight.counts).max()))


def expected_bytes(description: Description) -> float:
    """What the rows of a key take, by the description's estimates."""
    row = sum(column.width or column.type.bit_width / 8 for column in description.columns)
    return float(row * description.rows_per_key)


# Engines that nobody uses now are kept for the next micro-batch, but no more than these: each holds a cache.
_MOST_IDLE = 3

_engines: dict[str, Engine] = {}  # the least recently used first
_users: dict[str, int] = {}
_engines_lock = threading.Lock()
_inherited: list[dict[str, Engine]] = []


def _start_anew() -> None:
    """In a forked process: threads stayed with the parent, so its engines answer nothing here."""
    global _engines_lock  # noqa: PLW0603  the parent may have held it
    # Kept, for the end of an event loop would reach into the parent's, which shares its files.
    _inherited.append(dict(_engines))
    _engines.clear()
    _users.clear()
    _engines_lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start_anew)


def _engine(fingerprint: str, payload: bytes) -> Engine:
    return Engine(pickle.loads(payload), shared_as=fingerprint)  # noqa: S301  the driver's own


@contextmanager
def engine_for(fingerprint: str, payload: bytes) -> Iterator[Engine]:
    """This process's engine for a lookup, made when it is first asked for and kept when the block ends.

    An engine belongs to the process that made it: a fork has its own.

    Args:
        fingerprint, payload: of the `LookupSpec`; the payload is its pickled form.
    """
    with _engines_lock:
        engine = _engines.pop(fingerprint, None) or _engine(fingerprint, payload)
        _engines[fingerprint] = engine
        _users[fingerprint] = _users.get(fingerprint, 0) + 1
        closing = [_engines.pop(name) for name in [name for name in _engines if name not in _users][:-_MOST_IDLE]]
    try:
        for idle in closing:
            with suppress(TimeoutError):  # a server that does not let go is no fault of this lookup
                idle.close()
        yield engine
    finally:
        with _engines_lock:
            _users[fingerprint] -= 1
            if not _users[fingerprint]:
                del _users[fingerprint]
