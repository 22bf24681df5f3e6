"""Runs on a server of the user's: one at a time, and what can't be tidied up there is told."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from srj.errors import ConnectionFailedError, RequestError
from srj.experiments.relation import drop_relations, ensure_relation, read_relation
from srj.experiments.run_lock import only_run
from srj.experiments.servers import Servers
from tests.experiments.own import own, srj

if TYPE_CHECKING:
    from pathlib import Path

    from tests.servers import Server


def _on_a_server(folder: Path) -> str:
    path = folder / own(folder, 0)
    path.write_text(path.read_text().replace("servers=()", "servers=('postgresql', 'mysql')"))
    return path.name


def test_a_second_run_is_refused_and_drops_nothing(server: Server, folder: Path) -> None:
    """While another has the database; in one sentence, before anything is measured."""
    option = "--postgres-url" if server.kind == "postgresql" else "--mysql-url"
    name = ensure_relation(server.url, 10, indexed=True)
    try:
        with only_run(server.url):
            done = srj("run", _on_a_server(folder), option, server.url, code=2)
        assert done.stderr.startswith("srj: expected no other run at ")
        assert done.stderr.count("\n") == 1
        assert read_relation(server.url, name).num_rows == 10
        assert "1 cells finished" in srj("run", "own.py", option, server.url).stdout
        left = "SELECT 1 FROM information_schema.tables WHERE table_name LIKE 'srj\\_experiment\\_%'"
        assert server.execute(left) == []
    finally:
        drop_relations(server.url)


def test_tables_that_stay_are_told_after_the_tally(postgres: Server, folder: Path) -> None:
    """As one on which somebody has made a view."""
    name = ensure_relation(postgres.url, 10, indexed=False)
    postgres.execute(f"CREATE VIEW srj_view AS SELECT * FROM {name}")
    try:
        done = srj("run", _on_a_server(folder), "--postgres-url", postgres.url)
        assert "1 cells finished" in done.stdout
        assert done.stderr.startswith("srj: tables have stayed at postgresql://")
        assert f"{name} (cannot drop table {name} because other objects depend on it)" in done.stderr
        assert done.stderr.count("\n") == 1
        assert postgres.password not in done.stderr
    finally:
        postgres.execute("DROP VIEW srj_view")
        assert drop_relations(postgres.url) == []


def test_a_server_that_has_gone_is_told_and_the_next_is_tidied_up(postgres: Server) -> None:
    gone = "mysql://u:secret@127.0.0.1:1/d"
    name = ensure_relation(postgres.url, 10, indexed=False)
    with Servers(postgres.url, gone) as servers:
        servers.hold(["postgresql"])
        servers._held.add("mysql")
    assert len(servers.left) == 1
    assert servers.left[0].startswith("tables srj_experiment_… may have stayed at mysql://u:***@127.0.0.1:1/d; drop them by hand: ")
    assert postgres.execute(f"SELECT to_regclass('{name}') IS NULL") == [(True,)]


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://u:secret@127.0.0.1:1/d?sslmode=odd",
        "postgresql://u:secret@127.0.0.1:1/d?target_session_attrs=odd",
        "postgresql://u:secret@a..b/d",
        "mysql://u:secret@a..b/d",
    ],
)
def test_whatever_a_driver_says_to_a_url_is_told_without_its_password(url: str, folder: Path) -> None:
    with pytest.raises((ConnectionFailedError, RequestError)) as caught:
        read_relation(url, "t")
    assert "secret" not in f"{caught.value}"
    done = srj("run", _on_a_server(folder), "--postgres-url" if url[0] == "p" else "--mysql-url", url, code=1)
    assert done.stderr.count("\n") == 1
