"""PostgreSQL: time-outs, broken connections and other failures, against a real server."""

from __future__ import annotations

import asyncio
import secrets
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import asyncpg
import pyarrow as pa
import pytest

from srj.databases import database
from srj.errors import ConnectionFailedError, LookupFailedError, LookupTimeoutError, RequestError, SrjError
from tests.postgresql_place import TIMEOUT, Place, own_database, refusal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.servers import Server


@pytest.fixture(scope="module")
def place(postgres: Server) -> Iterator[Place]:
    with own_database(postgres) as place:
        yield place


def test_a_server_that_is_not_there_is_a_failed_connection(place: Place) -> None:
    """Nobody listens, the name is unknown."""
    question = place.question("products")
    for url in (replace(question.url, port=1), replace(question.url, host="no-such-host.invalid")):
        with pytest.raises(ConnectionFailedError) as caught:
            asyncio.run(database("postgresql").describe(replace(question, url=url), TIMEOUT))
        assert place.server.password not in str(caught.value)


def test_an_empty_password_is_named(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where somebody has set the variable to nothing."""
    question = place.question("products")
    monkeypatch.setenv("SRJ_EMPTY", "")
    with pytest.raises(LookupFailedError, match="the password is empty; write one as"):
        asyncio.run(database("postgresql").describe(replace(question, url=replace(question.url, password="${SRJ_EMPTY}")), TIMEOUT))


def test_a_server_that_does_not_answer_is_given_up_in_time(place: Place) -> None:
    """It accepts the connection and says nothing."""

    async def run() -> float:
        async def say_nothing(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await asyncio.sleep(TIMEOUT)
            writer.close()

        server = await asyncio.start_server(say_nothing, "127.0.0.1", 0)
        question = place.question("products")
        silent = replace(question, url=replace(question.url, port=server.sockets[0].getsockname()[1]))
        started = time.monotonic()
        with pytest.raises(ConnectionFailedError, match=r"within 0\.3 s"):
            await database("postgresql").describe(silent, 0.3)
        server.close()
        return time.monotonic() - started

    assert asyncio.run(run()) < 5


def active(place: Place) -> int:
    """Statements of this library that run in the server now."""
    ((count,),) = place.sql(
        "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND application_name = 'srj' AND datname = current_database()"
    )
    return int(count)


async def wait_until_idle(place: Place) -> None:
    deadline = time.monotonic() + 5
    while active(place) and time.monotonic() < deadline:  # noqa: ASYNC110 - the server has no event to wait for
        await asyncio.sleep(0.02)
    assert active(place) == 0


SLOW = {"columns": ("name",), "where": "id = 1 AND pg_sleep(30) IS NOT NULL"}
ONE = (pa.array([1], pa.int64()),)


def test_a_late_answer_is_given_up_and_cancelled_in_the_server(place: Place) -> None:
    """And the connection serves again."""

    async def run() -> None:
        async with place.connection("products", **SLOW) as (connection, _):
            started = time.monotonic()
            with pytest.raises(LookupTimeoutError, match=r"products .* within 0\.3 s"):
                await connection.lookup(ONE, 0.3)
            assert time.monotonic() - started < 5
            await wait_until_idle(place)
            assert connection.is_usable()
            answer = await connection.lookup((pa.array([2], pa.int64()),), TIMEOUT)
            assert answer.rows.num_rows == 0

    asyncio.run(run())


def test_a_lookup_that_is_cancelled_here_ends_in_the_server_too(place: Place) -> None:
    """As when a stream stops."""

    async def run() -> None:
        async with place.connection("products", **SLOW) as (connection, _):
            task = asyncio.create_task(connection.lookup(ONE, TIMEOUT))
            while not active(place):  # noqa: ASYNC110 - the server has no event to wait for
                await asyncio.sleep(0.02)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await wait_until_idle(place)

    asyncio.run(run())


def test_the_server_gives_up_by_itself_where_the_client_is_gone(place: Place) -> None:
    """The server knows the time-out, and a longer one replaces it."""

    async def run() -> list[Any]:
        async with place.connection("products", columns=("current_setting('statement_timeout') AS t",)) as (connection, _):
            return [(await connection.lookup(ONE, timeout)).rows.to_pylist()[0]["t"] for timeout in (3, 2, 60)]

    assert asyncio.run(run()) == ["3s", "3s", "1min"]


def test_a_slow_description_is_given_up_in_time(place: Place) -> None:
    """A lock on the table stops the planner."""

    async def run() -> None:
        blocker = await asyncpg.connect(place.server.url_for(database=place.name))
        try:
            async with blocker.transaction():
                await blocker.execute("CREATE TABLE IF NOT EXISTS locked (id int)")
                await blocker.execute("LOCK TABLE products IN ACCESS EXCLUSIVE MODE")
                with pytest.raises(LookupTimeoutError):
                    await database("postgresql").describe(place.question("products"), 0.5)
        finally:
            await blocker.close()

    asyncio.run(run())


def test_a_connection_that_the_server_ends_is_a_failed_connection(place: Place) -> None:
    """While idle and during a lookup; it is then unusable, and closing it is quiet."""

    def kill() -> None:
        place.sql(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'srj' AND datname = current_database()"
        )

    async def run() -> None:
        async with place.connection("products") as (connection, _):
            kill()
            for _ in range(2):
                with pytest.raises(ConnectionFailedError, match="products"):
                    await connection.lookup(ONE, TIMEOUT)
            assert not connection.is_usable()
        async with place.connection("products", **SLOW) as (connection, _):
            task = asyncio.create_task(connection.lookup(ONE, TIMEOUT))
            while not active(place):  # noqa: ASYNC110 - the server has no event to wait for
                await asyncio.sleep(0.02)
            kill()
            with pytest.raises(ConnectionFailedError):
                await task
            assert not connection.is_usable()

    asyncio.run(run())


def test_too_many_connections_are_worth_another_try(place: Place) -> None:
    """The server has no room now."""
    user = f"limited_{secrets.token_hex(4)}"
    place.sql(f"CREATE ROLE {user} LOGIN PASSWORD 'p' CONNECTION LIMIT 0; GRANT SELECT ON products TO {user}")
    url = place.server.url_for(user=user, password="p", database=place.name)
    with pytest.raises(ConnectionFailedError, match="too many connections"):
        place.describe("products", url=url)
    place.sql(f"DROP OWNED BY {user}; DROP ROLE {user}")


@pytest.mark.parametrize(
    ("code", "kind"),
    [(code, ConnectionFailedError) for code in ("08006", "53200", "53300", "57P01", "57P03", "40001", "40P01", "55P03")]
    + [("57014", LookupTimeoutError)]
    + [(code, LookupFailedError) for code in ("22012", "42501", "P0001")],
)
def test_an_error_is_worth_another_try_or_not_by_its_sqlstate(place: Place, code: str, kind: type[SrjError]) -> None:
    """Shutdowns, exhaustion and a replica's conflicts pass; the rest would fail again. The server itself raises each."""
    place.sql(
        "CREATE OR REPLACE FUNCTION fail(code text) RETURNS boolean LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE EXCEPTION 'raised on purpose' USING ERRCODE = code; END $$"
    )
    with pytest.raises(kind, match="products") as caught:
        place.lookup([1], "products", where=f"fail('{code}')")
    assert type(caught.value) is kind
    assert kind is LookupTimeoutError or "raised on purpose" in str(caught.value)


def test_a_table_changed_after_its_description_fails_clearly_or_keeps_its_types(place: Place) -> None:
    """A new column changes nothing, one of another type says so on old and new connections, a dropped one is named."""
    place.sql("CREATE TABLE changing (id int PRIMARY KEY, n int, v text); INSERT INTO changing VALUES (1, 5, 'a'), (2, 6, 'b')")

    async def run() -> None:
        async with place.connection("changing") as (connection, description):
            keys = (pa.array([1], pa.int32()),)
            place.sql("ALTER TABLE changing ADD w int")
            assert (await connection.lookup(keys, TIMEOUT)).rows.to_pylist() == [{"n": 5, "v": "a"}]
            place.sql("ALTER TABLE changing ALTER n TYPE bigint")
            says = r"column n of table changing to stay of type integer, got one of type bigint; start the query again"
            with pytest.raises(LookupFailedError, match=says):
                await connection.lookup(keys, TIMEOUT)
            other = await database("postgresql").connect(place.question("changing"), description, TIMEOUT)
            with pytest.raises(LookupFailedError, match=says):
                await other.lookup(keys, TIMEOUT)
            await other.close()
            place.sql("ALTER TABLE changing DROP v")
            with pytest.raises(LookupFailedError, match=r'changing .*column "v" does not exist'):
                await connection.lookup(keys, TIMEOUT)
            assert connection.is_usable()

    asyncio.run(run())


def test_no_transaction_stays_open_between_lookups(place: Place) -> None:
    """The connection is idle, not idle in transaction."""

    async def run() -> list[tuple[Any, ...]]:
        async with place.connection("products") as (connection, _):
            await connection.lookup(ONE, TIMEOUT)
            return place.sql(
                "SELECT DISTINCT state FROM pg_stat_activity WHERE application_name = 'srj' AND datname = current_database()"
            )

    assert asyncio.run(run()) == [("idle",)]


def test_no_two_connections_name_their_statement_alike(place: Place) -> None:
    """Or a pooler in transaction mode would let one run the other's, and answer from another table."""

    async def names() -> list[str]:
        async with place.connection("products") as (one, _), place.connection("products") as (two, _):
            asked = "SELECT name FROM pg_prepared_statements WHERE statement LIKE '%srj_sent%'"
            return [row["name"] for each in (one, two) for row in await each._connection.fetch(asked)]

    one, two = asyncio.run(names())
    assert one.startswith("srj_")
    assert two.startswith("srj_")
    assert one != two


@pytest.mark.parametrize("option", ["host=elsewhere", "port=1", "user=somebody", "dbname=other", "service=live"])
def test_an_option_that_the_url_itself_overrules_is_refused(place: Place, option: str) -> None:
    """Rather than ignored."""
    url = f"{place.server.url_for(database=place.name)}?{option}"
    message = refusal(lambda: place.describe("products", url=url), RequestError)
    assert f"{option.partition('=')[0]} among the options" in message


def test_an_unknown_dialect_is_refused() -> None:
    """With those that there are."""
    assert "postgresql" in refusal(lambda: database("oracle"), RequestError)
