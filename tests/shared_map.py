"""A small cache in a map, and processes that use it: every value carries its key, so a mix-up shows."""

from __future__ import annotations

import multiprocessing
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from srj.lookup.cache import ColumnarCache
from srj.lookup.keys import Keys
from srj.lookup.layout import Contents, Geometry
from srj.lookup.map_file import MapFile, open_map
from srj.lookup.shared_cache import SharedCache

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

SCHEMA = pa.schema({"value": pa.string(), "number": pa.int64()})
SIZE: dict[str, Any] = {"size_bytes": 1_000_000, "size_rows": None}
CONTENTS = Contents.of([pa.int64()], SCHEMA, unique=True)
PROCESSES = multiprocessing.get_context("forkserver")
# Children then begin in milliseconds, with no thread of pytest's; pyarrow imports pandas when it first needs it.
PROCESSES.set_forkserver_preload(["tests.shared_map", "tests.scripted", "pandas"])


def over(memory: Any, geometry: Geometry | None = None) -> ColumnarCache:
    """A cache of the tests' table over a map."""
    return ColumnarCache([pa.int64()], SCHEMA, ttl=None, missing_ttl=None, unique=True, memory=memory, geometry=geometry, **SIZE)


def opened(folder: Path, name: str = "one") -> MapFile | None:
    """The map in this folder, made if need be."""
    folder.mkdir(exist_ok=True)
    return open_map(folder / "srj", name, CONTENTS.nbytes(**SIZE), over)


def shared(folder: Path, patience: float = 0.25, name: str = "one") -> SharedCache:
    """The cache in it."""
    map_file = opened(folder, name)
    assert map_file is not None
    return SharedCache(map_file, over, lambda: opened(folder, name), patience)


def fill(cache: SharedCache, numbers: list[int], now: float = 0.0) -> None:
    """Rows that carry their key, long enough for the heap."""
    rows = pa.record_batch(
        {"value": [f"the value of key {number:08d}" for number in numbers], "number": pa.array(numbers, pa.int64())}, schema=SCHEMA
    )
    cache.insert(Keys((pa.array(numbers, pa.int64()),)), np.ones(len(numbers), np.int32), rows, now)


def known(cache: SharedCache, numbers: list[int]) -> list[int]:
    """The keys among these that are found; their rows are checked."""
    found = cache.lookup(Keys((pa.array(numbers, pa.int64()),)), 0.0)
    hits = [number for number, hit in zip(numbers, found.hit.tolist(), strict=True) if hit]
    assert found.rows["number"].to_pylist() == hits
    assert found.rows["value"].to_pylist() == [f"the value of key {number:08d}" for number in hits]
    return hits


@contextmanager
def process(function: Callable[..., None], *arguments: object) -> Iterator[Any]:
    """Another process, killed at the end."""
    child = PROCESSES.Process(target=function, args=arguments)
    child.start()
    try:
        yield child
    finally:
        child.kill()
        child.join()
