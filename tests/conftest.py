"""What the whole test session shares: the two database servers and one Spark session, each started when first asked for."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import pytest

from tests import servers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession


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


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A local Spark with two cores, UTC, two shuffle partitions and no UI."""
    from pyspark.sql import SparkSession  # noqa: PLC0415 - most tests need no Spark, and the import takes a second

    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["TZ"] = "UTC"
    folder = tmp_path_factory.mktemp("spark")
    settings = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.local.dir": str(folder / "local"),
        "spark.python.udf.pipelined.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    builder = SparkSession.builder.master("local[2]").appName("srj-tests")
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()
