"""Inputs and circumstances chosen to break a lookup: strange keys, values, caches and sizes.

Each goes through the real engine and a real server, without Spark.
"""

from __future__ import annotations

import hashlib
import pickle
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import timedelta
from queue import SimpleQueue
from typing import Any

import cachetools
import numpy as np
import pyarrow as pa
import pytest

from srj import RequestError
from srj.databases.base import Answer
from srj.lookup import engine as engines
from srj.lookup.keys import Keys
from srj.lookup.operator import WAITING_BYTES, Operator
from srj.stream_columns import check_clash
from tests.ground import Ground, join, spec_of
from tests.scripted import Scripted, ScriptedConnection, scripted_engine

DAY = 86_400_000_000


def days(ground: Ground, *dates: str) -> list[int]:
    """Days from 1970 to these dates, as PostgreSQL counts them."""
    return [int(ground.sql(f"SELECT '{date}'::date - '1970-01-01'::date")[0][0]) for date in dates]


# Keys


def test_dates_beyond_pythons_years_are_looked_up_like_any_other(postgres_ground: Ground) -> None:
    """PostgreSQL and Spark know years that Python's dates lack; a date beyond PostgreSQL's own years matches nothing."""
    rows = ["('2024-01-01', 'now')", "('12345-06-07', 'far')", "('0044-03-15 BC', 'ides')"]
    postgres_ground.table("dates", "k date PRIMARY KEY, v text", *rows)
    far, ides = days(postgres_ground, "12345-06-07", "0044-03-15 BC")
    keys = pa.array([19723, far, ides, 2**31 - 1, -(2**31)], pa.int32()).view(pa.date32())
    assert postgres_ground.join("dates", keys, "k") == [(0, "now"), (1, "far"), (2, "ides")]


@pytest.mark.parametrize(("sql", "arrow"), [("timestamp", pa.timestamp("us")), ("timestamptz", pa.timestamp("us", "UTC"))])
def test_timestamps_beyond_pythons_years_are_looked_up_like_any_other(
    postgres_ground: Ground, sql: str, arrow: pa.DataType
) -> None:
    """Milliseconds taken for seconds make the year 55969: such a key must not fail the stream."""
    rows = ["('2024-01-01 00:00Z', 'now')", "('55969-09-26 00:00Z', 'far')", "('0044-03-15 00:00Z BC', 'ides')"]
    postgres_ground.table("moments", f"k {sql} PRIMARY KEY, v text", *rows)
    far, ides = days(postgres_ground, "55969-09-26", "0044-03-15 BC")
    keys = pa.array([19723 * DAY, far * DAY, ides * DAY, 2**63 - 1, -(2**63)], pa.int64()).view(arrow)
    assert postgres_ground.join("moments", keys, "k") == [(0, "now"), (1, "far"), (2, "ides")]


def test_postgresqls_nan_is_found_in_the_cache(postgres_ground: Ground) -> None:
    """There it equals itself, alone and beside another column."""
    table = postgres_ground.table(
        "numbers_and_nan", "k float8, n int, v text, PRIMARY KEY (k, n)", "('NaN', 1, 'none')", "(2, 1, 'two')"
    )
    keys = [float("nan"), 2.0, float("nan")], [1, 1, 2]
    for cache in ("4 MB", lambda: cachetools.LRUCache(100)):
        for key, asked, expected in (
            ("k", pa.array(keys[0]), [(0, 1, "none"), (1, 1, "two"), (2, 1, "none")]),
            (("k", "n"), (pa.array(keys[0]), pa.array(keys[1], pa.int32())), [(0, "none"), (1, "two")]),
        ):
            with postgres_ground.engine(table, key, cache=cache) as engine:
                assert join(engine, asked) == expected
                again = engine.admit(Keys.of(asked if isinstance(asked, tuple) else (asked,)), SimpleQueue())
                assert again.found.hit.all()
                assert join(engine, asked) == expected


def test_text_that_is_no_utf8_matches_nothing_and_does_not_fail_its_batch(ground: Ground) -> None:
    """Spark's strings may hold any bytes (``CAST(x AS STRING)`` of a binary)."""
    ground.table("words", "k varchar(20) PRIMARY KEY, v int", "('a', 1)", "('é', 2)")
    raw = pa.array([b"a", b"\xff\xfe", "é".encode(), b"\xed\xa0\x80", b"\xc3"])
    keys = pa.Array.from_buffers(pa.string(), len(raw), raw.buffers())
    assert ground.join("words", keys, "k") == [(0, 1), (2, 2)]


def test_every_character_and_every_mark_of_quoting_finds_its_own_row_only(ground: Ground) -> None:
    """Keys as JSON, as SQL literals and as bound parameters: 2,300 texts, each its own key."""
    marks = ["", "\\", "\\\\", "'", "''", '"', "\\'", "{}", "{a}", "[1,2]", "%s", "%", "%%", "\\u0041", "A\\", "NULL", "null"]
    marks += ["\r\n", "`", "$1", "x'", "--", "/*", "*/", "#", ";", "\\0", "\\n"]
    plain = [chr(code) for code in [*range(1, 0x300), 0x2028, 0x2029, 0xFEFF, 0xFFFF, 0xFFFD, 0x10000, 0x10FFFF, 0xD7FF, 0xE000]]
    keys = list(dict.fromkeys(plain + marks + [f"k{one}" for one in plain] + [f"{one}k" for one in plain]))
    exact = 'text COLLATE "C"' if ground.is_postgres else "varchar(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin"
    code = "convert_from(decode('{}', 'hex'), 'UTF8')" if ground.is_postgres else "CONVERT(X'{}' USING utf8mb4)"
    rows = [f"({code.format(key.encode().hex())}, {number})" for number, key in enumerate(keys)]
    ground.table("texts", f"k {exact} PRIMARY KEY, v int", *rows)
    found = ground.join("texts", pa.array([*keys, "\0", "\0a", "absent"]), "k", batch=777)
    assert found == [(number, number) for number in range(len(keys))]


# Caches, memory and time


def test_urls_that_differ_in_their_options_share_no_cache(postgres_ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    """``?search_path=`` says whose table an unqualified name is."""
    for name in ("one", "two"):
        postgres_ground.sql(f"DROP SCHEMA IF EXISTS {name} CASCADE; CREATE SCHEMA {name}")
        postgres_ground.table(f"{name}.owned", "id int PRIMARY KEY, v text", f"(1, '{name}')")
    monkeypatch.setenv("SRJ_ATTACKS", postgres_ground.server.password)
    found, names = [], []
    for name in ("one", "two"):
        spec = spec_of(f"{postgres_ground.url}?search_path={name}", "owned", "id")
        spec = replace(spec, question=replace(spec.question, url=spec.question.url.with_password("${SRJ_ATTACKS}")))
        names.append(spec.fingerprint())
        with engines.engine_for(names[-1], pickle.dumps(spec)) as engine:
            found += join(engine, pa.array([1]))
    for name in set(names):
        engines._engines.pop(name).close()
    assert found == [(0, "one"), (0, "two")]


def test_a_cache_that_another_lookup_uses_is_not_taken_for_a_new_one(postgres_ground: Ground) -> None:
    """A factory that gives the same object twice would mix two tables' rows."""
    shared: cachetools.LRUCache[Any, Any] = cachetools.LRUCache(100)
    postgres_ground.table("others", "id int PRIMARY KEY, v text", "(1, 'another table''s')")
    assert postgres_ground.join("numbers", pa.array([1]), cache=lambda: shared) == [(0, "one")]
    try:
        found = postgres_ground.join("others", pa.array([1]), cache=lambda: shared)
    except RequestError:
        return
    assert found == [(0, "another table's")]


@pytest.mark.parametrize("options", [{"ttl": timedelta.max, "missing_ttl": timedelta.max}, {"lookup_timeout": "30 d"}])
def test_a_duration_may_be_long(ground: Ground, options: dict[str, Any]) -> None:
    """``timedelta.max`` is a natural way to say for ever; PostgreSQL's own limit for a statement ends at 24.8 days."""
    assert ground.join("numbers", pa.array([1, 9]), **options) == [(0, "one")]


def test_a_row_that_comes_later_than_ttl_after_a_lookups_start_is_not_answered_by_it(postgres_ground: Ground) -> None:
    """The lookup saw the table before a change that is older than `ttl`."""
    postgres_ground.table("prices", "id int PRIMARY KEY, v int", "(1, 10)")
    postgres_ground.sql("CREATE VIEW slow_prices AS SELECT id, v, pg_sleep(1.5) IS NULL AS slept FROM prices")
    with postgres_ground.engine("slow_prices", columns=["v", "slept"], ttl="100 ms") as engine, ThreadPoolExecutor(1) as pool:
        join(engine, pa.array([9]))  # a connection is there
        first = pool.submit(join, engine, pa.array([1]))
        time.sleep(0.3)
        postgres_ground.sql("UPDATE prices SET v = 20")
        time.sleep(0.4)
        assert join(engine, pa.array([1])) == [(0, 20, False)]
        assert first.result() == [(0, 10, False)]


def test_one_large_value_beside_one_long_run_of_small_ones_does_not_cut_later_batches_to_single_rows() -> None:
    """No key's rows take more than a megabyte, so a thousand keys may be probed at once."""
    database = Scripted({1: ["x"] * 20_000, 2: ["y" * 1_000_000]})
    engine = scripted_engine(database, cache="64 MB")
    assert len(join(engine, pa.array([1, 2]))) == 20_001
    assert engine.most_keys >= 1000
    engine.close()


@dataclass
class Wide(Scripted):
    """Every key has one row of 5 KB."""

    landed_bytes: int = field(default=0)

    async def connect(self, _timeout: float) -> ScriptedConnection:
        """Open a connection, at once."""
        return WideConnection(self)


class WideConnection(ScriptedConnection):
    """One connection to it."""

    async def lookup(self, keys: tuple[pa.Array, ...], timeout: float) -> Answer:
        """Answer; the rows are counted in bytes."""
        await super().lookup(keys, timeout)
        rows = pa.record_batch({"value": pa.array(["v" * 5000]).take(pa.array(np.zeros(len(keys[0]), np.int64)))})
        assert isinstance(self.database, Wide)
        self.database.landed_bytes += rows.nbytes
        return Answer(np.arange(len(keys[0])), rows)


def test_what_waits_is_bounded_with_its_table_rows_after_a_database_paused() -> None:
    """While the first lookups are slow the stream is read ahead; when they end, rows must not pile up beyond the bound."""
    database = Wide({}, delay=lambda number: 2.0 if number < 4 else 0.0)
    engine = scripted_engine(database, cache="16 rows", unique=True)
    batches = [(pa.array(np.arange(start, start + 5000)),) for start in range(0, 80_000, 5000)]
    joined = Operator(engine).in_order(batches)
    next(joined)
    before = -1
    while database.landed_bytes != before:  # until nothing more lands, though nobody takes anything
        before = database.landed_bytes
        time.sleep(1.0)
    assert before <= 2 * WAITING_BYTES
    assert sum(len(one.counts) for one in joined) == 75_000
    engine.close()


def test_flights_of_large_rows_carry_few_keys(ground: Ground) -> None:
    """Else the server would hold an answer of 30 MB, and PostgreSQL five times over."""
    ground.table("large", f"id int PRIMARY KEY, v {'text' if ground.is_postgres else 'longtext'}")
    digits = "repeat(md5({}), 3000)"
    ground.sql("INSERT INTO large VALUES " + ", ".join(f"({i}, {digits.format(repr(str(i)))})" for i in range(300)))
    ground.sql(f"ANALYZE {'' if ground.is_postgres else 'TABLE '}large")
    with ground.engine("large", cache="64 MB", batch=1000) as engine:
        operator = Operator(engine)
        rows = sum(joined.inner()[1].num_rows for joined in operator.in_order([(pa.array(range(300)),)]))
        assert rows == 300
        assert 300 * 96_000 / 4e6 <= operator.metrics.batches <= 12


@pytest.mark.parametrize("cache", ["64 KB", "4 MB", "64 MB"])
def test_rows_larger_than_the_cache_can_hold_are_joined_all_the_same(postgres_ground: Ground, cache: str) -> None:
    """Whether some of them fit or none; keys that are not in the table are kept in any case."""
    postgres_ground.table("documents", "id int PRIMARY KEY, v text")
    postgres_ground.sql(
        "INSERT INTO documents SELECT i, repeat(md5(i::text), 100000) FROM generate_series(1, 9) i; ANALYZE documents"
    )
    with postgres_ground.engine("documents", cache=cache) as engine:
        for _ in range(2):
            found = join(engine, pa.array(range(12)))
            assert [(key, len(text), text[:32]) for key, text in found] == [
                (i, 3_200_000, hashlib.md5(str(i).encode()).hexdigest())  # noqa: S324  no secret
                for i in range(1, 10)
            ]
        stats = engine.cache_stats()
        assert stats.entries >= (12 if cache == "64 MB" else 3)


def test_flights_follow_the_size_of_the_rows_that_come() -> None:
    """Whatever the estimate was."""
    database = Scripted(rows={key: ["x" * 500_000] for key in range(40)})
    with closing(scripted_engine(database, cache="1 MB", batch=20)) as engine:
        for start in (0, 20):
            list(Operator(engine).in_order([(pa.array(range(start, start + 20)),)]))
    assert [len(asked) for asked in database.asked] == [20, 8, 8, 4]


# Servers and connections


def test_a_clash_is_not_cured_with_the_prefix_that_caused_it() -> None:
    """The advice makes the name free."""
    with pytest.raises(RequestError, match="prefix='table_', or choose columns"):
        check_clash(["p_name"], ["p_name"], case_sensitive=False)
    with pytest.raises(RequestError, match="prefix='srj_', or choose columns"):
        check_clash(["name", "n_name", "table_name"], ["name"], case_sensitive=False)
