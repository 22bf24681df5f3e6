"""The JDBC drivers that Spark's own table source needs: found on this machine, else had from Maven by their names."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from srj.errors import RequestError
from srj.table import DatabaseUrl

if TYPE_CHECKING:
    from collections.abc import Mapping

JARS = "SRJ_JDBC_JAR"  # environment variable: the driver's file, for machines without a way to Maven
_PACKAGES = {"postgresql": "org.postgresql:postgresql:42.7.8", "mysql": "org.mariadb.jdbc:mariadb-java-client:3.5.3"}
_CLASSES = {"postgresql": "org.postgresql.Driver", "mysql": "org.mariadb.jdbc.Driver"}
_DEBIAN = {"postgresql": "postgresql.jar", "mysql": "mariadb-java-client.jar"}


def driver_settings(dialect: str, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Spark settings that bring the driver: a file where there is one, else the package, which Spark fetches when it starts.

    >>> driver_settings("mysql", {"SRJ_JDBC_JAR": "/opt/mariadb.jar"})
    {'spark.jars': '/opt/mariadb.jar'}
    """
    if environ.get(JARS):
        return {"spark.jars": environ[JARS]}
    group, artifact, version = _PACKAGES[dialect].split(":")
    kept = Path.home() / ".m2" / "repository" / group.replace(".", "/") / artifact / version / f"{artifact}-{version}.jar"
    for path in (kept, Path("/usr/share/java") / _DEBIAN[dialect]):
        if path.is_file():
            return {"spark.jars": str(path)}
    return {"spark.jars.packages": _PACKAGES[dialect]}


def missing_driver(dialect: str) -> str:
    """One sentence for when Spark can't be started with it."""
    return (
        f"expected Spark to start with the JDBC driver {_PACKAGES[dialect]}, which it fetches from Maven, but its Java ended; "
        f"where Maven is out of reach, name the driver's file in the environment variable {JARS}"
    )


def table_options(url: str, table: str, rows: int) -> dict[str, str]:
    """For ``spark.read.format("jdbc")``: the whole table, by two connections, each half of its ids, 10,000 rows a fetch."""
    known = DatabaseUrl.parse(url).resolve()
    if known.options:
        names = ", ".join(sorted(name for name, _ in known.options))
        raise RequestError(
            f"expected a URL without options where Spark reads by JDBC, got {names}, whose driver has other names for them"
        )
    place = f"[{known.host}]" if ":" in known.host else known.host
    dialect = known.dialect
    # Spark quotes names as MySQL wants them only for URLs that begin with jdbc:mysql.
    tail = "" if dialect == "postgresql" else "?permitMysqlScheme"
    return {
        "url": f"jdbc:{dialect}://{place}:{known.port}/{known.database}{tail}",
        "dbtable": table,
        "driver": _CLASSES[dialect],
        "user": known.user or "",
        "password": known.password or "",
        "fetchsize": "10000",
        "partitionColumn": "id",
        "lowerBound": "0",
        "upperBound": f"{rows}",
        "numPartitions": "2",
    }
