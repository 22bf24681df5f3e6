"""Spark in this process, for cells, benchmarks and tests."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def local_session(folder: Path, cores: int, more: Mapping[str, str] | None = None) -> SparkSession:
    """On loopback, in UTC, with two shuffle partitions, no UI, and Python workers of this interpreter; who asked stops it.

    It sets what workers inherit in this process's environment.

    Args:
        folder: where Spark puts its files.
        cores: tasks at a time.
        more: further settings, or others in place of these.
    """
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["TZ"] = "UTC"
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
    builder = SparkSession.builder.master(f"local[{cores}]").appName("srj")
    for name, value in (settings | dict(more or {})).items():
        builder = builder.config(name, value)
    return builder.getOrCreate()
