"""How long a writer of the shared cache waits while 16 processes probe it without pause.

Three writers, one after another in rounds, under the same load, each storing 1,000 keys and then pausing: in the readers' map with
the turnstile and without it, and in a map of its own, where it only competes with them for the processor. Run it as
``python benchmarks/cache_sharing.py``; it takes about two minutes.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from srj.lookup.cache import ColumnarCache
from srj.lookup.keys import Keys
from srj.lookup.layout import block_bytes
from srj.lookup.map_file import open_map
from srj.lookup.map_lock import MapLock
from srj.lookup.shared_cache import SharedCache

if TYPE_CHECKING:
    from collections.abc import Iterator

READERS = 16
ENTRIES = 100_000
PROBED, STORED = 10_000, 1_000
PAUSE = 0.005
PATIENCE = 30.0  # so long that whoever is kept out is seen to wait
ROUNDS = 3
COLUMNS = pa.schema({"name": pa.string(), "price": pa.float64()})
SIZE: dict[str, Any] = {"size_bytes": None, "size_rows": 2 * ENTRIES, "unique": True}
PROCESSES = multiprocessing.get_context("forkserver")


class TimedLock(MapLock):
    """Notes how long it was waited for."""

    def __init__(self, *arguments: Any, turnstile: bool) -> None:
        super().__init__(*arguments)
        self.waits: list[float] = []
        if not turnstile:  # then each has one of its own, at which nobody waits
            self._paths[1] = self._paths[1].with_name(f"turnstile{os.getpid()}")

    @contextmanager
    def _held(self, how: int) -> Iterator[bool]:
        begin = time.perf_counter()
        with super()._held(how) as held:
            self.waits.append(time.perf_counter() - begin)
            yield held


def over(memory: Any) -> ColumnarCache:
    """The cache in a map."""
    return ColumnarCache([pa.int64()], COLUMNS, ttl=None, missing_ttl=None, memory=memory, **SIZE)


def opened(folder: Path, name: str, turnstile: bool) -> tuple[SharedCache, TimedLock]:
    """The shared cache of this name, and its lock."""
    map_file = open_map(folder, name, block_bytes([pa.int64()], COLUMNS, **SIZE), over)
    if map_file is None:
        raise OSError(f"expected room for a cache in {folder}, got none")
    cache, lock = SharedCache(over(map_file.memory), map_file), TimedLock(map_file, PATIENCE, turnstile=turnstile)
    cache._lock = lock  # noqa: SLF001 - to time it
    return cache, lock


def store(cache: SharedCache, numbers: np.ndarray) -> None:
    """Rows of a string and a double."""
    rows = pa.record_batch([pa.array(np.char.mod("product %08d", numbers)), pa.array(numbers * 1.5)], schema=COLUMNS)
    cache.insert(Keys((pa.array(numbers),)), np.ones(numbers.size, np.int32), rows, 0.0)


def read(folder: Path, turnstile: bool, seconds: float, ready: Any, results: Any) -> None:
    """Probe without pause; how often, and the longest wait."""
    cache, lock = opened(folder, "readers", turnstile)
    rng = np.random.default_rng(os.getpid())
    keys = [Keys((pa.array(rng.integers(0, ENTRIES, PROBED)),)) for _ in range(20)]
    cache.lookup(keys[0], 0.0)  # what is slow the first time
    ready.wait()
    lock.waits.clear()
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        cache.lookup(keys[len(lock.waits) % len(keys)], 0.0)
    results.put(("reader", len(lock.waits), max(lock.waits, default=0.0)))


def write(folder: Path, name: str, turnstile: bool, seconds: float, ready: Any, results: Any) -> None:
    """Store now and then; how long each insert took, and the wait for the lock in it."""
    cache, lock = opened(folder, name, turnstile)
    rng = np.random.default_rng(7)
    store(cache, np.arange(10))  # what is slow the first time
    lock.waits.clear()
    ready.wait()
    until, inserts = time.monotonic() + seconds, []
    while time.monotonic() < until:
        numbers = np.unique(rng.integers(0, 4 * ENTRIES, STORED))
        begin = time.perf_counter()
        store(cache, numbers)
        inserts.append(time.perf_counter() - begin)
        time.sleep(PAUSE)
    results.put(("writer", inserts, lock.waits))


def measure(name: str, turnstile: bool, readers: int, seconds: float) -> tuple[list[float], list[float], list[int]]:
    """The writer's inserts and waits in seconds, and each reader's probes."""
    with tempfile.TemporaryDirectory() as folder:
        path, ready, results = Path(folder) / "srj", PROCESSES.Barrier(readers + 1), PROCESSES.Queue()
        filled, _ = opened(path, "readers", turnstile)
        store(filled, np.arange(ENTRIES))
        children = [PROCESSES.Process(target=read, args=(path, turnstile, seconds, ready, results)) for _ in range(readers)]
        children.append(PROCESSES.Process(target=write, args=(path, name, turnstile, seconds, ready, results)))
        for child in children:
            child.start()
        found = [results.get(timeout=seconds + 120) for _ in children]
        for child in children:
            child.join()
    ((_, inserts, waits),) = [one for one in found if one[0] == "writer"]
    return inserts, waits, [one[1] for one in found if one[0] == "reader"]


def main() -> None:
    """Print a line a writer, and the two ratios."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=12.0, help="of each writer in each round")
    parser.add_argument("--readers", type=int, default=READERS)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    given = parser.parse_args()
    kinds = {"turnstile": ("readers", True), "no turnstile": ("readers", False), "map of its own": ("writer", True)}
    inserts: dict[str, list[float]] = {kind: [] for kind in kinds}
    waits: dict[str, list[float]] = {kind: [] for kind in kinds}
    for _ in range(given.rounds):
        for kind, (name, turnstile) in kinds.items():
            some, waited, probes = measure(name, turnstile, given.readers, given.seconds)
            inserts[kind] += some
            waits[kind] += waited
            print(f"{kind:<16} {len(some):6} inserts, readers' probes {min(probes)} to {max(probes)}", flush=True)
    print(f"\n{'ms':<16} {'insert p50':>11} {'p99':>9} {'wait p50':>11} {'p99':>9}")
    for kind in kinds:
        figures = [*np.quantile(inserts[kind], [0.5, 0.99]), *np.quantile(waits[kind], [0.5, 0.99])]
        print("{:<16} {:11.2f} {:9.2f} {:11.3f} {:9.3f}".format(kind, *(1e3 * figure for figure in figures)))
    with_it, without, own = (np.quantile(inserts[kind], 0.99) for kind in kinds)
    print(f"\np99 of an insert: without the turnstile {without / with_it:.1f} times that with it;", end=" ")
    print(f"with it {with_it / own:.1f} times that in a map of its own")


if __name__ == "__main__":
    main()
