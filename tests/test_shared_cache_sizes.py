"""What the executor's cache takes, what it gains, and what becomes of it where there is less memory than asked."""

from __future__ import annotations

import os
import re
import resource
import warnings
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark import cloudpickle

from srj.lookup.cache import ColumnarCache
from srj.lookup.keys import Keys
from srj.lookup.layout import At, Contents
from srj.lookup.map_file import open_map
from srj.lookup.memory_limit import address_room
from srj.lookup.operator import Operator
from srj.options import Cache
from tests.scripted import Scripted, scripted_engine
from tests.shared_map import fill, process, shared

if TYPE_CHECKING:
    from collections.abc import Sequence

    from srj.lookup.shared_cache import SharedCache

TABLES: dict[str, tuple[list[pa.DataType], pa.Schema, dict[str, Any]]] = {
    "integers": ([pa.int64()], pa.schema({"a": pa.int32(), "b": pa.int64()}), {"unique": True}),
    "wide strings": ([pa.string()], pa.schema({"a": pa.string(), "b": pa.binary()}), {"unique": True, "widths": [40, 200, 4000]}),
    "several rows": (
        [pa.string(), pa.int32()],
        pa.schema({"a": pa.string(), "b": pa.decimal128(20, 2)}),
        {"unique": False, "rows_per_key": 6.0},
    ),
}


@pytest.mark.parametrize("asked", [10**6, 16 * 2**20, 128 * 2**20])
@pytest.mark.parametrize("table", TABLES)
def test_it_takes_the_memory_that_was_asked_once_for_all(tmp_path: Path, table: str, asked: int) -> None:
    """Blocks of the file system, all allocated, within a tenth below; whoever comes second adds nothing."""
    types, schema, options = TABLES[table]
    size: dict[str, Any] = {"size_bytes": asked, "size_rows": None}
    contents = Contents.of(types, schema, **options)

    def over(memory: Any) -> ColumnarCache:
        return ColumnarCache(types, schema, ttl=60.0, missing_ttl=60.0, memory=memory, **size, **options)

    maps = [open_map(tmp_path / "srj", "one", contents.nbytes(**size), over) for _ in range(2)]
    assert all(maps)
    (file,) = (tmp_path / "srj").iterdir()
    taken = file.stat().st_blocks * 512
    assert 0.9 * asked <= file.stat().st_size <= taken <= asked + 4096
    assert {over(one.memory).stats().bytes_reserved for one in maps if one is not None} == {file.stat().st_size}


def hit_ratio(caches: Sequence[SharedCache], batches: Sequence[np.ndarray]) -> float:
    """Of a stream whose batches go to the workers in turn, each of which stores what it missed."""
    hits = 0
    for number, batch in enumerate(batches):
        cache = caches[number % len(caches)]
        found = cache.lookup(Keys((pa.array(batch),)), 0.0).hit
        hits += int(np.count_nonzero(found))
        fill(cache, np.unique(batch[~found]).tolist())
    return hits / sum(map(len, batches))


def test_one_cache_for_two_workers_hits_as_often_in_half_the_memory(tmp_path: Path) -> None:
    """Against a cache of the same size for each: their memory together is twice as much."""
    rng = np.random.default_rng(1)
    batches = [rng.zipf(1.1, 1000) % 50_000 for _ in range(150)]
    together = [shared(tmp_path / "together") for _ in range(2)]
    alone = [shared(tmp_path / name) for name in ("one", "other")]
    assert hit_ratio(together, batches) > hit_ratio(alone, batches) > 0.5
    reserved = [sum(path.stat().st_size for path in tmp_path.glob(f"{name}/srj/one")) for name in ("together", "*")]
    assert reserved[1] == 3 * reserved[0]


def join_within(folder: Path, spare: int, shares: bool = True) -> None:
    """A worker with a cache of 128 MB and so much address space left; its rows must be right, and it is told."""
    os.environ["SPARK_LOCAL_DIRS"] = str(folder)
    in_use = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (in_use + spare, in_use + spare))
    assert (address_room() or 0) <= spare
    database = Scripted({number: [f"value {number}"] for number in range(3000)})
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        cache = Cache(size="128 MB", shared=shares)
        engine = scripted_engine(database, unique=True, shared_as="one", cache=cache)
    assert any("in this worker for want of room" in str(one.message) for one in told)
    for _ in range(2):
        (joined,) = Operator(engine).in_order(iter([(pa.array(range(3000), pa.int64()),)]))
        assert joined.outer()[1]["value"].to_pylist() == [f"value {number}" for number in range(3000)]
    if spare > 192 * 2**20:  # else nearly nothing is left to it
        assert sum(map(len, database.asked)) == 3000
    assert engine.cache_stats().bytes_reserved <= spare // 2
    assert (folder / "srj" / "one").exists() == shares
    engine.close()


@pytest.mark.parametrize("shares", [True, False])
def test_little_address_space_makes_a_smaller_cache_and_no_failure(tmp_path: Path, shares: bool) -> None:
    """As under `spark.executor.pyspark.memory`, in megabytes beside what the libraries have taken already."""
    for spare in (300, 200, 160):
        folder = tmp_path / str(spare)
        folder.mkdir()
        with process(join_within, folder, spare * 2**20, shares) as child:
            child.join()
            assert child.exitcode == 0


def test_a_map_that_is_larger_than_a_worker_s_room_is_left_to_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One with more room made it."""
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    first = scripted_engine(Scripted({}), unique=True, shared_as="one", cache=Cache(size="128 MB", shared=True))
    assert first.cache_stats().bytes_reserved > 110 * 2**20
    with process(join_within, tmp_path, 220 * 2**20) as child:
        child.join()
        assert child.exitcode == 0
    first.close()


def broken(path: Path, how: str) -> None:
    """Cut a map's file, or write another size into its header."""
    if how.startswith("cut"):
        os.truncate(path, int(how.split()[1]))
        return
    name, number = how.split()
    with path.open("r+b") as file:
        file.seek(8 * At[name])
        file.write(int(number).to_bytes(8, "little", signed=True))


def open_files(folder: Path) -> int:
    """How many files of a folder this process has open."""
    return sum(folder in file.resolve().parents for file in Path("/proc/self/fd").iterdir())


@pytest.mark.parametrize(
    "how",
    [
        "cut 0", "cut 10", "cut 500000", "SETS 1000000000", "SETS 0", "SETS -1", "SEGMENT_BYTES 1099511627776",
        "SEGMENTS 0", "SEGMENTS 4611686018427387904", "VERSION 1",
    ],
)  # fmt: skip
def test_a_map_that_was_cut_or_written_to_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    """One warning, a cache of the worker's own, and no open file left."""
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    database = Scripted({1: ["a value that is long enough for the heap"]})
    scripted_engine(database, unique=True, shared_as="one", cache="1 MB").close()
    broken(tmp_path / "srj" / "one", how)
    assert open_files(tmp_path) == 0
    with pytest.warns(UserWarning, match="of its own"):
        engine = scripted_engine(database, unique=True, shared_as="one", cache="1 MB")
    assert open_files(tmp_path) == 0
    for _ in range(2):
        (joined,) = Operator(engine).in_order(iter([(pa.array([1], pa.int64()),)]))
        assert joined.outer()[1]["value"].to_pylist() == ["a value that is long enough for the heap"]
    assert sum(map(len, database.asked)) == 1
    engine.close()


def test_an_own_cache_for_each_worker_on_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``Cache(shared=False)``: nothing is written to Spark's folder."""
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    for shares in (False, True):
        engine = scripted_engine(Scripted({}), shared_as="one", cache=Cache(size="1 MB", shared=shares))
        assert (tmp_path / "srj" / "one").exists() == shares
        engine.close()


def test_a_worker_that_starts_after_spark_s_end_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark has removed its folder by then."""
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path / "removed"))
    with pytest.warns(UserWarning, match="each worker has one of its own"):
        engine = scripted_engine(Scripted({}), shared_as="one", cache="1 MB")
    engine.close()
    assert not list(tmp_path.iterdir())


def test_caches_that_differ_in_an_option_are_no_one_s_together() -> None:
    """A worker that has the shared engine must not give it to ``Cache(shared=False)``."""
    options: list[dict[str, Any]] = [
        {}, {"size": "2 MB"}, {"ttl": "2 min"}, {"missing_ttl": "2 min"}, {"policy": "sieve"}, {"shared": False},
        {"size": "auto"}, {"size": "auto", "memory": "1 MB"},
    ]  # fmt: skip
    assert {name for some in options for name in some} == {one.name for one in fields(Cache) if one.init}
    prints = set()
    for some in options:
        cache = Cache(**{"size": "1 MB", "ttl": "1 min", "missing_ttl": "1 min", **some})
        engine = scripted_engine(Scripted({}), cache=cache)
        prints.add(engine.spec.fingerprint(cloudpickle.dumps(cache.chosen)))
        engine.close()
    assert len(prints) == len(options)


def test_more_memory_than_there_is_gives_a_smaller_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither on the disk nor for the worker alone: half as much until it can be had, and one warning of that."""
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    in_use = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    monkeypatch.setattr("srj.lookup.make_cache.address_room", lambda: None)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        resource.setrlimit(resource.RLIMIT_AS, (in_use + 2**30, hard))
        try:
            engine = scripted_engine(Scripted({}), unique=True, shared_as="one", cache=Cache(size="3 GB"))
        finally:
            resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
    messages = [str(one.message) for one in told]
    assert "each worker has one of its own" in messages[0]
    assert sum("for want of room: expected" in message for message in messages) == 1
    assert re.match(r"expected 2,999,[\d,]+ bytes for the cache, got 7[45]\d,[\d,]+ in this worker", messages[1])
    assert list((tmp_path / "srj").iterdir()) == []
    assert 2**28 < engine.cache_stats().bytes_reserved < 2**30
    engine.close()
