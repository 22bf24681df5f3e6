"""The out-of-order operators: whole rows pass through Python; hits leave at once, misses when their lookup has answered."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812  Spark's own convention
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import ArrayType, LongType, StructField, StructType

from srj.operators.launch import launcher
from srj.operators.plan import KEY, METRICS_COLUMN, Plan, observe
from srj.session import is_case_sensitive
from srj.stream_columns import check_distinct

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def map_in_arrow(plan: Plan) -> DataFrame:
    """Join with rows leaving as soon as they can, over Arrow batches."""
    lookup = launcher("out_of_order", plan.fingerprint, plan.payload, plan.settings.how, len(plan.keys))
    return _finish(_with_keys(plan).mapInArrow(lookup, _schema(plan)), plan)


def map_in_pandas(plan: Plan) -> DataFrame:
    """The same over pandas frames, which is slower: for pipelines that have Arrow batches switched off."""
    keyed = _with_keys(plan)
    schema, zone = to_arrow_schema(keyed.schema, timezone="UTC"), keyed.sparkSession.conf.get("spark.sql.session.timeZone")
    result = _schema(plan)
    shape = (plan.settings.how, len(plan.keys), schema, zone, result.names)
    lookup = launcher("out_of_order_pandas", plan.fingerprint, plan.payload, *shape)
    return _finish(keyed.mapInPandas(lookup, result), plan)


def _with_keys(plan: Plan) -> DataFrame:
    """The stream's columns with the keys behind them, so that nested ones need no search in the worker."""
    stream = plan.stream
    check_distinct(stream.columns, case_sensitive=is_case_sensitive(stream.sparkSession))
    keys = [key.alias(f"{KEY}{position}") for position, key in enumerate(plan.keys)]
    return stream.select("*", *keys)


def _schema(plan: Plan) -> StructType:
    """Fields with their metadata: that is where a watermark lives, and it survives if they are kept."""
    added = [StructField(name, kind) for name, kind in plan.added]
    return StructType([*plan.stream.schema.fields, *added, StructField(METRICS_COLUMN, ArrayType(LongType()))])


def _finish(joined: DataFrame, plan: Plan) -> DataFrame:
    settings = plan.settings
    if settings.metrics:
        joined = observe(joined, plan, F.col(METRICS_COLUMN))
    if settings.how != "left":  # a row that only carried metrics
        joined = joined.where(F.col(METRICS_COLUMN).isNull())
    return joined.drop(METRICS_COLUMN)
