"""A Spark session of this process for tests and measurements."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

if TYPE_CHECKING:
    from pathlib import Path


def local_spark(folder: Path, cores: int, **more: str) -> SparkSession:
    """On loopback, in UTC, with two shuffle partitions, no UI, and Python workers of this interpreter.

    Args:
        folder: where Spark puts its files.
        cores: tasks at a time.
        more: further settings, with ``_`` for each dot, or others in place of these.
    """
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["TZ"] = "UTC"
    settings = {
        "spark_driver_bindAddress": "127.0.0.1",
        "spark_driver_host": "127.0.0.1",
        "spark_local_dir": str(folder / "local"),
        "spark_python_udf_pipelined_enabled": "true",
        "spark_sql_session_timeZone": "UTC",
        "spark_sql_shuffle_partitions": "2",
        "spark_sql_warehouse_dir": str(folder / "warehouse"),
        "spark_ui_enabled": "false",
        "spark_ui_showConsoleProgress": "false",
    }
    builder = SparkSession.builder.master(f"local[{cores}]").appName("srj")
    for name, value in (settings | more).items():
        builder = builder.config(name.replace("_", "."), value)
    return builder.getOrCreate()
