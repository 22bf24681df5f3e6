"""A password written out in the URL works, and shows up nowhere."""

from __future__ import annotations

import contextlib
import io
import pickle
import warnings
from typing import TYPE_CHECKING

import pytest
from pyspark import cloudpickle

from srj import RequestError, Table, srj_enrich
from srj.enrich import plan_for
from srj.options import parse_options
from tests import servers
from tests.integration.scripts import run

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.integration.stores import Store

PASSWORD = "s3cret-Pa55-w0rd"  # noqa: S105  the reader's


@pytest.fixture(scope="module")
def shop(store: Store) -> Iterator[Store]:
    """A table, and a reader with a password that nothing else is called."""
    store.run("CREATE TABLE shop (k int PRIMARY KEY, v int); INSERT INTO shop VALUES (1, 10), (2, 20)")
    if store.is_postgres:
        store.run(f"CREATE ROLE srj_reader LOGIN PASSWORD '{PASSWORD}'; GRANT SELECT ON shop TO srj_reader")
    else:
        store.run(f"CREATE USER srj_reader IDENTIFIED BY '{PASSWORD}'; GRANT SELECT ON {store.name}.shop TO srj_reader")
    yield store
    store.run("DROP OWNED BY srj_reader; DROP ROLE srj_reader" if store.is_postgres else "DROP USER srj_reader")


def _url(shop: Store, password: str = PASSWORD) -> str:
    return shop.server.url_for(database=shop.name, user="srj_reader", password=password)


@pytest.mark.parametrize("order", ["input", "any"])
def test_plans_closures_and_reprs_hold_no_password(spark: SparkSession, shop: Store, order: str) -> None:
    """The query works; its plans, the bytes that go to workers, and what Python prints of its parts do not hold the password."""
    stream, table = spark.range(3).selectExpr("cast(id AS int) AS k"), Table(_url(shop), "shop")
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        frame = srj_enrich(stream, table, "k", order=order)
        settings = parse_options({"order": order})
        plan = plan_for(stream, table, "k", settings)
    assert frame.collect() == [(0, None), (1, 10), (2, 20)]
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        for mode in ("simple", "extended", "codegen", "cost", "formatted"):
            frame.explain(mode=mode)
    shown = [
        printed.getvalue(),
        frame._jdf.queryExecution().toString(),
        *map(repr, (table, table.url, settings, plan, plan.spec, plan.spec.question, frame, warned)),
        *map(str, (table, table.url, plan.spec.question.url)),
        plan.fingerprint,
    ]
    assert len(printed.getvalue()) > 500
    for text in shown:
        assert PASSWORD not in text
    assert PASSWORD.encode() not in plan.payload
    with pytest.raises(RequestError, match="expected no password inside what is pickled") as refused:
        pickle.dumps(table)
    assert PASSWORD not in str(refused.value)
    with pytest.raises(RequestError):
        cloudpickle.dumps(lambda: table)


def test_an_unreadable_url_is_shown_without_its_password() -> None:
    """Whatever is wrong with a URL, its password is masked in the sentence about it."""
    wrong = [
        f"postgresql://reader:{PASSWORD}@host:port/shop#t",
        f"oracle://reader:{PASSWORD}@host/shop#t",
        f"mysql://reader:{PASSWORD}#1@host/shop#t",
        f"mysql://reader:{PASSWORD}@/shop#t",
        f"mysql://reader:{PASSWORD}@host/shop",
        f"//reader:{PASSWORD}@host/shop#t",
    ]
    for text in wrong:
        with pytest.raises(RequestError) as caught:
            Table(text)
        assert PASSWORD not in str(caught.value)


def test_failing_lookups_hold_no_password(spark: SparkSession, shop: Store) -> None:
    """The login is refused in the workers, though the driver got in before: the task's error names the user, not the password."""
    stream = spark.range(3).selectExpr("cast(id AS int) AS k")
    frame = srj_enrich(stream, Table(_url(shop), "shop"), "k", ttl=777.0)
    change = "ROLE srj_reader PASSWORD" if shop.is_postgres else "USER srj_reader IDENTIFIED BY"
    shop.run(f"ALTER {change} 'another'")
    try:
        with pytest.raises(Exception, match=f"expected a login that {shop.place} accepts") as caught:
            frame.collect()
    finally:
        shop.run(f"ALTER {change} '{PASSWORD}'")
    assert PASSWORD not in f"{caught.value!r} {caught.value}"
    assert "srj_reader" in str(caught.value)
    assert frame.collect() == [(0, None), (1, 10), (2, 20)]


@pytest.mark.parametrize("start", [servers.start_postgres, servers.start_mariadb], ids=["postgresql", "mysql"])
def test_a_stopped_server_is_named_without_the_password(spark: SparkSession, start: object) -> None:
    """The server stops after the driver has described the table: retries, then an error with the address alone."""
    server = start()
    server.execute("CREATE TABLE shop (k int PRIMARY KEY, v int); INSERT INTO shop VALUES (1, 10)")
    stream = spark.range(3).selectExpr("cast(id AS int) AS k")
    frame = srj_enrich(stream, f"{server.url}#shop", "k", retries=1)
    server.stop()
    with pytest.raises(Exception, match=rf"{server.host}:{server.port}/{server.database}.*\(given up after 2 attempts\)") as caught:
        frame.collect()
    assert server.password not in f"{caught.value!r} {caught.value}"
    server.start()
    assert frame.collect() == [(0, None), (1, 10), (2, None)]
    server.remove()


@pytest.mark.timeout(600)
def test_the_event_log_holds_no_password(postgres_store: Store, tmp_path: Path) -> None:
    """Spark's event log of a query that works and of one whose lookups fail, and all that Spark printed of them."""
    store, log = postgres_store, tmp_path / "events"
    log.mkdir()
    store.run("CREATE TABLE shop (k int PRIMARY KEY, v int); INSERT INTO shop VALUES (1, 10), (2, 20)")
    store.run(f"CREATE ROLE srj_logged LOGIN PASSWORD '{PASSWORD}'; GRANT SELECT ON shop TO srj_logged")
    arguments = {
        "table": f"{store.server.url_for(database=store.name, user='srj_logged', password=PASSWORD)}#shop",
        "administrator": store.url,
        "change": "ALTER ROLE srj_logged PASSWORD 'an0ther-Pa55'",
        "log": str(log),
    }
    result, printed = run("with_event_log", arguments, tmp_path)
    expected = [[0, None], [1, 10], [2, 20], [3, None], [4, None]]
    assert result["rows"] == {"input": expected, "any": expected}
    events = [path.read_bytes() for path in log.rglob("*") if path.is_file()]
    assert sum(map(len, events)) > 20_000
    assert b"expected a login that" in b"".join(events)
    assert not any(PASSWORD.encode() in text for text in events)
    assert PASSWORD not in printed
    for order in ("input", "any"):
        assert 'password authentication failed for user "srj_logged"' in result["errors"][order]
        assert PASSWORD not in result["errors"][order]
    store.run("DROP OWNED BY srj_logged; DROP ROLE srj_logged")
