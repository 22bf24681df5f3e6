"""Whoever is killed or stopped while the executor's cache is in use: no wrong value ever, and nobody hangs."""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from srj.lookup.map_lock import MapLock
from srj.lookup.operator import Operator
from tests.cache_values import audit
from tests.scripted import Scripted, scripted_engine
from tests.shared_map import PROCESSES, fill, known, opened, process, shared

if TYPE_CHECKING:
    from pathlib import Path

    from srj.lookup.map_file import MapFile

BATCHES, WORKERS, KEYS = 200, 4, 30_000


def die_at_a_line(folder: Path, module: str, line: int, first: int) -> None:
    """Store new keys until so many lines of a module have run, then be killed."""
    left = line

    def trace(frame: Any, event: str, _: Any) -> Any:
        nonlocal left
        if not frame.f_code.co_filename.endswith(f"lookup/{module}"):
            return None
        if event == "line":
            left -= 1
            if not left:
                os.kill(os.getpid(), signal.SIGKILL)
        return trace

    cache = shared(folder)
    sys.settrace(trace)
    for start in range(first, first + 100_000, 500):
        fill(cache, list(range(start, start + 500)))


@pytest.mark.parametrize("module", ["heap.py", "entries.py", "reclaim.py"])
def test_killed_at_six_lines_by_chance_of_those_that_move_or_evict_it_leaves_no_wrong_value(tmp_path: Path, module: str) -> None:
    """The heap is full of strings, so that each insert empties segments by moving what lives there."""
    chance = random.Random(module)
    cache = shared(tmp_path)
    numbers = list(range(20_000))
    torn = 0
    for death in range(6):
        fill(cache, numbers)
        assert cache.stats().evictions > 0
        first = 100_000 * (death + 1)
        with process(die_at_a_line, tmp_path, module, chance.randrange(1, 2_000), first) as child:
            child.join(60)
            assert child.exitcode == -signal.SIGKILL
        torn += cache._cache.is_torn
        known(cache, numbers)
        known(cache, list(range(first, first + 100_000)))
        audit(cache._cache)
    assert torn > 2
    assert cache.stats().bypasses == 0


def text_of(number: int) -> str:
    """The value of a key, long enough for the heap."""
    return f"the value of key {number:08d}"


def work(folder: Path, tasks: Any) -> None:
    """A Spark worker: each task is a batch of keys, whose values it finds by the shared cache or in the database."""
    os.environ["SPARK_LOCAL_DIRS"] = str(folder)
    database = Scripted({number: [text_of(number)] for number in range(KEYS)})
    engine = scripted_engine(database, unique=True, shared_as="one", cache="1 MB")
    while True:
        keys = tasks.recv()
        hits = Operator(engine)
        (joined,) = hits.in_order(iter([(pa.array(keys, pa.int64()),)]))
        tasks.send((joined.outer()[1]["value"].to_pylist(), hits.metrics.hits, hits.metrics.bypasses))


class Worker:
    """One of them, begun anew whenever it is killed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.start()

    def start(self) -> None:
        """Begin."""
        self.tasks, other = PROCESSES.Pipe()
        child: Any = PROCESSES.Process(target=work, args=(self._folder, other), daemon=True)
        child.start()
        other.close()
        self.child = child

    def run(self, keys: list[int]) -> tuple[list[str], int, int]:
        """A task's result; it is tried again when its worker dies, as Spark does."""
        until = time.monotonic() + 60
        while True:
            try:
                self.tasks.send(keys)
                while not self.tasks.poll(0.1):
                    assert time.monotonic() < until, "a task hangs"
                return self.tasks.recv()  # type: ignore[no-any-return]
            except (EOFError, ConnectionError):
                self.child.join()
                assert self.child.exitcode == -signal.SIGKILL, "a task failed by itself"
                self.start()


def trouble(worker: Worker, what: str, before: float, pause: float) -> bool:
    """Kill a worker, as a rule while it works on its task, or stop it for a while; whether it still was there."""
    time.sleep(before)
    child = worker.child
    try:
        os.kill(child.pid, signal.SIGKILL if what == "kill" else signal.SIGSTOP)
        if what == "stop":
            time.sleep(pause)
            os.kill(child.pid, signal.SIGCONT)
    except ProcessLookupError:
        return False
    return True


def test_200_micro_batches_are_right_while_workers_are_killed_and_stopped(tmp_path: Path) -> None:
    """Four workers over a cache that is too small for their keys; every row of every batch has its own key's value."""
    chance = random.Random(2)
    workers = [Worker(tmp_path) for _ in range(WORKERS)]
    happened: list[tuple[str, bool]] = []
    results: list[tuple[list[str], int, int]] = []
    try:
        for number in range(BATCHES):
            batches = [[min(int(chance.expovariate(1 / 8_000)), KEYS - 1) for _ in range(500)] for _ in workers]
            with ThreadPoolExecutor(WORKERS + 1) as driver:
                tasks = [driver.submit(worker.run, keys) for worker, keys in zip(workers, batches, strict=True)]
                what = {0: "kill", 5: "stop"}.get(number % 16)
                if what is not None:
                    made = driver.submit(trouble, chance.choice(workers), what, chance.uniform(0, 0.03), chance.uniform(0, 0.4))
                    happened.append((what, made.result()))
            for keys, task in zip(batches, tasks, strict=True):
                assert task.result()[0] == [text_of(key) for key in keys]
                results.append(task.result())
    finally:
        for worker in workers:
            worker.child.kill()
            worker.child.join()
    assert happened.count(("kill", True)) > 10
    assert happened.count(("stop", True)) > 10
    assert sum(hits for _, hits, _ in results) > 0.2 * BATCHES * WORKERS * 500
    assert {path.name for path in (tmp_path / "srj").iterdir()} == {"one", "connections"}


class NoTurnstile(MapLock):
    """The lock as it would be without the second one: each has a turnstile of its own."""

    def __init__(self, map_file: MapFile, patience: float) -> None:
        super().__init__(map_file, patience)
        self._turnstile = id(self)


@pytest.mark.parametrize(("kind", "gets_in"), [(MapLock, True), (NoTurnstile, False)])
def test_a_writer_gets_in_between_readers_without_pause_by_the_turnstile(
    tmp_path: Path, kind: type[MapLock], gets_in: bool
) -> None:
    """Eight readers, so that some of them hold the lock at any time."""
    map_file = opened(tmp_path)
    assert map_file is not None
    over, reads = threading.Event(), [0] * 8

    def read(at: int) -> None:
        lock = kind(map_file, patience=5.0)
        while not over.is_set():
            with lock.shared() as held:
                assert held
                time.sleep(0.005)
            reads[at] += 1
        lock.close()

    threads = [threading.Thread(target=read, args=(at,)) for at in range(8)]
    for thread in threads:
        thread.start()
    try:
        lock = kind(map_file, patience=1.0)
        got = []
        for _ in range(20 if gets_in else 1):
            with lock.exclusive() as held:
                got.append(held)
        lock.close()
    finally:
        over.set()
        for thread in threads:
            thread.join()
    assert all(held == gets_in for held in got)
    assert min(reads) > 0, "a reader was kept out"
