"""The relations of the thesis on both servers, and the one-by-one lookup that the baseline makes."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import time
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from srj.errors import ConnectionFailedError, RequestError
from srj.experiments import relation
from srj.experiments.joins import Ask
from srj.experiments.relation import SCHEMA, drop_relations, ensure_relation, plain_url, read_relation
from srj.experiments.servers import Servers

if TYPE_CHECKING:
    from tests.servers import Server


def test_a_relation_is_made_once_read_whole_and_dropped(server: Server) -> None:
    """With an index and without; the baseline's lookup gives the same rows."""
    try:
        for indexed in (True, False):
            name = ensure_relation(server.url, 1234, indexed=indexed)
            assert ensure_relation(server.url, 1234, indexed=indexed) == name
            rows = read_relation(server.url, name).sort_by("id")
            assert rows.schema == SCHEMA
            assert rows["id"].to_pylist() == list(range(1234))
            assert rows.slice(1233).to_pylist() == [{"id": 1233, "name": "item-00000001233", "price": 308.25, "quantity": 233}]
            with closing(Ask(server.url, name, indexed=indexed)) as ask:
                assert tuple(ask.loop.run_until_complete(ask(1233)) or ()) == ("item-00000001233", 308.25, 233)
                assert ask.loop.run_until_complete(ask(1234)) is None
    finally:
        drop_relations(server.url)
    left = "SELECT 1 FROM information_schema.tables WHERE table_name LIKE 'srj\\_experiment\\_%'"
    assert server.execute(left) == []


def test_tables_that_others_made_are_neither_measured_nor_dropped(server: Server) -> None:
    """Whatever their names."""
    others = ("srj_experiment_notes", "srj_experiment_r1_77")
    try:
        for name in others:
            server.execute(f"CREATE TABLE {name} (id BIGINT)")
        with pytest.raises(RequestError, match="expected the table srj_experiment_r1_77 as srj's experiments make it, got another"):
            ensure_relation(server.url, 77, indexed=True)
        ensure_relation(server.url, 77, indexed=False)
        assert drop_relations(server.url) == []
        there = "SELECT table_name FROM information_schema.tables WHERE table_name LIKE 'srj\\_experiment\\_%' ORDER BY 1"
        assert [name for (name,) in server.execute(there)] == [*others]
    finally:
        for name in others:
            server.execute(f"DROP TABLE {name}")


def test_tables_of_other_schemas_are_left(postgres: Server) -> None:
    """The mark alone does not make them ours: a user may keep a copy."""
    name = ensure_relation(postgres.url, 77, indexed=False)
    try:
        postgres.execute(f"CREATE SCHEMA kept; ALTER TABLE {name} SET SCHEMA kept")
        assert drop_relations(postgres.url) == []
        assert postgres.execute(f"SELECT count(*) FROM kept.{name}") == [(77,)]
    finally:
        postgres.execute("DROP SCHEMA kept CASCADE")


def test_a_server_that_says_nothing_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """It accepts, and never greets; what a statement takes has no such limit."""
    monkeypatch.setattr(relation, "_GREETING", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        with pytest.raises(ConnectionFailedError, match="expected MySQL at"):
            read_relation(f"mysql://u:secret@127.0.0.1:{port}/d", "t")


def test_a_statement_may_take_longer_than_the_greeting(mariadb: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relation, "_GREETING", 1.0)
    with relation.mysql_connection(mariadb.url) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT SLEEP(1.5)")
        assert cursor.fetchone() == (0,)


def test_the_version_of_a_server_is_told(server: Server) -> None:
    given = {"postgresql" if server.kind == "postgresql" else "mysql": server.url}
    with Servers(**given) as servers:
        servers.hold([server.kind])
        told = servers.described(server.kind)
    (version,) = server.execute("SELECT version()")[0]
    assert told.split()[1] in version
    assert told.endswith(f" at {server.host}:{server.port}/{server.database}")


def test_what_an_ended_client_asked_ends_at_an_own_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else it would take a core from the cells after it."""
    asks = "import asyncio, asyncpg, os\nasync def ask():\n    c = await asyncpg.connect(os.environ['SRJ_ASKED'])\n"
    asks += "    await c.fetchval('SELECT count(*) FROM generate_series(1, 4000000000) AS asked')\nasyncio.run(ask())"
    with Servers() as servers:
        url = servers.url("postgresql")
        monkeypatch.setenv("SRJ_ASKED", url)

        def is_asked() -> bool:
            with asyncio.Runner() as runner:
                connection = runner.run(relation.postgresql_connection(url))
                active = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%AS asked' AND pid <> pg_backend_pid()"
                found = runner.run(connection.fetchval(f"{active} AND state = 'active'"))
                runner.run(connection.close())
            return bool(found)

        def becomes(*, asked: bool) -> bool:
            until = time.monotonic() + 20
            while is_asked() != asked and time.monotonic() < until:
                time.sleep(0.1)
            return is_asked() == asked

        client = subprocess.Popen([sys.executable, "-c", asks])
        try:
            assert becomes(asked=True)
        finally:
            client.kill()
            client.wait()
        assert becomes(asked=False)


def test_each_cell_runs_on_the_servers_that_were_given(postgres: Server) -> None:
    """Without any, on a PostgreSQL that is started only when a cell asks for it; no login is told."""
    assert Servers().chosen(("postgresql", "mysql")) == ["postgresql"]
    assert Servers(postgres.url).chosen(("postgresql", "mysql")) == ["postgresql"]
    both = Servers(postgres.url, "mysql://u:p@h/d")
    assert both.chosen(("postgresql", "mysql")) == ["postgresql", "mysql"]
    assert both.described("mysql") == "mysql at h:3306/d"
    with pytest.raises(RequestError, match="expected the URL of one of mysql, got none"):
        Servers(postgres.url).chosen(("mysql",))


def test_a_server_that_is_not_there_is_told_without_its_password() -> None:
    for url in ("postgresql://u:secret@127.0.0.1:1/d", "mysql://u:secret@127.0.0.1:1/d"):
        with pytest.raises(ConnectionFailedError, match=r"expected \w+ at .*127.0.0.1:1") as caught:
            read_relation(url, "t")
        assert "secret" not in f"{caught.value}"


def test_a_url_is_written_out_for_drivers(monkeypatch: pytest.MonkeyPatch) -> None:
    """With what stands for a secret replaced, and another place if one is given."""
    monkeypatch.setenv("SRJ_SECRET", "a/b")
    assert plain_url("postgres://u:${SRJ_SECRET}@[::1]/d") == "postgresql://u:a%2Fb@[::1]:5432/d"
    assert plain_url("mysql://u@h/d", host="127.0.0.1", port=1) == "mysql://u@127.0.0.1:1/d"
