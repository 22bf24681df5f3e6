"""The bound on an executor's connections: asked of the server itself while several workers look keys up, one of which is killed."""

from __future__ import annotations

import asyncio
import os
import pickle
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from srj import Batch
from srj.errors import ConnectionFailedError, LookupTimeoutError
from srj.experiments.delay_proxy import DelayProxy, delayed
from srj.lookup.engine import Engine
from srj.lookup.operator import Operator
from srj.lookup.pool import Pool
from srj.lookup.slots import Slots
from srj.table import DatabaseUrl
from tests.ground import Ground, spec_of
from tests.scripted import Scripted, scripted_engine
from tests.shared_map import PROCESSES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from srj.databases.base import Connection

WORKERS = 4
KEYS = 1200
URL = DatabaseUrl.parse("postgresql://me@here/there")


@pytest.fixture
def proxy(ground: Ground) -> Iterator[DelayProxy]:
    """A network with 5 ms each way."""
    with delayed(ground.server.host, ground.server.port, 0.005) as proxy:
        yield proxy


@pytest.fixture
def ground(postgres_ground: Ground) -> Iterator[Ground]:
    """With a table of the numbers' sevenfold."""
    postgres_ground.table("sevens", "id int PRIMARY KEY, v int")
    postgres_ground.sql(f"INSERT INTO sevens SELECT id, 7 * id FROM generate_series(1, {WORKERS * KEYS}) AS id; ANALYZE sevens")
    yield postgres_ground
    postgres_ground.sql("DROP TABLE sevens")


def work(folder: Path, password: str, payload: bytes, first: int, start: Any, results: Any) -> None:
    """A worker: an engine in this executor's folder, and keys of its own; all of them start together."""
    os.environ |= {"SPARK_LOCAL_DIRS": str(folder), "SRJ_TEST_PASSWORD": password}
    engine = Engine(pickle.loads(payload), shared_as="one")  # noqa: S301  the test's own
    keys = list(range(first, first + KEYS))
    batches = [(pa.array(keys[start : start + 100], pa.int32()),) for start in range(0, KEYS, 100)]
    start.wait(60)
    found = [joined.outer()[1]["v"].to_pylist() for joined in Operator(engine).in_order(batches)]
    is_right = [value for values in found for value in values] == [7 * key for key in keys]
    results.put((first, is_right))
    engine.close()


@pytest.mark.parametrize("bound", [1, 2, 5])
def test_no_more_connections_than_the_bound_over_all_workers(
    ground: Ground, proxy: DelayProxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bound: int
) -> None:
    """Four workers that would each have eight; all of them finish, also where they have to take turns, and one that is killed."""
    password = ground.server.password
    monkeypatch.setenv("SRJ_TEST_PASSWORD", password)
    url = ground.url.replace(f":{password}@", ":${SRJ_TEST_PASSWORD}@").replace(f":{ground.server.port}/", f":{proxy.port}/")
    batch = Batch(size=20, in_flight="auto", connections=bound)
    payload = pickle.dumps(spec_of(url, "sevens", "id", batch=batch))
    results, start = PROCESSES.Queue(), PROCESSES.Barrier(WORKERS)
    workers = [
        PROCESSES.Process(target=work, args=(tmp_path, password, payload, 1 + KEYS * number, start, results))
        for number in range(WORKERS)
    ]
    for worker in workers:
        worker.start()
    seen, killed, end = [], False, time.monotonic() + 60
    while any(worker.is_alive() for worker in workers) and time.monotonic() < end:
        seen.append(ground.sql("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'srj'")[0][0])
        if seen[-1] and not killed:
            os.kill(workers[0].pid or 0, signal.SIGKILL)
            killed = True
        time.sleep(0.005)
    for worker in workers:
        worker.join(10)
    assert killed
    answers = dict(results.get(timeout=5) for _ in range(WORKERS - 1))
    assert answers == {1 + KEYS * number: True for number in range(1, WORKERS)}
    # A connection that was closed, or whose worker was killed, is the server's for a moment longer.
    assert sum(count > bound for count in seen) <= max(2, len(seen) // 20)
    assert max(seen) >= bound


def test_slots_are_counted_over_all_who_hold_them(tmp_path: Path) -> None:
    """Each once, and free again when they are given back or their holder is gone."""
    one, other = Slots(tmp_path, URL, 3), Slots(tmp_path, URL, 3)
    assert [one.take(), one.take(), other.take(), other.take(), one.take()] == [0, 1, 2, None, None]
    one.give_back(1)
    assert other.take() == 1
    other.close()
    assert [one.take(), one.take(), one.take()] == [1, 2, None]
    one.close()


def test_who_has_none_is_seen_by_those_who_have(tmp_path: Path) -> None:
    """Until it has one; who has some already waits for its own."""
    rich, poor = Slots(tmp_path, URL, 2), Slots(tmp_path, URL, 2)
    assert [rich.take(), rich.take(), rich.take()] == [0, 1, None]
    assert not rich.is_wanted
    assert not poor.is_wanted
    assert poor.take() is None
    assert rich.is_wanted
    rich.give_back(0)
    assert rich.take() is None, "who has one leaves what was given back to who has none"
    assert poor.take() == 0
    assert not rich.is_wanted
    assert poor.take() is None
    assert not rich.is_wanted


def test_who_waits_goes_before_who_has_just_given_its_only_one_back(tmp_path: Path) -> None:
    """And then it is the other's turn to wait."""
    one, other = Slots(tmp_path, URL, 1), Slots(tmp_path, URL, 1)
    assert [one.take(), other.take()] == [0, None]
    one.give_back(0)
    assert one.take() is None
    assert other.take() == 0
    assert other.is_wanted
    other.give_back(0)
    assert one.take() == 0


def test_other_databases_and_processes_without_a_folder_have_slots_of_their_own(tmp_path: Path) -> None:
    """A bound is one server's, database's and user's."""
    elsewhere = DatabaseUrl.parse("postgresql://me@there/there")
    several = [Slots(tmp_path, URL, 1), Slots(tmp_path, elsewhere, 1), Slots(None, URL, 1), Slots(None, URL, 1)]
    assert [slots.take() for slots in several] == [0, 0, 0, 0]
    assert [slots.take() for slots in several] == [None] * 4


def test_a_worker_that_never_gets_a_connection_says_so(ground: Ground, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its lookups fail, in time, by a sentence."""
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    options = {"batch": Batch(connections=1), "connect_timeout": "200 ms", "lookup_timeout": "100 ms"}
    spec = spec_of(ground.url, "sevens", "id", **options)
    holder = Slots(tmp_path / "srj", spec.question.url, 1)
    assert holder.take() == 0
    engine = Engine(spec, shared_as="one")
    with pytest.raises(
        LookupTimeoutError, match=r"expected a connection to be free within 0\.3 s, got all in use by other lookups"
    ):
        list(Operator(engine).in_order([(pa.array([1], pa.int32()),)]))
    assert not holder.is_wanted, "nobody waits any more"
    holder.close()
    (joined,) = Operator(engine).in_order([(pa.array([1], pa.int32()),)])
    assert joined.outer()[1]["v"].to_pylist() == [7]
    engine.close()


def test_the_only_connection_is_given_to_who_has_none_when_it_idles_or_has_been_used_for_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Long before it would be closed for idling; and a worker that always has something to ask keeps it for a turn."""
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    database = Scripted({key: [str(key)] for key in range(1000)}, delay=lambda _: 0.02)
    options: dict[str, Any] = {"batch": Batch(size=1, in_flight=1, connections=1), "connect_timeout": 10.0, "lookup_timeout": 10.0}
    with ExitStack() as stack:
        one, other = (
            stack.enter_context(closing(scripted_engine(database, shared_as=name, **options))) for name in ("one", "other")
        )
        assert values(one, [1]) == ["1"]
        assert values(other, [2]) == ["2"]  # one idles
        ahead = Operator(one).in_order((pa.array([key], pa.int64()),) for key in range(3, 1000))
        next(ahead)
        assert database.most_open == 1
        taken = ThreadPoolExecutor(1).submit(values, other, [2, 1001])
        while not taken.done():
            next(ahead)
        assert taken.result() == ["2", None]
        assert next(ahead, None) is not None, "the other did not wait for all of them"
        assert database.most_open == 1


async def in_the_order_of_asking(database: Scripted) -> list[int]:
    """Which of six flights has the one connection, one after the other, each asking again as soon as it has given it back."""
    pool = Pool(
        database.connect,
        Slots(None, URL, 1),
        connect_timeout=10.0,
        patience=10.0,
        on_crowded=lambda _: None,
        start=asyncio.ensure_future,
    )
    had: list[int] = []

    async def fly(number: int) -> None:
        for _ in range(3):
            connection = await pool.take()
            had.append(number)
            await asyncio.sleep(0.001)
            pool.give_back(connection)

    await asyncio.gather(*map(fly, range(6)))
    await pool.close()
    return had


def test_a_connection_goes_to_who_has_waited_longest() -> None:
    """A flight that asks again at once does not go before those that wait."""
    database = Scripted({})
    assert asyncio.run(in_the_order_of_asking(database)) == [*range(6)] * 3
    assert (database.most_open, database.open) == (1, 0)


async def beside_a_full_server(database: Scripted, silence: float) -> tuple[float, int]:
    """How long twenty flights of 10 ms take over the one connection of a server that refuses more after a while; tries to open."""
    loop = asyncio.get_running_loop()

    async def connect(timeout: float) -> Connection:
        if database.open:
            database.attempts += 1
            await asyncio.sleep(silence)
            raise ConnectionFailedError("full")
        return await database.connect(timeout)

    pool = Pool(
        connect,
        Slots(None, URL, 8),
        connect_timeout=1.0,
        patience=10.0,
        on_crowded=lambda _: None,
        start=asyncio.ensure_future,
    )

    async def fly() -> None:
        for _ in range(5):
            connection = await pool.take()
            await asyncio.sleep(0.01)
            pool.give_back(connection)

    pool.give_back(await pool.take())
    began = loop.time()
    await asyncio.gather(*(fly() for _ in range(4)))
    took = loop.time() - began
    await pool.close()
    return took, database.attempts - 1


@pytest.mark.parametrize("silence", [0.001, 0.3])
def test_a_full_server_is_asked_for_more_connections_now_and_then(silence: float) -> None:
    """And the connection that there is goes to those who wait, not to those who are trying to have another."""
    took, attempts = asyncio.run(beside_a_full_server(Scripted({}), silence))
    assert took < 20 * 0.01 + 2 * silence + 0.3
    assert attempts <= 10


def test_timers_of_flights_that_were_sent_long_ago_are_no_more() -> None:
    """They would keep their rows for as long as a missing key might have waited."""
    database = Scripted({})
    with closing(scripted_engine(database, batch=Batch(size=1, in_flight=1, max_wait="1 h"))) as engine:
        assert values(engine, list(range(300))) == [None] * 300
        timers = [timer for timer in engine._fetcher._loop._scheduled if not timer.cancelled()]  # type: ignore[attr-defined]
        assert len(timers) < 10


def values(engine: Engine, keys: list[int]) -> list[Any]:
    """What the keys are joined with."""
    (joined,) = Operator(engine).in_order([(pa.array(keys, pa.int64()),)])
    return joined.outer()[1]["value"].to_pylist()
