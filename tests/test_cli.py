"""The command `srj`, run as a user runs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from srj.check import BATCH_SIZES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests import servers

SRJ = Path(sys.executable).with_name("srj")
PRODUCTS = 3000
PAIRS = 2000


@pytest.fixture(scope="module")
def shop(server: servers.Server) -> Iterator[servers.Server]:
    """A server with a table that has a primary key, one that has repeated pairs and no index, and an empty one."""
    server.execute("CREATE TABLE cli_products (id int PRIMARY KEY, name varchar(20), price numeric(10,2))")
    values = ", ".join(f"({number}, 'product {number}', {number}.5)" for number in range(PRODUCTS))
    server.execute(f"INSERT INTO cli_products VALUES {values}")
    server.execute("CREATE TABLE cli_pairs (a int, b varchar(10), v float)")
    values = ", ".join(f"({number % 5}, 'b{number % 4}', {number})" for number in range(PAIRS))
    server.execute(f"INSERT INTO cli_pairs VALUES {values}, (NULL, 'b', 1)")
    server.execute("CREATE TABLE cli_empty (id int PRIMARY KEY, v int)")
    analyze = "ANALYZE {}" if server.kind == "postgresql" else "ANALYZE TABLE {}"
    for table in ("cli_products", "cli_pairs"):
        server.execute(analyze.format(table))
    server.execute("CREATE TABLE cli_wide (id int PRIMARY KEY, story text)")
    server.execute(
        f"INSERT INTO cli_wide SELECT id, {'repeat' if server.kind == 'postgresql' else 'REPEAT'}('x', 8000) FROM cli_products"
    )
    server.execute(analyze.format("cli_wide"))
    yield server
    for table in ("cli_products", "cli_pairs", "cli_empty", "cli_wide"):
        server.execute(f"DROP TABLE {table}")


def test_check_as_json_holds_all_that_a_script_needs(shop: servers.Server) -> None:
    """Types in both worlds, uniqueness, the index, the rows, and a round trip a batch size."""
    report = check_json(shop, "cli_products", "--key", "id")
    assert [column["name"] for column in report["key"]] == ["id"]
    assert [(column["name"], column["spark_type"]) for column in report["columns"]] == [
        ("name", "string"),
        ("price", "decimal(10,2)"),
    ]
    assert report["unique"] is True
    assert report["index"]
    assert report["rows"] == pytest.approx(PRODUCTS, rel=0.2)
    assert report["server"].startswith(("PostgreSQL ", "MariaDB ", "MySQL "))
    assert [trip["keys"] for trip in report["round_trips"]] == list(BATCH_SIZES)
    assert all(trip["rows"] == trip["keys"] and trip["milliseconds"] > 0 for trip in report["round_trips"])
    cost, (*_, largest) = report["cost"], report["round_trips"]
    assert 100 <= cost["batch_size"] <= 10_000
    by_the_line = cost["milliseconds"] + largest["keys"] * cost["microseconds_per_key"] / 1e3
    assert by_the_line == pytest.approx(largest["milliseconds"], rel=0.5)


def test_wide_rows_are_asked_in_lookups_of_four_megabytes(shop: servers.Server) -> None:
    """Whatever the line says: so the operator does."""
    report = check_json(shop, "cli_wide", "--key", "id")
    assert 100 <= report["cost"]["batch_size"] <= 4_000_000 / 7_500


def test_check_for_people_shows_the_same(shop: servers.Server) -> None:
    """A table of columns and one of lookups."""
    shown = check(shop, "cli_products", "--key", "id").stdout
    for text in ("key is unique", "yes", "decimal(10,2)", "median ms", "1,000", "By these a lookup takes", "keys at a time"):
        assert text in shown
    # Nobody looks at a pipe, so the lines in it are whole.
    assert f"{shop.kind}://{shop.user}:***@{shop.host}:{shop.port}/{shop.database}#cli_products" in shown


@pytest.mark.parametrize("key", [["--key", "a", "--key", "b"], ["--key", "a,b"], ["-k", '"a", b']])
def test_a_composite_key_may_be_written_in_three_ways(shop: servers.Server, key: list[str]) -> None:
    """And the lookups give every row of a key."""
    report = check_json(shop, "cli_pairs", *key)
    assert [column["name"] for column in report["key"]] == ["a", "b"]
    assert report["unique"] is False
    assert report["index"] is None
    assert [trip["keys"] for trip in report["round_trips"]] == [1, 10]
    assert [trip["rows"] for trip in report["round_trips"]] == [PAIRS // 20, PAIRS // 2]
    assert any("index" in warning for warning in report["warnings"])
    assert any("only 20 different keys" in warning for warning in report["warnings"])


def test_columns_may_be_expressions_and_rows_filtered(shop: servers.Server) -> None:
    """As in `srj_enrich`."""
    report = check_json(shop, "cli_products", "-k", "id", "-c", "id * 2 AS twice", "-c", "name", "-w", "id < 50 -- few")
    assert [column["name"] for column in report["columns"]] == ["twice", "name"]
    assert [trip["keys"] for trip in report["round_trips"]] == [1, 10]


def test_an_empty_table_is_described_with_a_warning(shop: servers.Server) -> None:
    """There is no key to look up."""
    report = check_json(shop, "cli_empty", "--key", "id")
    assert report["round_trips"] == []
    assert report["cost"] is None
    assert any("no row with a key" in warning for warning in report["warnings"])
    assert report["index"] is not None or "none seen, which says little" in check(shop, "cli_empty", "--key", "id").stdout


@pytest.mark.parametrize(
    ("table", "key", "expected"),
    [
        ("cli_products", "idd", "idd"),
        ("no_such_table", "id", "no_such_table"),
    ],
)
def test_what_can_not_be_joined_ends_with_one_sentence(shop: servers.Server, table: str, key: str, expected: str) -> None:
    """On standard error, with exit code 1 and no traceback."""
    done = run_srj("check", f"{shop.url}#{table}", "--key", key, code=1)
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("srj: expected ")
    assert expected in done.stderr


def test_a_password_is_never_shown(shop: servers.Server) -> None:
    """Not in a report, nor in the refusal of a wrong one."""
    done = check(shop, "cli_products", "--key", "id", "--json")
    assert shop.password not in done.stdout + done.stderr
    refused = run_srj("check", f"{shop.url_for(password='hunter2')}#cli_products", "--key", "id", code=1)
    assert "hunter2" not in refused.stdout + refused.stderr
    assert refused.stderr.count("\n") == 1


def test_a_password_may_come_from_the_environment(shop: servers.Server) -> None:
    """So that none stands in the shell's history."""
    url = shop.url_for(password="${SRJ_TEST_CLI_PASSWORD}")
    environment = {"SRJ_TEST_CLI_PASSWORD": shop.password}
    done = run_srj("check", f"{url}#cli_products", "--key", "id", "--json", environment=environment)
    assert json.loads(done.stdout)["unique"] is True


def test_a_url_without_a_table_is_refused_before_connecting() -> None:
    """The sentence says what to append."""
    done = run_srj("check", "postgresql://reader@localhost/shop", "--key", "id", code=1)
    assert "append '#schema.table'" in done.stderr


def test_help_says_what_each_option_does() -> None:
    """Enough to use the command without another page."""
    shown = run_srj("check", "--help").stdout
    for text in ("--key", "--columns", "--where", "--json", "Exit codes", "#public.products"):
        assert text in shown
    assert "--output" in run_srj("demo", "--help").stdout


def test_version_is_that_of_the_package() -> None:
    """For bug reports."""
    assert run_srj("--version").stdout.startswith("srj 0.")


def run_srj(*arguments: str, code: int = 0, environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run the command and hold it to an exit code."""
    done = subprocess.run(
        [SRJ, *arguments], env=os.environ | {"COLUMNS": "120"} | (environment or {}), capture_output=True, text=True, check=False
    )
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done


def check(server: servers.Server, table: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Run `srj check` on a table of a test's server."""
    return run_srj("check", f"{server.url}#{table}", *options)


def check_json(server: servers.Server, table: str, *options: str) -> dict[str, Any]:
    """The report of `srj check --json`."""
    report: dict[str, Any] = json.loads(check(server, table, *options, "--json").stdout)
    return report
