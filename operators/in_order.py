"""The in-order operator: only the key columns go to Python, and only the table's columns come back.

An iterator `arrow_udf` over the key. It reads ahead while lookups are in flight and yields in the order of its input. The
stream's own columns, their order and their watermark never leave the JVM.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812  Spark's own convention
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.types import ArrayType, BooleanType, DataType, LongType, StructField, StructType

from srj.launch import launcher
from srj.operators.plan import Plan, observe
from srj.stream_columns import free_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def in_order(plan: Plan) -> DataFrame:
    """Join with rows leaving in the order in which they came.

    The result is evaluated once however it is used: `observe` over it is a barrier for Spark's optimizer, and without
    metrics a non-deterministic function is. Both keep later filters above the join: filter first.
    """
    settings = plan.settings
    lookup = launcher("in_order", plan.fingerprint, plan.payload, settings.how, plan.several)
    lookup.__annotations__ = _annotations(len(plan.keys))
    # The overloads want simple return types and a number for the kind, which the hints above give.
    function = arrow_udf(lookup, _return_type(plan))  # type: ignore[call-overload]
    if not settings.metrics:
        function = function.asNondeterministic()
    name = free_name("__srj_matches", [*plan.stream.columns, *[name for name, _ in plan.added]])
    joined = plan.stream.withColumn(name, function(*plan.keys))
    if settings.metrics:
        joined = observe(joined, plan, name, "metrics")
    return _unpack(joined, plan, name).drop(name)


def _unpack(joined: DataFrame, plan: Plan, name: str) -> DataFrame:
    """The table's columns, beside the stream's; rows as `how` wants them."""
    how, matches = plan.settings.how, F.col(name)["matches"]
    if how in ("semi", "anti"):
        return joined.where(matches if how == "semi" else ~matches)
    if plan.several:
        unfolded = (F.explode_outer if how == "left" else F.explode)(matches)
        joined, matches = joined.withColumn(name, unfolded), F.col(name)
    elif how == "inner":
        joined = joined.where(matches.isNotNull())
    if not plan.added:
        return joined
    return joined.withColumns({column: matches[f"c{position}"] for position, (column, _) in enumerate(plan.added)})


def _return_type(plan: Plan) -> StructType:
    fields = [StructField(f"c{position}", kind) for position, (_, kind) in enumerate(plan.added)]
    row: DataType = StructType(fields) if fields else BooleanType()
    matches = ArrayType(row) if plan.several else row
    return StructType([StructField("matches", matches), StructField("metrics", ArrayType(LongType()))])


def _annotations(key_columns: int) -> dict[str, object]:
    """PySpark picks the kind of function by these hints; one column comes bare, several come as a tuple."""
    columns = Iterator[pa.Array] if key_columns == 1 else Iterator[tuple[pa.Array, ...]]
    return {"batches": columns, "return": Iterator[pa.Array]}
