"""Servers that fall silent or end connections, and engines that are closed meanwhile; without Spark."""

from __future__ import annotations

import itertools
import os
import pickle
import queue
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest

from srj import Batch, ConnectionFailedError, DatabaseError, LookupTimeoutError
from srj.lookup import engine as engines
from srj.lookup.engine import Engine
from srj.lookup.keys import Keys
from srj.lookup.operator import Operator
from tests.ground import Ground, join, spec_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from srj.lookup.flight import Arrivals
    from tests.servers import Server


class Wire:
    """Passes bytes between clients and a server, until it is told or sees certain bytes: then nothing comes, and nothing closes."""

    def __init__(self, server: Server, silent_at: bytes | None = None) -> None:
        self._target = (server.host, server.port)
        self._silent_at = silent_at
        self.is_silent = False
        self._sockets: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """End all connections."""
        for one in [self._listener, *self._sockets]:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self._sockets.append(client)
                if self.is_silent:
                    continue
                server = socket.create_connection(self._target)
                self._sockets.append(server)
                threading.Thread(target=self._pump, args=(client, server), daemon=True).start()
                threading.Thread(target=self._pump, args=(server, client), daemon=True).start()

    def _pump(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                if self._silent_at is not None and self._silent_at in data:
                    self.is_silent = True
                if not self.is_silent:
                    target.sendall(data)


def test_a_connection_that_the_server_ends_while_it_is_idle_is_made_anew(postgres_ground: Ground) -> None:
    """Also when a lookup is sent before the end has arrived here."""
    postgres_ground.table("ended", "id int PRIMARY KEY, v int", "(1, 1)")
    try:
        with postgres_ground.engine("ended", ttl=1e-4, missing_ttl=1e-4, retries=3) as engine:
            postgres_ground.sql(
                "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET idle_session_timeout = 200', current_database()); END $$"
            )
            for round_ in range(20):
                assert join(engine, pa.array([1])) == [(0, 1)]
                time.sleep(0.197 + round_ % 7 * 0.001)
    finally:
        postgres_ground.sql(
            "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I RESET idle_session_timeout', current_database()); END $$"
        )


def test_a_server_that_falls_silent_is_given_up_in_time(ground: Ground) -> None:
    """While a connection is prepared or while a lookup is on its way, with an index or without: nothing waits for ever."""
    ground.table("unindexed", "id int, v varchar(20)", "(1, 'one')")
    cases = list(itertools.product(("numbers", "unindexed"), ("session", "lookup")))
    with ThreadPoolExecutor(len(cases)) as pool:  # for each of them waits
        given_up = [pool.submit(_error_of_silence, ground, table, moment) for table, moment in cases]
    for case, future in zip(cases, given_up, strict=True):
        assert isinstance(future.result(), (LookupTimeoutError, ConnectionFailedError)), case


def _error_of_silence(ground: Ground, table: str, moment: str) -> BaseException | None:
    """What a join raises within six seconds when its server says nothing more from this moment on."""
    last = b"jit = off" if ground.is_postgres else b"join_cache_level" if table == "unindexed" else b"lower_case_table_names"
    spec = spec_of(ground.url, table, "id", connect_timeout="1 s", lookup_timeout="1 s", retries=0)
    lookup = b"unnest(" if ground.is_postgres else b"JSON_TABLE"
    with closing(Wire(ground.server, last if moment == "session" else lookup)) as wire:
        engine = Engine(replace(spec, question=replace(spec.question, url=replace(spec.question.url, port=wire.port))))
        with ThreadPoolExecutor(1) as pool:
            future = pool.submit(join, engine, pa.array([1]))
            try:
                ended = bool(wait([future], timeout=6.0).done)
            finally:
                engine.close()  # which also ends a lookup that hangs
        assert ended
        return future.exception()


def test_an_engine_closes_soon_and_quietly_though_its_server_is_silent(postgres_ground: Ground) -> None:
    """Sixteen idle connections, none of which gets an answer to its farewell: another query's start waits for this."""
    spec = spec_of(postgres_ground.url, "numbers", "id", batch=Batch(size=1, in_flight=16, connections=16))
    with closing(Wire(postgres_ground.server)) as wire:
        engine = Engine(replace(spec, question=replace(spec.question, url=replace(spec.question.url, port=wire.port))))
        join(engine, pa.array(np.arange(200)))
        assert len(engine._fetcher._pool._idle) > 8
        wire.is_silent = True
        started = time.monotonic()
        engine.close()
        assert time.monotonic() - started < 6.0


def test_an_operator_whose_engine_is_closed_under_its_feet_says_so(postgres_ground: Ground) -> None:
    """Rather than wait, or speak of an event loop."""
    with postgres_ground.engine("numbers", batch=Batch(size=1000, max_wait="20 s")) as engine:

        def batches() -> Iterator[tuple[pa.Array]]:
            yield (pa.array([1]),)
            engine.close()

        with pytest.raises(DatabaseError, match="srj was closed while it was awaited"):
            list(Operator(engine).in_order(batches()))
    with postgres_ground.engine("numbers") as engine:

        def more() -> Iterator[tuple[pa.Array]]:
            yield from batches()
            yield (pa.array([2]),)

        with pytest.raises(DatabaseError, match="closed"):
            list(Operator(engine).in_order(more()))


def test_an_engine_may_be_closed_twice_and_says_that_it_is_closed(postgres_ground: Ground) -> None:
    """To those who wait for a flight that is being filled at once, and to those who come later."""
    with postgres_ground.engine("numbers", batch=Batch(size=1000, max_wait="20 s")) as engine:
        arrivals: Arrivals = queue.SimpleQueue()
        (flight,) = engine.admit(Keys.of((pa.array([1], pa.int32()),)), arrivals).flights
        started = time.monotonic()
        engine.close()
        assert arrivals.get(timeout=1) is flight
        assert time.monotonic() - started < 2
        assert "closed" in str(flight.error)
        engine.close()
        engine.flush()
        with pytest.raises(DatabaseError, match="expected an open lookup, got one that was closed; make a new one"):
            join(engine, pa.array([1]))
        with pytest.raises(DatabaseError, match="closed"):
            engine.cache_stats()


def test_a_closed_engine_leaves_no_file_open_and_no_thread(postgres_ground: Ground) -> None:
    """Not even until the garbage collector comes by."""
    postgres_ground.join("numbers", pa.array([1]))
    before = len(list(Path("/proc/self/fd").iterdir())), threading.active_count()
    for number in range(5):
        postgres_ground.join("numbers", pa.array([1]), where=f"id <> {10 + number}")
    assert (len(list(Path("/proc/self/fd").iterdir())), threading.active_count()) == before


def test_a_connection_that_the_server_closed_while_idle_is_not_used_again(ground: Ground) -> None:
    """Even where a failed lookup is not to be tried again: it would never have been sent."""
    with ground.engine("numbers", retries=0) as engine:
        assert join(engine, pa.array([1])) == [(0, "one")]
        if ground.is_postgres:
            mine = f"application_name = 'srj' AND datname = '{ground.name}'"
            ground.sql(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {mine}")
        else:
            others = f"SELECT id FROM information_schema.processlist WHERE db = '{ground.name}' AND id <> CONNECTION_ID()"
            for (number,) in ground.sql(others):
                ground.sql(f"KILL {number}")
        time.sleep(0.3)
        assert join(engine, pa.array([2])) == [(0, "two")]


def test_fewer_connections_than_wanted_are_enough(postgres_ground: Ground) -> None:
    """A role that may open two: the lookups that find no third one wait for these."""
    login = {"user": "srj_attacks_few", "password": "few"}
    postgres_ground.sql("CREATE ROLE srj_attacks_few LOGIN PASSWORD 'few' CONNECTION LIMIT 2")
    postgres_ground.sql("CREATE OR REPLACE VIEW slow_numbers AS SELECT id, v, pg_sleep(0.4) IS NULL AS slept FROM numbers")
    postgres_ground.sql("GRANT SELECT ON numbers, slow_numbers TO srj_attacks_few")
    url = postgres_ground.server.url_for(database=postgres_ground.name, **login)
    with postgres_ground.engine("slow_numbers", url=url, columns=["v", "slept"], batch=Batch(size=1, in_flight=4)) as engine:
        assert join(engine, pa.array([1, 2, 3])) == [(0, "one", False), (1, "two", False), (2, "three", False)]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_process_has_an_engine_of_its_own(postgres_ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    """The parent's engine came along without its thread: it must not be used."""
    monkeypatch.setenv("SRJ_ATTACKS", postgres_ground.server.password)
    spec = spec_of(postgres_ground.url, "numbers", "id")
    spec = replace(spec, question=replace(spec.question, url=spec.question.url.with_password("${SRJ_ATTACKS}")))
    name, payload = spec.fingerprint(), pickle.dumps(spec)
    with engines.engine_for(name, payload) as engine:
        join(engine, pa.array([1]))
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            with engines.engine_for(name, payload) as engine:
                os.write(writing, repr(join(engine, pa.array([2]))).encode())
        except BaseException as error:  # the child must not return into pytest
            os.write(writing, repr(error).encode())
        os._exit(0)
    os.waitpid(child, 0)
    engines._engines.pop(name).close()
    assert os.read(reading, 1000).decode() == "[(0, 'two')]"


# URLs and secrets
