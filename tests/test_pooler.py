"""Behind PgBouncer, which gives each transaction any of its connections: what was prepared or set on one is not on the next."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import asyncpg
import numpy as np
import pyarrow as pa
import pytest

from srj import Batch
from srj.errors import LookupFailedError, LookupTimeoutError, RequestError
from srj.lookup.engine import Engine
from tests.ground import Ground, join, spec_of
from tests.pooler import PgBouncer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.servers import Server

CONNECTIONS = 2
KEYS = 4000


@pytest.fixture(scope="module")
def pooler(postgres: Server) -> Iterator[PgBouncer]:
    """Two connections for all."""
    with PgBouncer(postgres, CONNECTIONS) as pooler:
        yield pooler


def test_several_tables_are_asked_over_connections_that_all_share(postgres_ground: Ground, pooler: PgBouncer) -> None:
    """Each row has its own table's values, and nobody else's settings are changed."""
    factors = (7, 11, 13)
    url = pooler.url(postgres_ground.name)
    for factor in factors:
        postgres_ground.table(f"times_{factor}", "id int PRIMARY KEY, v int")
        postgres_ground.sql(f"INSERT INTO times_{factor} SELECT id, {factor} * id FROM generate_series(1, {KEYS}) AS id")

    def ask(factor: int) -> list[tuple[int, int]]:
        engine = Engine(spec_of(url, f"times_{factor}", "id", batch=Batch(size=50, in_flight=4)))
        try:
            batches = [pa.array(np.arange(begin, begin + 500), pa.int32()) for begin in range(1, KEYS, 500)]
            return join(engine, *batches)
        finally:
            engine.close()

    with ThreadPoolExecutor(len(factors)) as threads:
        for factor, rows in zip(factors, threads.map(ask, factors), strict=True):
            assert rows == [(key - 1, factor * key) for key in range(1, KEYS + 1)]
    settings = "SELECT string_agg(setting, ' ' ORDER BY name) FROM pg_settings WHERE name IN ('statement_timeout', 'jit')"
    ((untouched,),) = postgres_ground.sql(settings)

    async def through_it() -> list[str]:
        connections = [await asyncpg.connect(url, statement_cache_size=0) for _ in range(CONNECTIONS)]
        for connection in connections:  # each holds one of the pooler's while its transaction lasts
            await connection.execute("BEGIN")
        seen = [str(await connection.fetchval(settings)) for connection in connections]
        for connection in connections:
            await connection.close()
        return seen

    assert asyncio.run(through_it()) == [untouched] * CONNECTIONS


def test_a_lookup_that_is_refused_leaves_no_transaction_open(postgres: Server, pooler: PgBouncer) -> None:
    """A character that only the server knows to be missing ends the transaction with an error; the connection goes on."""
    postgres.execute("CREATE DATABASE pooled_japanese TEMPLATE template0 ENCODING 'EUC_JP' LOCALE 'C'")
    japanese = Ground(postgres, "pooled_japanese")
    japanese.table("words", "id text PRIMARY KEY, v int", "('a', 1)", "('日本', 2)")
    with japanese.engine("words", url=pooler.url("pooled_japanese"), batch=Batch(in_flight=1)) as engine:
        assert join(engine, pa.array(["〜", "a", "日本"])) == [(1, 1), (2, 2)]
        assert japanese.sql("SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in transaction%'") == [(0,)]
        assert join(engine, pa.array(["日本", "b"])) == [(0, 2)]


def test_the_time_limit_is_the_servers_too(postgres_ground: Ground, pooler: PgBouncer) -> None:
    """As without a pooler: a lookup that takes too long is ended there as well."""
    postgres_ground.table("slow", "id int PRIMARY KEY", "(1)")
    slow = {"columns": ["(SELECT 1 FROM pg_sleep(60)) AS v"], "lookup_timeout": "1 s"}
    with (
        postgres_ground.engine("slow", url=pooler.url(postgres_ground.name), **slow) as engine,
        pytest.raises(LookupTimeoutError, match="within 1 s"),
    ):
        join(engine, pa.array([1], pa.int32()))
    running = (
        "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%pg_sleep(60)%' AND pid <> pg_backend_pid() AND state = 'active'"
    )
    assert postgres_ground.sql(running) == [(0,)]


# Of another client: a schema in which the table's name means another one, and forms in which values read otherwise.
FOREIGN = (
    *("search_path = elsewhere", "bytea_output = escape", "extra_float_digits = -10", "IntervalStyle = sql_standard"),
    *("lc_monetary = 'C'", "transform_null_equals = on", "DateStyle = 'German'", "TimeZone = 'Asia/Tokyo'", "role = nobody_here"),
    *("enable_indexscan = off", "enable_bitmapscan = off", "enable_nestloop = off"),
)
COLUMNS = ("v", "b::text AS b", "f::text AS f", "i::text AS i", "m::text AS m", "t::text AS t", "(v = NULL) IS NULL AS n")


async def leave_behind(url: str, statements: str) -> None:
    """On each of the pooler's connections, as another client might."""
    connections = [await asyncpg.connect(url, statement_cache_size=0) for _ in range(CONNECTIONS)]
    for connection in connections:
        await connection.execute("BEGIN")
    for connection in connections:
        await connection.execute(f"{statements}; COMMIT")
        await connection.close()


def test_what_other_clients_have_set_changes_no_row(postgres_ground: Ground, pooler: PgBouncer) -> None:
    """Neither of a lookup that was described before, nor of one that is described now."""
    columns = "id int PRIMARY KEY, v int, b bytea, f float8, i interval, m money, t timestamptz"
    row = "(1, {}, '\\x01', 0.1::float8 + 0.2, '1 day 02:03:04', '12.5', '2020-02-03 04:05:06+00')"
    postgres_ground.sql("CREATE SCHEMA elsewhere; DROP ROLE IF EXISTS nobody_here; CREATE ROLE nobody_here")
    postgres_ground.table("mine", columns, row.format(1))
    postgres_ground.table("elsewhere.mine", columns, row.format(2))
    url, keys = pooler.url(postgres_ground.name), pa.array([1], pa.int32())
    with postgres_ground.engine("mine", columns=COLUMNS) as engine:
        expected = join(engine, keys)
    temporary = f"CREATE TEMPORARY TABLE mine ({columns}); INSERT INTO mine VALUES {row.format(3)}"
    with postgres_ground.engine("mine", url=url, columns=COLUMNS) as engine:
        asyncio.run(leave_behind(url, f"{temporary}; SET {'; SET '.join(FOREIGN)}"))
        assert join(engine, keys) == expected
    with postgres_ground.engine("mine", url=url, columns=COLUMNS) as engine:
        assert join(engine, keys) == expected
    assert spec_of(url, "mine", "id", columns=COLUMNS).description.index == "mine_pkey"
    # And these clients find what they have left.
    path = asyncio.run(through(url, "SHOW search_path"))
    asyncio.run(leave_behind(url, "RESET role; DROP TABLE pg_temp.mine; RESET ALL"))
    postgres_ground.sql("DROP ROLE nobody_here")
    assert path == "elsewhere"


async def through(url: str, question: str) -> object:
    """What the pooler's server answers."""
    connection = await asyncpg.connect(url, statement_cache_size=0)
    try:
        return await connection.fetchval(question)
    finally:
        await connection.close()


def test_sessions_can_be_pooled_and_statements_can_not(postgres: Server, postgres_ground: Ground) -> None:
    """Which is said at the start, as what no later try would change."""
    keys = pa.array([1, 2], pa.int32())
    with PgBouncer(postgres, CONNECTIONS, "session") as pooler:
        assert postgres_ground.join("numbers", keys, url=pooler.url(postgres_ground.name)) == [(0, "one"), (1, "two")]
    with (
        PgBouncer(postgres, CONNECTIONS, "statement") as pooler,
        pytest.raises(LookupFailedError, match=r"expected a pooler at .* that keeps a transaction .*; let it pool transactions or"),
    ):
        spec_of(pooler.url(postgres_ground.name), "numbers", "id")


def test_an_option_that_a_pooler_does_not_pass_on_is_refused(postgres_ground: Ground, pooler: PgBouncer) -> None:
    """It is a mistake in the URL, which no later try would mend."""
    with pytest.raises(RequestError, match=r"expected options that the pooler at .* passes on, got: unsupported startup parameter"):
        spec_of(f"{pooler.url(postgres_ground.name)}?search_path=public", "numbers", "id")
