"""The out-of-order operators: whole rows pass through Python; hits leave at once, misses when their lookup has answered."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812  Spark's own convention
from pyspark.sql.types import ArrayType, LongType, StructField, StructType

from srj.launch import launcher
from srj.operators import punctuation
from srj.operators.passage import Passage
from srj.operators.plan import Plan, observe
from srj.stream_columns import arrow_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType


def map_in_arrow(plan: Plan) -> DataFrame:
    """Join with rows leaving as soon as they can, over Arrow batches."""
    lookup = launcher("out_of_order", plan.fingerprint, plan.payload, _passage(plan))
    return _finish(_numbered(plan).mapInArrow(lookup, _schema(plan)), plan)


def map_in_pandas(plan: Plan) -> DataFrame:
    """The same over pandas frames."""
    stream = _numbered(plan)
    zone = stream.sparkSession.conf.get("spark.sql.session.timeZone")
    lookup = launcher("out_of_order_pandas", plan.fingerprint, plan.payload, _passage(plan), arrow_schema(stream.schema), zone)
    return _finish(stream.mapInPandas(lookup, _schema(plan)), plan)


def _passage(plan: Plan) -> bytes:
    settings = plan.settings
    return pickle.dumps(
        Passage(
            how=settings.how,
            columns=len(plan.stream.columns),
            keys=len(plan.keys),
            order=settings.order,
            punctuate=settings.punctuate,
            time=_event_time(plan),
        )
    )


def _event_time(plan: Plan) -> int | None:
    """Which column's pending values punctuation tells."""
    if not plan.settings.punctuate:
        return None
    return punctuation.event_time([(field.dataType, field.metadata) for field in plan.stream.schema.fields])


def _punctuation(plan: Plan) -> list[tuple[str, DataType]]:
    if not plan.settings.punctuate:
        return []
    time = _event_time(plan)
    return punctuation.added(None if time is None else plan.stream.schema.fields[time].dataType)


def _numbered(plan: Plan) -> DataFrame:
    """The stream's columns with the keys behind them, and the position, so that nested ones need no search in the worker.

    On their way through Python columns go by numbers: Spark resolves the names, and fails at dots, backticks and repeated ones.
    """
    positions = [] if plan.position is None else [plan.position.cast("bigint")]
    stream = plan.stream.select("*", *plan.keys, *positions)
    return stream.toDF(*[f"c{number}" for number in range(len(plan.stream.columns) + len(plan.keys) + len(positions))])


def _schema(plan: Plan) -> StructType:
    """Numbered fields with their metadata: that is where a watermark lives, and it survives if they are kept."""
    kept = [(field.dataType, field.nullable, field.metadata) for field in plan.stream.schema.fields]
    kept += [(kind, True, {}) for _, kind in (*plan.added, *_punctuation(plan))]
    fields = [StructField(f"c{number}", *field) for number, field in enumerate(kept)]
    return StructType([*fields, StructField(f"c{len(fields)}", ArrayType(LongType()))])


def _finish(joined: DataFrame, plan: Plan) -> DataFrame:
    settings, metrics = plan.settings, joined.columns[-1]
    if settings.metrics:
        joined = observe(joined, plan, metrics)
    if settings.how != "left":  # a row that only carried metrics
        joined = joined.where(F.col(metrics).isNull())
    names = [*plan.stream.columns, *[name for name, _ in (*plan.added, *_punctuation(plan))]]
    joined = joined.drop(metrics).toDF(*names)
    # The operator keeps partitions as they are, so that this is the input's.
    return joined.withColumn(punctuation.PARTITION, F.spark_partition_id()) if settings.punctuate else joined
