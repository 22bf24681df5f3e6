"""The same answers on a cluster's executors and through Spark Connect; one sentence where srj is missing."""

from __future__ import annotations

import os
import re
import shutil
import site
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.integration.scripts import ROOT, run, start
from tests.integration.stores import Store, open_store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Future

    from tests.servers import Server

KEYS = [number * 7 % 130 if number % 11 else None for number in range(900)]


@pytest.fixture(scope="module")
def stores(postgres: Server, mariadb: Server) -> Iterator[dict[str, Store]]:
    """The same table in both databases."""
    for one in open_store(postgres, "srj_deployed"):
        for other in open_store(mariadb, "srj_deployed"):
            found = {"postgresql": one, "mysql": other}
            for store in found.values():
                store.run("CREATE TABLE parts (k int PRIMARY KEY, name varchar(40))")
                store.insert("parts", [(number, f"part {number}") for number in range(100)])
            yield found


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The stream: some files of numbered keys."""
    folder = tmp_path_factory.mktemp("files")
    for position in range(3):
        rows = range(position * 300, position * 300 + 300)
        part = pa.table({"n": pa.array(rows), "k": pa.array([KEYS[row] for row in rows], pa.int32())})
        pq.write_table(part, folder / f"{position}.parquet")
    return folder


@pytest.fixture(scope="module", autouse=True)
def pause(
    request: pytest.FixtureRequest, postgres: Server, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Future[tuple[Any, str]] | None]:
    """What `idle_workers` returns and prints: nearly all of its time it waits, beside this file's other tests."""
    if not any(
        item.name == test_after_a_minute_s_pause_new_workers_know_all_that_was_fetched.__name__ for item in request.session.items
    ):
        yield None
        return
    folder = tmp_path_factory.mktemp("pause")
    for number in range(2):
        pq.write_table(pa.table({"k": pa.array(range(2000), pa.int32())}), folder / f"batch{number}")
    arguments = {
        "lives": {"lasting": {"missing_ttl": "1 h"}, "default": {}},
        "files": [str(folder / f"batch{number}") for number in range(2)],
    }
    for store in open_store(postgres, "srj_idle"):
        store.run("CREATE TABLE parts (k int PRIMARY KEY, name varchar(40))")
        store.insert("parts", [(number, f"part {number}") for number in range(1500)])
        with ThreadPoolExecutor(1) as thread:
            yield thread.submit(run, "idle_workers", {"table": f"{store.url}#parts"} | arguments, folder, seconds=500)


def expected() -> list[list[Any]]:
    """Each row once, with its part."""
    return sorted([[n, k, None if k is None or k >= 100 else f"part {k}"] for n, k in enumerate(KEYS)], key=repr)


@pytest.mark.timeout(600)
def test_two_executors_give_the_same_rows(stores: dict[str, Store], files: Path, tmp_path: Path) -> None:
    """local-cluster: passwords written out in the URL reach the workers of both executors, in batch and streaming."""
    tables = {name: f"{store.url}#parts" for name, store in stores.items()}
    result, printed = run("cluster", {"tables": tables, "files": str(files)}, tmp_path)
    assert result["executors"] == 2
    assert result["maps"] == 2 * 2, "a cache for each executor and table: the order of rows makes no difference to it"
    assert result["left"] == []
    assert len(result["rows"]) == 8
    for name, rows in result["rows"].items():
        assert rows == expected(), name
    assert not any(store.server.password in printed for store in stores.values())


@pytest.mark.timeout(600)
def test_what_workers_fetched_outlives_them(postgres: Server, tmp_path: Path) -> None:
    """Each task in a new worker: the executor's one cache knows what those before have fetched, and is gone with Spark."""
    for store in open_store(postgres, "srj_outlive"):
        store.run("CREATE TABLE parts (k int PRIMARY KEY, name varchar(40))")
        store.insert("parts", [(number, f"part {number}") for number in range(1500)])
        result, printed = run("new_workers", {"table": f"{store.url}#parts"}, tmp_path)
    assert result["pids"] == 4, printed
    assert result["rows"] == [1500] * 3
    for metrics in result["metrics"]:
        assert (metrics["rows"], metrics["hits"], metrics["keys"], metrics["absent"]) == (2000, 2000, 0, 500)
        assert metrics["bypasses"] == 0
    (size,) = result["maps"]
    assert 0.9 * 128 * 2**20 <= size <= 128 * 2**20
    assert result["left"] == []


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("limit", "sizes"), [("1g", [16, 2000]), ("600m", [128])], ids=["1g", "600m"])
def test_a_bound_on_a_worker_s_memory_makes_the_cache_smaller_and_says_so(
    postgres: Server, tmp_path: Path, limit: str, sizes: list[int]
) -> None:
    """spark.executor.pyspark.memory: a cache that fits is as asked; another gets half of what is left, and the log tells it."""
    for store in open_store(postgres, "srj_little"):
        store.run("CREATE TABLE parts (k int PRIMARY KEY, name varchar(40))")
        store.insert("parts", [(number, f"part {number}") for number in range(2000)])
        arguments = {"table": f"{store.url}#parts", "limit": limit, "sizes": [f"{size} MB" for size in sizes]}
        result, printed = run("little_memory", arguments, tmp_path)
    bound = {"1g": 2**30, "600m": 600 * 2**20}[limit]
    assert result["limit"] == bound
    sentence = r"expected ([0-9,]+) bytes for the cache, got ([0-9,]+) in this worker for want of room: ([^\n]*)"
    told = set()
    for size, cache in zip(sizes, result["caches"], strict=True):
        assert cache["rows"] == 2000, printed
        found = [(one["rows"], one["hits"], one["keys"], one["matches"]) for one in cache["metrics"]]
        assert found == [(2000, 0, 2000, 2000), (2000, 2000, 0, 2000)]
        (made,) = cache["maps"]
        asked = size * 10**6
        if size == 16:
            assert 0.9 * asked <= made <= asked
        else:
            assert 10**6 < made < min(asked, bound / 2)
            told.add((f"{asked:,}", f"{made:,}", "the address space that spark.executor.pyspark.memory leaves"))
    assert set(re.findall(sentence, result["said"])) == told, result["said"][-3000:]
    assert result["left"] == []


@pytest.mark.timeout(600)
def test_over_connect_a_second_query_finds_what_the_first_has_fetched(
    stores: dict[str, Store], files: Path, tmp_path: Path
) -> None:
    """Each task in a new worker of the server's: all of the second's keys are hits, in either order of rows."""
    store = stores["postgresql"]
    url = store.server.url_for(database=store.name, password="${POSTGRESQL_PW}")
    result, printed = run(
        "connect_twice",
        {"table": f"{url}#parts", "files": str(files)},
        tmp_path,
        environment={"POSTGRESQL_PW": store.server.password},
    )
    assert result["kind"].startswith("pyspark.sql.connect")
    assert set(result["workers"][0]).isdisjoint(result["workers"][1]), printed
    assert result["maps"] == 1
    distinct = set(KEYS) - {None}
    sums = {name: {what: sum(one[what] for one in found) for what in ("rows", "hits", "keys", "null_keys", "bypasses")}
            for name, found in result["metrics"].items()}  # fmt: skip
    assert all(len(found) == 2 for found in result["metrics"].values()), "micro-batches"
    nulls = KEYS.count(None)
    assert sums["first"]["keys"] >= len(distinct)  # two workers may ask for the same key at the same time
    for name in ("second", "any"):
        assert sums[name] == {"rows": 900, "hits": 900 - nulls, "keys": 0, "null_keys": nulls, "bypasses": 0}


@pytest.mark.timeout(600)
def test_a_killed_driver_leaves_no_cache_behind(postgres: Server, tmp_path: Path) -> None:
    """Spark's JVM outlives the Python driver for a moment, and then removes its folder."""
    written = tmp_path / "maps"
    for store in open_store(postgres, "srj_killed"):
        store.run("CREATE TABLE parts (k int PRIMARY KEY, name varchar(40))")
        with start("killed_driver", {"table": f"{store.url}#parts"}, tmp_path) as driver:
            try:
                wait_for(written.exists, 240)
                (made,) = map(Path, written.read_text().split())
                assert made.exists()
            finally:
                driver.kill()
        wait_for(lambda: not any(tmp_path.rglob("srj")), 60)


def wait_for(happened: Callable[[], bool], seconds: float) -> None:
    """Look again and again until it has."""
    until = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < until
        time.sleep(0.1)


@pytest.mark.timeout(600)
def test_connect_gives_the_same_rows_and_refuses_a_written_password(stores: dict[str, Store], files: Path, tmp_path: Path) -> None:
    """Spark Connect, batch and streaming, with ${NAME} for a password; one written out would be in the plan."""
    references = {
        name: store.server.url_for(database=store.name, password=f"${{{name.upper()}_PW}}") for name, store in stores.items()
    }
    result, _ = run(
        "connect",
        {
            "tables": {name: f"{url}#parts" for name, url in references.items()},
            "literal": f"{stores['postgresql'].url}#parts",
            "files": str(files),
        },
        tmp_path,
        environment={f"{name.upper()}_PW": store.server.password for name, store in stores.items()},
    )
    assert result["kind"].startswith("pyspark.sql.connect")
    assert len(result["rows"]) == 8
    for name, rows in result["rows"].items():
        assert rows == expected(), name
    server = stores["postgresql"].server
    assert result["refusal"] == (
        "expected no password in the URL on Spark Connect, which would put it into the plan, got "
        f"postgresql://{server.user}:***@{stores['postgresql'].place}; write ${{NAME}} in its place and set that environment "
        "variable on "
        "this machine and where the server's Python workers run"
    )


@pytest.mark.timeout(600)
def test_workers_without_srj_say_so(stores: dict[str, Store], tmp_path: Path) -> None:
    """A driver that finds srj by a path of its own is told, in one sentence, that its workers do not."""
    source, others = tmp_path / "source", tmp_path / "others"
    shutil.copytree(ROOT / "srj", source / "srj")
    for name in ("operators", "cache_policies"):
        shutil.copytree(ROOT / name, source / "srj" / name, dirs_exist_ok=True)  # links may stand there already
    others.mkdir()
    for entry in (entry for folder in site.getsitepackages() for entry in Path(folder).iterdir()):
        if "srj" not in entry.name:
            (others / entry.name).symlink_to(entry)
    store = stores["postgresql"]
    # Without -S the environment's own packages would come in beside those of PYTHONPATH, srj among them.
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec "{os.path.realpath(sys.executable)}" -S "$@"\n')
    python.chmod(0o700)
    result, _ = run(
        "without_srj_on_workers",
        {"table": f"{store.url}#parts"},
        tmp_path,
        environment={"PYTHONPATH": str(others), "DRIVER_PATH": str(source)},
        python=str(python),
    )
    for order in ("input", "any"):
        assert (
            "ModuleNotFoundError: expected the package srj and what it needs where Spark's Python workers run, but the module "
            "'srj' is "
            "missing there; install srj on every executor, or put it on their PYTHONPATH (spark.executorEnv.PYTHONPATH)"
        ) in result[order]


@pytest.mark.timeout(600)
def test_after_a_minute_s_pause_new_workers_know_all_that_was_fetched(pause: Future[tuple[Any, str]]) -> None:
    """Spark ends idle workers after a minute; what a micro-batch fetched before is a hit after, but for what `missing_ttl` ends."""
    result, printed = pause.result()
    before, after = map(set, result["workers"])
    assert before, printed
    assert after, printed
    assert before.isdisjoint(after), printed
    assert result["rows"] == {"lasting": 3000, "default": 3000}
    # In the cache of 128 MB is ample room: of the first micro-batch nothing was given up.
    expected_hits = {"lasting": [0, 2000], "default": [0, 1500]}
    for name, found in result["metrics"].items():
        for one, hits in zip(found, expected_hits[name], strict=True):
            assert (one["rows"], one["absent"]) == (2000, 500)
            # On a busy machine a probe may have to do without the cache: then a task's 500 rows are asked anew, and it is counted.
            assert one["hits"] == hits or hits - 500 * one["bypasses"] <= one["hits"] < hits, (name, found)
            assert one["hits"] + one["keys"] == 2000
    assert result["left"] == []
