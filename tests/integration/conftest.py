"""What the integration tests share: one Spark session with one core, and the metrics of whatever it runs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from pyspark import SparkContext

from srj.experiments.local_session import local_session
from tests.integration.stores import Store, open_store

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from tests.servers import Server


@pytest.fixture(scope="package")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A local Spark with one core: tasks run one after the other in one Python worker, so what the second finds cached is certain.

    Tasks side by side, in several workers and executors, are for the tests that start a Spark of their own.
    """
    if SparkContext._active_spark_context is not None:
        raise RuntimeError("expected no other Spark in this process, for it would be used in place of the one with one core")
    folder = tmp_path_factory.mktemp("spark")
    no_compiler = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
    session = local_session(folder, 1, no_compiler)
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture(scope="module")
def store(server: Server, request: pytest.FixtureRequest) -> Iterator[Store]:
    """A database of the module's own on each of the two servers in turn."""
    yield from open_store(server, str(request.module.__name__.rpartition(".")[2]).replace("test_", "srj_it_"))


@pytest.fixture(scope="module")
def postgres_store(postgres: Server, request: pytest.FixtureRequest) -> Iterator[Store]:
    """The same on PostgreSQL alone, for what does not depend on the database."""
    yield from open_store(postgres, str(request.module.__name__.rpartition(".")[2]).replace("test_", "srj_pg_"))


class Observed:
    """The metrics of finished queries, a dict each, as Spark tells its listeners."""

    def __init__(self, spark: SparkSession) -> None:
        self._bus = spark.sparkContext._jsc.sc().listenerBus()
        self._rows: list[tuple[int, dict[str, Any]]] = []

    def take(self) -> list[dict[str, Any]]:
        """Those that came since the last call, in the order in which `srj_enrich` was called."""
        self._bus.waitUntilEmpty()
        rows, self._rows = self._rows, []
        return [metrics for _, metrics in sorted(rows, key=lambda row: row[0])]

    def onSuccess(self, name: str, execution: Any, nanoseconds: int) -> None:  # noqa: ARG002, N802  Spark's interface
        """A query has ended."""
        found = execution.observedMetrics().iterator()
        while found.hasNext():
            entry = found.next()
            self._rows.append((int(entry._1().rpartition("_")[2]), json.loads(entry._2().json())["srj"]))

    def onFailure(self, name: str, execution: Any, error: Any) -> None:  # noqa: N802
        """A query has failed: it has no metrics."""

    class Java:
        """What py4j asks for."""

        implements = ("org.apache.spark.sql.util.QueryExecutionListener",)


@pytest.fixture(scope="package")
def observed(spark: SparkSession) -> Iterator[Observed]:
    """The metrics that srj reported, of each finished query."""
    from pyspark.java_gateway import ensure_callback_server_started  # noqa: PLC0415  only where it is needed

    ensure_callback_server_started(spark.sparkContext._gateway)
    observed = Observed(spark)
    manager = spark._jsparkSession.listenerManager()
    manager.register(observed)
    yield observed
    manager.unregister(observed)
