"""Inputs and circumstances chosen to break a lookup: strange keys, caches, tables that change, servers that fall silent.

Each goes through the real engine and a real server, without Spark.
"""

from __future__ import annotations

import os
import pickle
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import cachetools
import numpy as np
import pyarrow as pa
import pytest

from srj import Batch, LookupFailedError, LookupTimeoutError, RequestError, Table, TableError
from srj.databases.base import Answer, Question
from srj.lookup import engine as engines
from srj.lookup.describe import describe
from srj.lookup.engine import Engine
from srj.lookup.operator import WAITING_BYTES, Operator
from srj.lookup.spec import LookupSpec
from srj.options import parse_options
from srj.table import DatabaseUrl
from tests import servers
from tests.scripted import Scripted, ScriptedConnection, scripted_engine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from tests.servers import Server

DATABASE = "srj_attacks"
DAY = 86_400_000_000


@dataclass(frozen=True)
class Ground:
    """A database of these tests' own."""

    server: Server

    @property
    def is_postgres(self) -> bool:
        """PostgreSQL rather than MariaDB."""
        return self.server.kind == "postgresql"

    @property
    def url(self) -> str:
        """Its address."""
        return self.server.url_for(database=DATABASE)

    def sql(self, text: str) -> list[tuple[Any, ...]]:
        """Run statements as the administrator."""
        return self.server.execute(text, database=DATABASE)

    def table(self, name: str, columns: str, *values: str) -> str:
        """Make a table anew, with these rows."""
        self.sql(f"DROP TABLE IF EXISTS {name}{' CASCADE' if self.is_postgres else ''}")
        self.sql(f"CREATE TABLE {name} ({columns})")
        if values:
            self.sql(f"INSERT INTO {name} VALUES {', '.join(values)}")
        return name

    @contextmanager
    def engine(self, table: str, key: str | tuple[str, ...] = "id", url: str | None = None, **options: Any) -> Iterator[Engine]:
        """An engine for a table, closed afterwards."""
        engine = Engine(spec_of(url or self.url, table, key, **options))
        try:
            yield engine
        finally:
            engine.close()

    def join(self, table: str, keys: Any, key: str | tuple[str, ...] = "id", **options: Any) -> list[tuple[Any, ...]]:
        """Look keys up twice, so that the second answer comes from the cache where it can; both must be the same."""
        with self.engine(table, key, **options) as engine:
            first, second = join(engine, keys), join(engine, keys)
        assert first == second
        return first


def spec_of(url: str, table: str, key: str | tuple[str, ...], **options: Any) -> LookupSpec:
    """The lookup, as the driver would describe it."""
    settings = parse_options({"cache": "4 MB", **options})  # type: ignore[typeddict-item]  # a test's free choice
    question = Question(
        DatabaseUrl.parse(url),
        (table,),
        (key,) if isinstance(key, str) else key,
        columns=settings.columns,
        where=settings.where,
        exists_only=settings.how in ("semi", "anti"),
        first=settings.on_multiple == "first",
        order_by=settings.order_by,
    )
    return LookupSpec(question, describe(question, 10.0), settings.lookup, at_most_one=settings.on_multiple == "error")


def join(engine: Engine, *batches: Any) -> list[tuple[Any, ...]]:
    """(number of the stream's row, value, …) of every match."""
    found, start = [], 0
    keys = (batch if isinstance(batch, tuple) else (batch,) for batch in batches)
    for joined in Operator(engine).in_order(keys):
        positions, rows = joined.inner()
        columns = [column.to_pylist() for column in rows.columns]
        found += [(start + int(position), *values) for position, *values in zip(positions, *columns, strict=True)]
        start += len(joined.counts)
    return found


class Wire:
    """Passes bytes between clients and a server until it is told, or sees some bytes, to fall silent: nothing closes, nothing comes."""

    def __init__(self, server: Server, silent_at: bytes | None = None) -> None:
        self._target = (server.host, server.port)
        self._silent_at = silent_at
        self.is_silent = False
        self._sockets: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *_: object) -> None:
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


def outcome(call: Callable[[], Any], seconds: float) -> Any:
    """What the call returns or raises, or a failed test if it is still running after so many seconds."""
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(call)
        try:
            return future.result(timeout=seconds)
        except TimeoutError:
            if not future.done():
                return f"still running after {seconds:g} s"
            return future.exception()
        except Exception as error:  # the outcome, whatever it is
            return error


@pytest.fixture(scope="module")
def ground(server: Server) -> Iterator[Ground]:
    """A database on each server in turn."""
    yield from _open(server)


@pytest.fixture(scope="module")
def postgres_ground(postgres: Server) -> Iterator[Ground]:
    """On PostgreSQL alone."""
    yield from _open(postgres)


@pytest.fixture(scope="module")
def mariadb_ground(mariadb: Server) -> Iterator[Ground]:
    """On MariaDB alone."""
    yield from _open(mariadb)


_opened: dict[str, int] = {}


def _open(server: Server) -> Iterator[Ground]:
    if not _opened.get(server.kind):
        server.execute(f"CREATE DATABASE {DATABASE}")
        Ground(server).table("numbers", "id int PRIMARY KEY, v varchar(20)", "(1, 'one')", "(2, 'two')", "(3, 'three')")
    _opened[server.kind] = _opened.get(server.kind, 0) + 1
    yield Ground(server)
    _opened[server.kind] -= 1
    if not _opened[server.kind]:
        server.execute(f"DROP DATABASE {DATABASE}{' WITH (FORCE)' if server.kind == 'postgresql' else ''}")


# Keys


def test_dates_beyond_pythons_years_are_looked_up_like_any_other(postgres_ground: Ground) -> None:
    """PostgreSQL and Spark know years that Python's dates lack; a date beyond PostgreSQL's own years matches nothing."""
    postgres_ground.table("dates", "k date PRIMARY KEY, v text", "('2024-01-01', 'now')", "('12345-06-07', 'far')", "('0044-03-15 BC', 'ides')")
    [(far, ides)] = postgres_ground.sql("SELECT '12345-06-07'::date - '1970-01-01'::date, '0044-03-15 BC'::date - '1970-01-01'::date")
    keys = pa.array([19723, far, ides, 2**31 - 1, -(2**31)], pa.int32()).view(pa.date32())
    assert postgres_ground.join("dates", keys, "k") == [(0, "now"), (1, "far"), (2, "ides")]


@pytest.mark.parametrize(("sql", "arrow"), [("timestamp", pa.timestamp("us")), ("timestamptz", pa.timestamp("us", "UTC"))])
def test_timestamps_beyond_pythons_years_are_looked_up_like_any_other(postgres_ground: Ground, sql: str, arrow: pa.DataType) -> None:
    """Milliseconds taken for seconds make the year 55969: such a key must not fail the stream."""
    postgres_ground.table(
        "moments", f"k {sql} PRIMARY KEY, v text", "('2024-01-01 00:00Z', 'now')", "('55969-09-26 00:00Z', 'far')", "('0044-03-15 00:00Z BC', 'ides')"
    )
    [(far, ides)] = postgres_ground.sql("SELECT '55969-09-26'::date - '1970-01-01'::date, '0044-03-15 BC'::date - '1970-01-01'::date")
    keys = pa.array([19723 * DAY, far * DAY, ides * DAY, 2**63 - 1, -(2**63)], pa.int64()).view(arrow)
    assert postgres_ground.join("moments", keys, "k") == [(0, "now"), (1, "far"), (2, "ides")]


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
    ground.table("texts", f"k {exact} PRIMARY KEY, v int", *(f"({code.format(key.encode().hex())}, {n})" for n, key in enumerate(keys)))
    found = ground.join("texts", pa.array([*keys, "\0", "\0a", "absent"]), "k", batch=777)
    assert found == [(number, number) for number in range(len(keys))]


def test_zero_has_two_signs_and_nan_many_bits_but_each_is_one_key(ground: Ground) -> None:
    """-0.0 finds 0; NaN finds PostgreSQL's NaN whatever its bits, and nothing in MariaDB, which has none."""
    special = ["('NaN', 'nan')", "('Infinity', 'inf')"] if ground.is_postgres else []
    ground.table("floats", "k double precision PRIMARY KEY, v varchar(9)", "(0, 'zero')", "(0.1, 'tenth')", "(5e-324, 'least')", *special)
    other_nan = np.array([0xFFF8000000000001], np.uint64).view(np.float64)[0]
    keys = pa.array(np.array([0.0, -0.0, np.nan, other_nan, np.inf, -np.inf, 0.1, 5e-324]))
    found = ground.join("floats", keys, "k")
    ordinary = [(0, "zero"), (1, "zero"), (6, "tenth"), (7, "least")]
    assert found == sorted(ordinary + ([(2, "nan"), (3, "nan"), (4, "inf")] if ground.is_postgres else []))


def test_decimals_with_all_their_digits_are_found(ground: Ground) -> None:
    """Arrow prints small ones with an exponent: 1E-18, 0E-18."""
    digits = ["0.000000000000000001", "0", "-99999999999999999999.999999999999999999"]
    ground.table("decimals", "k decimal(38,18) PRIMARY KEY, v int", *(f"({text}, {n})" for n, text in enumerate(digits)))
    keys = pa.array([*map(Decimal, digits), Decimal("2E-18")], pa.decimal128(38, 18))
    assert ground.join("decimals", keys, "k") == [(0, 0), (1, 1), (2, 2)]


def test_a_null_or_an_impossible_part_makes_a_composite_key_match_nothing(ground: Ground) -> None:
    """Empty text is a value, NULL is none, and 2**40 is no int."""
    ground.table("pairs", "a int, b varchar(5), v int, PRIMARY KEY (a, b)", "(1, 'x', 1)", "(1, '', 2)", "(2, 'x', 3)")
    keys = (pa.array([1, None, 1, 1, 2, None, 2**40]), pa.array(["x", "x", None, "", "x", None, "x"]))
    assert ground.join("pairs", keys, ("a", "b")) == [(0, 1), (3, 2), (4, 3)]


def test_spellings_that_a_collation_holds_equal_share_rows_but_never_go_stale_together(mariadb_ground: Ground) -> None:
    """'a' and 'A' find one row; each is remembered by itself, and each expires."""
    mariadb_ground.table("folded", "k varchar(9) COLLATE utf8mb4_general_ci PRIMARY KEY, v int", "('a', 1)", "('é', 2)")
    with mariadb_ground.engine("folded", "k", ttl="100 ms") as engine:
        keys = pa.array(["a", "A", "a ", "E", "é"])
        assert join(engine, keys) == [(0, 1), (1, 1), (2, 1), (3, 2), (4, 2)]
        mariadb_ground.sql("UPDATE folded SET v = v + 10")
        time.sleep(0.2)
        assert join(engine, keys) == [(0, 11), (1, 11), (2, 11), (3, 12), (4, 12)]


def test_keys_of_a_megabyte_are_compared_to_their_last_character(postgres_ground: Ground) -> None:
    """They are too long for the cache, and found all the same, each time."""
    postgres_ground.table("long", "k text, v int", "(repeat('k', 1000000), 1)", "(repeat('k', 999999) || 'l', 2)")
    keys = ["k" * 1_000_000, "k" * 999_999 + "l", "k" * 999_999 + "m", "k"]
    assert postgres_ground.join("long", pa.array(keys * 2), "k") == [(0, 1), (1, 2), (4, 1), (5, 2)]


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


@pytest.mark.parametrize(
    "factory",
    [
        lambda: cachetools.LRUCache(0),
        lambda: cachetools.LRUCache(1),
        lambda: cachetools.LFUCache(2),
        lambda: cachetools.FIFOCache(1),
        lambda: cachetools.RRCache(1),
        lambda: cachetools.TTLCache(2, 0),
        lambda: cachetools.TTLCache(2, 0.0001),
        lambda: cachetools.TLRUCache(2, lambda _key, _value, now: now - 1),
        lambda: cachetools.LRUCache(5, getsizeof=lambda _: 10),
        lambda: cachetools.LRUCache(5, getsizeof=lambda _: 0),
    ],
)
def test_a_cachetools_cache_of_any_kind_and_size_changes_no_row(postgres_ground: Ground, factory: Callable[[], Any]) -> None:
    """Caches that keep nothing, one key, or drop what they were just given."""
    keys = pa.array([1, 2, 3, 1, 9])
    assert postgres_ground.join("numbers", keys, cache=factory) == [(0, "one"), (1, "two"), (2, "three"), (3, "one")]


def test_the_longest_duration_is_for_ever(postgres_ground: Ground) -> None:
    """``timedelta.max`` is a natural way to say it."""
    found = postgres_ground.join("numbers", pa.array([1, 9]), ttl=timedelta.max, missing_ttl=timedelta.max)
    assert found == [(0, "one")]


def test_a_lookup_may_be_allowed_a_month(ground: Ground) -> None:
    """PostgreSQL's own limit for a statement ends at 24.8 days."""
    assert ground.join("numbers", pa.array([1]), lookup_timeout="30 d") == [(0, "one")]


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


def test_repeated_keys_with_megabyte_texts_leave_in_pieces(postgres_ground: Ground) -> None:
    """400 rows of the stream share 10 rows of a megabyte: no piece that leaves is larger than its bound."""
    postgres_ground.table("texts_of_a_megabyte", "id int PRIMARY KEY, v text")
    postgres_ground.sql("INSERT INTO texts_of_a_megabyte SELECT i, repeat(chr(64 + i), 1000000) FROM generate_series(1, 10) i")
    keys = np.random.default_rng(0).integers(1, 11, 400)
    seen: list[str] = []
    with postgres_ground.engine("texts_of_a_megabyte", cache="32 MB") as engine:
        for joined in Operator(engine).in_order([(pa.array(keys),)]):
            for _, piece in joined.pieces(50_000, 20_000_000):
                _, rows = piece.outer()
                assert rows.nbytes <= 21_000_000
                seen += [value[:1] for value in rows.column(0).to_pylist()]
    assert seen == [chr(64 + key) for key in keys.tolist()]


# Tables that change, SQL that means something else


@pytest.mark.parametrize(
    ("before", "after", "value"),
    [("int", "numeric(10,3)", "2.125"), ("int", "float8", "2.7"), ("date", "timestamp", "'2024-01-01 10:11:12'"), ("int", "text", "'2x'")],
)
def test_a_column_whose_type_changes_in_mid_stream_is_an_error_never_a_rounded_value(
    postgres_ground: Ground, before: str, after: str, value: str
) -> None:
    """2.125 is not 2."""
    postgres_ground.table("changing", f"id int PRIMARY KEY, v {before}", "(1, NULL)", "(2, NULL)")
    with postgres_ground.engine("changing") as engine:
        join(engine, pa.array([1]))
        postgres_ground.sql(f"ALTER TABLE changing DROP COLUMN v; ALTER TABLE changing ADD v {after}; UPDATE changing SET v = {value}")
        with pytest.raises(LookupFailedError):
            join(engine, pa.array([2]))


@pytest.mark.parametrize(
    "change",
    ["DROP TABLE changing", "ALTER TABLE changing RENAME COLUMN v TO w", "ALTER TABLE changing {drop}; INSERT INTO changing VALUES (2, 3)"],
)
def test_a_table_that_no_longer_is_as_described_is_an_error(ground: Ground, change: str) -> None:
    """Dropped, a column renamed, or its key no longer unique."""
    ground.table("changing", "id int PRIMARY KEY, v int", "(1, 1)", "(2, 2)")
    with ground.engine("changing") as engine:
        assert join(engine, pa.array([1])) == [(0, 1)]
        ground.sql(change.format(drop="DROP CONSTRAINT changing_pkey" if ground.is_postgres else "DROP PRIMARY KEY"))
        with pytest.raises(LookupFailedError):
            join(engine, pa.array([1, 2]))


@pytest.mark.parametrize("options", [{"how": "semi"}, {"on_multiple": "first", "order_by": "v"}, {}])
def test_a_condition_that_closes_the_brackets_around_it_is_refused(ground: Ground, options: dict[str, Any]) -> None:
    """``v <> 'two') OR (id > 0`` would otherwise hold for every key of the stream."""
    with pytest.raises(TableError):
        ground.join("numbers", pa.array([1, 99]), where="v <> 'two') OR (id > 0", **options)


@pytest.mark.parametrize("text", ["1 = 1; DROP TABLE numbers", "1 = 1) -- ", "1 = 1 /*"])
def test_sql_that_would_end_the_statement_is_refused(ground: Ground, text: str) -> None:
    """As a condition, as a column and as an order."""
    for options in ({"where": text}, {"columns": [f"{text} AS x"]}, {"on_multiple": "first", "order_by": text}):
        with pytest.raises(TableError):
            ground.join("numbers", pa.array([1]), **options)
    assert ground.join("numbers", pa.array([1])) == [(0, "one")]


def test_sql_may_end_in_a_comment_and_hold_percent_signs(ground: Ground) -> None:
    """Neither swallows what srj writes behind it."""
    where = "v LIKE '%o%' AND v <> '%s%%' -- %d"
    assert ground.join("numbers", pa.array([1, 2, 3]), where=where) == [(0, "one"), (1, "two")]
    columns = ["v AS v", "v LIKE '%n%' -- \n AS n"]
    assert [row[:2] for row in ground.join("numbers", pa.array([1]), columns=columns)] == [(0, "one")]


def test_a_nul_character_in_a_condition_is_no_place_for_the_keys(mariadb_ground: Ground) -> None:
    """MariaDB takes it in a text."""
    assert mariadb_ground.join("numbers", pa.array([1]), where="v <> 'a\0b'") == [(0, "one")]


def test_columns_that_comment_each_other_out_are_refused(mariadb_ground: Ground) -> None:
    """Two expressions that make one column together."""
    with pytest.raises(TableError):
        mariadb_ground.join("numbers", pa.array([1]), columns=["id /* AS a", "*/ + 1 AS b"])


# Servers and connections


@pytest.mark.parametrize("table", ["numbers", "unindexed"])
@pytest.mark.parametrize("moment", ["session", "lookup"])
def test_a_server_that_falls_silent_is_given_up_in_time(ground: Ground, table: str, moment: str) -> None:
    """While a connection is prepared or while a lookup is on its way: nothing waits for ever."""
    ground.table("unindexed", "id int, v varchar(20)", "(1, 'one')")
    last = b"jit = off" if ground.is_postgres else b"join_cache_level" if table == "unindexed" else b"lower_case_table_names"
    spec = spec_of(ground.url, table, "id", connect_timeout="1 s", lookup_timeout="1 s", retries=0)
    with Wire(ground.server, last if moment == "session" else b"unnest(" if ground.is_postgres else b"JSON_TABLE") as wire:
        engine = Engine(replace(spec, question=replace(spec.question, url=replace(spec.question.url, port=wire.port))))
        # The pool is waited for when the test ends, so the engine is closed first: that ends whatever hangs.
        pool = ThreadPoolExecutor(1)
        future = pool.submit(join, engine, pa.array([1]))
        try:
            error = future.exception(timeout=6.0)
        except TimeoutError:
            error = None
        with suppress(TimeoutError):
            engine.close()
        pool.shutdown()
        assert isinstance(error, (LookupTimeoutError, engines.LookupFailedError.__mro__[1])), "nothing came within 6 s"


def test_an_engine_closes_soon_and_quietly_though_its_server_is_silent(postgres_ground: Ground) -> None:
    """Sixteen idle connections, none of which gets an answer to its farewell: another query's start waits for this."""
    spec = spec_of(postgres_ground.url, "numbers", "id", batch=Batch(size=1, in_flight=16))
    with Wire(postgres_ground.server) as wire:
        engine = Engine(replace(spec, question=replace(spec.question, url=replace(spec.question.url, port=wire.port))))
        join(engine, pa.array(np.arange(200)))
        assert len(engine._fetcher._idle) > 8
        wire.is_silent = True
        started = time.monotonic()
        engine.close()
        assert time.monotonic() - started < 6.0


def test_a_closed_engine_leaves_no_file_open_and_no_thread(postgres_ground: Ground) -> None:
    """Not even until the garbage collector comes by."""
    postgres_ground.join("numbers", pa.array([1]))
    before = len(os.listdir("/proc/self/fd")), threading.active_count()
    for number in range(5):
        postgres_ground.join("numbers", pa.array([1]), where=f"id <> {10 + number}")
    assert (len(os.listdir("/proc/self/fd")), threading.active_count()) == before


def test_a_connection_that_the_server_closed_while_idle_is_not_used_again(ground: Ground) -> None:
    """Even where a failed lookup is not to be tried again: it would never have been sent."""
    with ground.engine("numbers", retries=0) as engine:
        assert join(engine, pa.array([1])) == [(0, "one")]
        if ground.is_postgres:
            ground.sql(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                f"WHERE application_name = 'srj' AND datname = '{DATABASE}'"
            )
        else:
            others = f"SELECT id FROM information_schema.processlist WHERE db = '{DATABASE}' AND id <> CONNECTION_ID()"
            for (number,) in ground.sql(others):
                ground.sql(f"KILL {number}")
        time.sleep(0.3)
        assert join(engine, pa.array([2])) == [(0, "two")]


def test_fewer_connections_than_wanted_are_enough(postgres_ground: Ground) -> None:
    """A role that may open two: the lookups that find no third one wait for these."""
    login = {"user": "srj_attacks_few", "password": "few"}
    postgres_ground.sql("DROP ROLE IF EXISTS srj_attacks_few; CREATE ROLE srj_attacks_few LOGIN PASSWORD 'few' CONNECTION LIMIT 2")
    postgres_ground.sql("CREATE OR REPLACE VIEW slow_numbers AS SELECT id, v, pg_sleep(0.4) IS NULL AS slept FROM numbers")
    postgres_ground.sql("GRANT SELECT ON numbers, slow_numbers TO srj_attacks_few")
    url = postgres_ground.server.url_for(database=DATABASE, **login)
    with postgres_ground.engine("slow_numbers", url=url, columns=["v", "slept"], batch=Batch(size=1, in_flight=4)) as engine:
        found = outcome(lambda: join(engine, pa.array([1, 2, 3])), 20.0)
    postgres_ground.sql("DROP OWNED BY srj_attacks_few; DROP ROLE srj_attacks_few")
    assert found == [(0, "one", False), (1, "two", False), (2, "three", False)]


def test_a_restarted_server_is_found_again_while_rows_wait() -> None:
    """Two seconds without a server, bridged by the retries."""
    server = servers.start_postgres()
    try:
        server.execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
        server.execute("INSERT INTO t VALUES (1, 'one'), (2, 'two')")
        engine = Engine(spec_of(server.url, "t", "id", retries=7))
        assert join(engine, pa.array([1])) == [(0, "one")]
        server.stop()
        with ThreadPoolExecutor(1) as pool:
            later = pool.submit(join, engine, pa.array([2, 3]))
            time.sleep(1.0)
            server.start()
            assert later.result(timeout=30) == [(0, "two")]
        engine.close()
    finally:
        server.remove()


def test_six_threads_with_an_entry_that_expires_at_once_get_every_row_right(ground: Ground) -> None:
    """Flights are joined, entries expire between probe and probe, and batches are of three keys."""
    names = {1: "one", 2: "two", 3: "three"}
    batch = Batch(size=3, in_flight=3, latency="1 ms")
    with ground.engine("numbers", ttl="1 ms", missing_ttl="1 ms", batch=batch) as engine:

        def work(seed: int) -> int:
            wrong = 0
            for _ in range(15):
                keys = np.random.default_rng(seed).integers(0, 6, 50).tolist()
                wrong += join(engine, pa.array(keys)) != [(n, names[key]) for n, key in enumerate(keys) if key in names]
            return wrong

        with ThreadPoolExecutor(6) as pool:
            assert list(pool.map(work, range(6))) == [0] * 6


def test_an_operator_left_at_any_point_and_a_stream_that_fails_leave_the_engine_whole(postgres_ground: Ground) -> None:
    """Closed before its first row, after one, in the middle; and an error of the stream's own comes out as it is."""

    def failing() -> Iterable[tuple[pa.Array]]:
        yield (pa.array([1, 2]),)
        raise KeyError("the stream's own")

    with postgres_ground.engine("numbers", batch=1) as engine:
        for taken in (0, 1, 7):
            rows = Operator(engine).in_order((pa.array([number % 5]),) for number in range(50))
            for _ in range(taken):
                next(rows)
            rows.close()  # type: ignore[attr-defined]  # it is a generator
        with pytest.raises(KeyError, match="the stream's own"):
            list(Operator(engine).in_order(failing()))
        assert join(engine, pa.array([1, 2, 3])) == [(0, "one"), (1, "two"), (2, "three")]


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


def test_any_part_of_a_url_may_be_a_variable_host_included(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names of variables are usually in upper case."""
    monkeypatch.setenv("SRJ_ATTACKS_HOST", "db.example")
    assert DatabaseUrl.parse("postgresql://reader@${SRJ_ATTACKS_HOST}/shop").resolve().host == "db.example"


def test_a_password_among_the_options_of_a_url_is_kept_out_of_pickles() -> None:
    """``?password=`` is one of PostgreSQL's own ways to write it."""
    try:
        pickled = pickle.dumps(Table("postgresql://reader@db/shop?password=s3cret#products"))
    except RequestError as error:
        assert "s3cret" not in str(error)
        return
    assert b"s3cret" not in pickled


@pytest.mark.parametrize(
    "url",
    [
        "reader:s3cret@db/shop",
        "postgresql:reader:s3cret@db/shop",
        "postgresql:/reader:s3cret@db/shop",
        "postgresql://reader:123/s3cret@db/shop",
        "postgresql://reader:s3#cret@db/shop#products",
        "postgresql://reader:s3cret@db",
        "oracle://reader:s3cret@db/shop",
    ],
)
def test_a_url_that_is_not_well_formed_is_refused_without_its_password(url: str) -> None:
    """Slips that people make: no scheme, one slash, a slash inside the password."""
    with pytest.raises(RequestError) as caught:
        Table(url if "#" in url else f"{url}#products")
    assert "cret" not in str(caught.value)
