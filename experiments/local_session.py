"""Spark on this machine for a cell: two cores, nothing kept outside a folder, nobody else listening."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

CORES = 2


def local_session(folder: Path, settings: Mapping[str, str]) -> SparkSession:
    """A session with these settings beside those that all cells have; who asked stops it.

    Args:
        folder: for what Spark writes.
        settings: the cell's own.
    """
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["TZ"] = "UTC"
    common = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.local.dir": str(folder / "local"),
        "spark.log.level": "ERROR",
        "spark.python.udf.pipelined.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    builder = SparkSession.builder.master(f"local[{CORES}]").appName("srj-experiment")
    for name, value in {**common, **settings}.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()
