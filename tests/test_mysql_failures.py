"""MySQL's module when things go wrong: logins, rights, timeouts, killed connections, changed tables."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from srj.databases import mysql_connection
from srj.databases.base import Question
from srj.databases.mysql import MySQL
from srj.errors import ConnectionFailedError, LookupFailedError, LookupTimeoutError, RequestError, TableError
from srj.table import DatabaseUrl
from tests.mysql_shop import SECONDS, Shop, open_shop, opened

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.servers import Server


@pytest.fixture(scope="module")
def goods(mariadb: Server) -> Iterator[Shop]:
    for shop in open_shop(mariadb, "srj_mysql_failures"):
        shop.run("CREATE TABLE goods (id INT PRIMARY KEY, kind TEXT, price INT); INSERT INTO goods VALUES (1, 'a', 5), (2, 'b', 6)")
        yield shop


def test_logins_and_addresses_that_fail_are_named_without_the_password(goods: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong password, user, database, host and port: one sentence each, and never the password."""
    server, secret = goods.server, "hunter2-é"
    monkeypatch.setenv("SRJ_EMPTY", "")
    wrong: list[tuple[str, type[Exception], str]] = [
        (server.url_for(password="hunter2-%C3%A9"), LookupFailedError, "expected a login that .* accepts, got: Access denied"),
        (server.url_for(user="nobody", password="hunter2-%C3%A9"), LookupFailedError, "Access denied for user 'nobody'"),
        (server.url_for(password="${SRJ_EMPTY}"), LookupFailedError, "the password is empty; write one as"),
        (server.url_for(database="no_such"), LookupFailedError, "Unknown database 'no_such'; correct the name"),
        (
            "mysql://u:hunter2-%C3%A9@no-such-host.invalid/x",
            ConnectionFailedError,
            "expected a connection to no-such-host.invalid:3306/x",
        ),
        (
            "mysql://u:hunter2-%C3%A9@127.0.0.1:1/x",
            ConnectionFailedError,
            "expected a connection to 127.0.0.1:1/x, got: .*refused|Connect",
        ),
    ]
    for text, kind, message in wrong:
        url = DatabaseUrl.parse(text)
        with pytest.raises(kind, match=message) as caught:
            asyncio.run(MySQL().describe(Question(url, ("goods",), ("id",)), SECONDS))
        assert secret not in str(caught.value)
        assert server.password not in str(caught.value)


def test_a_server_that_does_not_answer_is_given_up() -> None:
    """A port that accepts and stays silent costs no more than the timeout."""

    async def run() -> None:
        writers: list[asyncio.StreamWriter] = []
        silent = await asyncio.start_server(lambda _, writer: writers.append(writer), "127.0.0.1", 0)
        port = silent.sockets[0].getsockname()[1]
        url = DatabaseUrl.parse(f"mysql://u:p@127.0.0.1:{port}/x")
        started = time.monotonic()
        with pytest.raises(ConnectionFailedError, match=r"within 0.3 s, got no answer"):
            await MySQL().describe(Question(url, ("t",), ("k",)), 0.3)
        assert time.monotonic() - started < 3
        silent.close()
        for writer in writers:
            writer.close()
            await writer.wait_closed()

    asyncio.run(run())


@pytest.fixture
def reader(goods: Shop) -> Iterator[Shop]:
    """The shop through a login that may read two columns of one table; its password is not Latin-1."""
    goods.run(
        "CREATE OR REPLACE USER reader IDENTIFIED BY 'пароль'; GRANT SELECT (id, kind) ON srj_mysql_failures.goods TO reader; "
        "CREATE OR REPLACE TABLE hidden (id INT); "
        "CREATE OR REPLACE TABLE open_to_all (id INT); GRANT SELECT ON open_to_all TO reader"
    )
    user = Shop(goods.server, goods.name)
    user.url = replace(goods.url, user="reader", password="пароль")
    yield user
    goods.run("DROP USER reader")


def test_what_a_login_may_not_read_is_named(reader: Shop) -> None:
    """Only the columns that the login may read exist for it; the others are refused with the name of the right."""
    assert [column.name for column in reader.describe("goods", "id").columns] == ["kind"]
    with pytest.raises(
        TableError, match=r"expected permission to read table goods, got: SELECT command denied .*; run GRANT SELECT"
    ):
        reader.describe("goods", "id", columns=("price * 2 AS x",))
    with pytest.raises(TableError, match=r"'hidden' in database 'srj_mysql_failures' that this user may read, got none"):
        reader.describe("hidden", "id")


def test_rights_withdrawn_later_fail_at_once(reader: Shop, goods: Shop) -> None:
    """A permission error during a lookup names the table and is not worth another try."""

    async def run() -> None:
        question = reader.question("goods", "id")
        description = await MySQL().describe(question, SECONDS)
        goods.run("REVOKE SELECT (id, kind) ON srj_mysql_failures.goods FROM reader")
        connection = await MySQL().connect(question, description, SECONDS)
        with pytest.raises(LookupFailedError, match=r"expected an answer of table goods .*command denied"):
            await connection.lookup((pa.array([1], pa.int32()),), SECONDS)
        await connection.close()

    asyncio.run(run())


def test_options_of_the_url_are_checked(goods: Shop) -> None:
    """An unknown option, a wrong value and a server without TLS are each refused."""
    for query, kind, message in [
        ("?sll=true", RequestError, "expected the options ssl and ssl_ca .*, got 'sll'"),
        ("?ssl=maybe", RequestError, "expected ssl=true or ssl=false"),
        ("?ssl_ca=/no/such.pem", RequestError, "expected ssl_ca to name certificates"),
        ("?ssl=true", LookupFailedError, "expected an encrypted connection"),
    ]:
        url = DatabaseUrl.parse(goods.server.url_for(database=goods.name) + query)
        with pytest.raises(kind, match=message):
            asyncio.run(MySQL().describe(Question(url, ("goods",), ("id",)), SECONDS))


def running(shop: Shop, mark: str) -> list[int]:
    """The connections whose statement has this mark."""
    rows = shop.run("SELECT ID, INFO FROM information_schema.PROCESSLIST WHERE ID <> CONNECTION_ID()")
    return [number for number, info in rows if info and mark in info]


def test_a_slow_statement_ends_in_the_database_too(goods: Shop) -> None:
    """The server itself ends it at the timeout; the connection stays good."""

    async def run() -> None:
        connection = await opened(goods, "goods", "id", where="SLEEP(20) = 0 AND 'marked_slow' <> ''")
        started = time.monotonic()
        with pytest.raises(LookupTimeoutError, match=r"table goods at .* within 0.3 s"):
            await connection.lookup((pa.array([1, 2], pa.int32()),), 0.3)
        assert time.monotonic() - started < 2
        assert running(goods, "marked_slow") == []
        assert connection.is_usable()
        await connection.close()

    asyncio.run(run())


def test_a_statement_that_outlives_its_limit_is_killed(goods: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the server's own limit has not ended it, this side gives up and kills it through another connection."""
    monkeypatch.setattr(mysql_connection, "_GRACE", -19.7)  # this side's limit falls before the server's

    async def run() -> None:
        connection = await opened(goods, "goods", "id", where="SLEEP(10) = 0 AND 'marked_kill' <> ''")
        started = time.monotonic()
        with pytest.raises(LookupTimeoutError):
            await connection.lookup((pa.array([1], pa.int32()),), SECONDS)
        assert time.monotonic() - started < 3
        assert not connection.is_usable()
        await connection.close()
        await asyncio.sleep(0.2)
        assert running(goods, "marked_kill") == []

    asyncio.run(run())


def test_a_cancelled_lookup_gives_its_connection_up(goods: Shop) -> None:
    """Cancelling the task leaves a connection that says that it is unusable, and closes without trouble."""

    async def run() -> None:
        connection = await opened(goods, "goods", "id", where="SLEEP(1) = 0")
        task = asyncio.create_task(connection.lookup((pa.array([1], pa.int32()),), SECONDS))
        await asyncio.sleep(0.1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not connection.is_usable()
        await connection.close()

    asyncio.run(run())


def test_a_lock_that_is_held_is_a_timeout(goods: Shop) -> None:
    """A table locked by somebody else makes a lookup time out, not hang."""
    goods.run("CREATE OR REPLACE TABLE locked (k INT PRIMARY KEY, v INT)")

    async def run() -> None:
        connection = await opened(goods, "locked", "k")
        blocker = await opened(goods, "locked", "k")
        await blocker._session.query("LOCK TABLES locked WRITE")  # type: ignore[attr-defined]# a lock needs a session
        with pytest.raises(LookupTimeoutError):
            await connection.lookup((pa.array([1], pa.int32()),), 0.3)
        await blocker.close()
        assert len((await connection.lookup((pa.array([1], pa.int32()),), SECONDS)).ordinals) == 0
        await connection.close()

    asyncio.run(run())


@pytest.mark.parametrize("idle", [True, False], ids=["idle", "busy"])
def test_a_killed_connection_is_a_broken_one(goods: Shop, idle: bool) -> None:
    """A connection that the server ends, at rest or at work, is known to be unusable and worth another try."""

    async def run() -> None:
        mark = f"marked_{idle}"
        connection = await opened(goods, "goods", "id", where=f"SLEEP(5) = 0 AND '{mark}' <> ''")
        number = connection._session._driver.thread_id()  # type: ignore[attr-defined]# the server's number of it
        task = asyncio.create_task(connection.lookup((pa.array([1], pa.int32()),), SECONDS))
        if idle:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        if not idle:
            await asyncio.sleep(0.3)
            assert running(goods, mark) == [number]
        goods.run(f"KILL {number}")
        if idle:
            await asyncio.sleep(0.2)
            assert not connection.is_usable()
            task = asyncio.create_task(connection.lookup((pa.array([1], pa.int32()),), SECONDS))
        with pytest.raises(ConnectionFailedError, match="table goods"):
            await task
        assert not connection.is_usable()
        await connection.close()

    asyncio.run(run())


def test_too_many_connections_are_worth_another_try(reader: Shop, goods: Shop) -> None:
    """A limit on connections that is reached is transient."""
    goods.run("ALTER USER reader WITH MAX_USER_CONNECTIONS 1")

    async def run() -> None:
        connection = await opened(reader, "goods", "id")
        with pytest.raises(ConnectionFailedError, match="max_user_connections"):
            await MySQL().describe(reader.question("goods", "id"), SECONDS)
        await connection.close()

    asyncio.run(run())


def test_a_table_that_changes_its_types_is_a_clear_error(goods: Shop) -> None:
    """Values that no longer have the described type fail the lookup with one sentence, rather than arriving wrong."""
    goods.run("CREATE OR REPLACE TABLE moving (k INT PRIMARY KEY, v INT); INSERT INTO moving VALUES (1, 1)")

    async def run() -> None:
        connection = await opened(goods, "moving", "k")
        goods.run("ALTER TABLE moving MODIFY v VARCHAR(10); UPDATE moving SET v = 'text'")
        with pytest.raises(
            LookupFailedError, match=r"column v of table moving to stay of type int\(11\), got .* text\(10\); start"
        ):
            await connection.lookup((pa.array([1], pa.int32()),), SECONDS)
        goods.run("ALTER TABLE moving DROP v")
        with pytest.raises(LookupFailedError, match="Unknown column"):
            await connection.lookup((pa.array([1], pa.int32()),), SECONDS)
        await connection.close()

    asyncio.run(run())


@pytest.mark.parametrize(
    ("before", "after", "value"),
    [
        ("FLOAT", "DOUBLE", "0.1"),
        ("DOUBLE", "FLOAT", "1234567.8"),
        ("DOUBLE", "DECIMAL(30,20)", "0.12345678901234567891"),
        ("INT", "DECIMAL(6,3)", "2.125"),
        ("DECIMAL(6,1)", "DECIMAL(6,3)", "2.125"),
        ("DATE", "DATETIME", "'2024-01-01 10:11:12'"),
        ("TIMESTAMP NULL", "DATETIME", "'2024-01-01 10:11:12'"),
        ("INT", "BIT(8)", "49"),
    ],
)
def test_a_value_is_not_rounded_to_the_type_that_a_column_had(goods: Shop, before: str, after: str, value: str) -> None:
    """Nor read as another than it is: a bit field's byte 49 is no digit 1."""
    goods.run(f"CREATE OR REPLACE TABLE rounding (k INT PRIMARY KEY, v {before}); INSERT INTO rounding VALUES (1, NULL)")

    async def run() -> None:
        connection = await opened(goods, "rounding", "k")
        try:
            goods.run(f"ALTER TABLE rounding MODIFY v {after}; UPDATE rounding SET v = {value}")
            with pytest.raises(LookupFailedError):
                await connection.lookup((pa.array([1], pa.int32()),), SECONDS)
        finally:
            await connection.close()

    asyncio.run(run())


def test_a_wider_type_of_whole_numbers_changes_nothing(goods: Shop) -> None:
    """INT to BIGINT is the change that growing tables see; a value is read as long as it fits."""
    goods.run("CREATE OR REPLACE TABLE growing (k INT PRIMARY KEY, v INT); INSERT INTO growing VALUES (1, 7)")

    async def run() -> list[object]:
        connection = await opened(goods, "growing", "k")
        try:
            goods.run("ALTER TABLE growing MODIFY v BIGINT")
            answer = await connection.lookup((pa.array([1], pa.int32()),), SECONDS)
            goods.run("UPDATE growing SET v = 5000000000")
            with pytest.raises(LookupFailedError):
                await connection.lookup((pa.array([1], pa.int32()),), SECONDS)
        finally:
            await connection.close()
        return list(answer.rows.column(0).to_pylist())

    assert asyncio.run(run()) == [7]
