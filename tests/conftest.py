"""What the whole test session shares: the two database servers, each started when first asked for."""

from __future__ import annotations

import os

import pytest

from tests import servers

# Every JVM of the tests lives too short to earn back what its better compiler and its parallel collector cost: nearly half of
# its processor time.
_SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
os.environ["JAVA_TOOL_OPTIONS"] = " ".join(filter(None, [os.environ.get("JAVA_TOOL_OPTIONS"), _SHORT_LIVED]))


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
