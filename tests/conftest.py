"""What the whole test session shares: the two database servers, each started when first asked for."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests import servers
from tests.ground import Ground, open_ground

if TYPE_CHECKING:
    from collections.abc import Iterator

# Every JVM of the tests lives too short to earn back what its better compiler and its parallel collector cost: nearly half of
# its processor time.
_SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
os.environ["JAVA_TOOL_OPTIONS"] = " ".join(filter(None, [os.environ.get("JAVA_TOOL_OPTIONS"), _SHORT_LIVED]))

# Files that take longest, in that order: the processes that share the tests take them in turn, and none shall begin with a long one
# when the others have nothing left to do. Those of the integration tests stand together, for all of a process's share a Spark.
_FIRST = (
    *("integration/test_property.py", "experiments/test_smoke.py"),
    *("integration/test_deployments.py", "integration/test_streaming.py"),
    *("integration/test_types.py", "integration/test_once.py", "integration/test_secrets.py", "integration/test_mistakes.py"),
    *("integration/test_names.py", "integration/test_order.py", "integration/test_attacks.py", "integration/test_policies.py"),
    *("test_cache.py", "test_benchmarks.py", "test_order_at_random.py", "test_demo.py", "test_attacks.py", "test_types.py"),
    *("test_postgresql.py", "test_shared_cache_faults.py", "test_cli.py", "test_names.py", "test_mysql_types.py"),
)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whole files in the order of `_FIRST`, then all others as they were."""
    places = {Path(__file__).parent / name: place for place, name in enumerate(_FIRST)}
    items.sort(key=lambda item: places.get(item.path, len(places)))


@pytest.fixture(scope="session")
def postgres() -> servers.Server:
    """A PostgreSQL server with an administrator's login."""
    return servers.postgres()


@pytest.fixture(scope="session")
def mariadb() -> servers.Server:
    """A MariaDB server with an administrator's login."""
    return servers.mariadb()


@pytest.fixture(scope="session", params=["postgresql", "mysql"])
def server(request: pytest.FixtureRequest) -> servers.Server:
    """Each of the two servers in turn."""
    return servers.postgres() if request.param == "postgresql" else servers.mariadb()


@pytest.fixture(scope="module")
def ground(server: servers.Server, request: pytest.FixtureRequest) -> Iterator[Ground]:
    """A database of the module's own on each server in turn."""
    yield from open_ground(server, _own_name(request, "each"))


@pytest.fixture(scope="module")
def postgres_ground(postgres: servers.Server, request: pytest.FixtureRequest) -> Iterator[Ground]:
    """On PostgreSQL alone."""
    yield from open_ground(postgres, _own_name(request, "own"))


@pytest.fixture(scope="module")
def mariadb_ground(mariadb: servers.Server, request: pytest.FixtureRequest) -> Iterator[Ground]:
    """On MariaDB alone."""
    yield from open_ground(mariadb, _own_name(request, "own"))


def _own_name(request: pytest.FixtureRequest, kind: str) -> str:
    module = str(request.module.__name__).rpartition(".")[2].removeprefix("test_")
    return f"srj_{module}_{kind}"
