"""Columns that tell a consumer how far the input has left: `punctuate=True`."""

from __future__ import annotations

from pyspark.sql.types import DataType, LongType, TimestampNTZType, TimestampType

PARTITION = "srj_partition"
ROW = "srj_row"
COMPLETE_BELOW = "srj_complete_below"
PENDING_SINCE = "srj_pending_since"
ALL = (PARTITION, ROW, COMPLETE_BELOW, PENDING_SINCE)

_WATERMARK = "spark.watermarkDelayMs"


def event_time(fields: list[tuple[DataType, dict[str, object]]]) -> int | None:
    """Which column of a stream, given by types and metadata, has a watermark; None: none."""
    for position, (kind, metadata) in enumerate(fields):
        if _WATERMARK in metadata and isinstance(kind, (TimestampType, TimestampNTZType)):
            return position
    return None


def added(time: DataType | None) -> list[tuple[str, DataType]]:
    """Names and types of what comes from Python, the event time's only where there is one."""
    columns: list[tuple[str, DataType]] = [(ROW, LongType()), (COMPLETE_BELOW, LongType())]
    return columns if time is None else [*columns, (PENDING_SINCE, time)]
