"""`restore_order`: the order of the input again, after a join that let rows leave out of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.types import StructField, StructType

from srj.errors import RequestError
from srj.launch import launcher
from srj.operators.punctuation import ALL, COMPLETE_BELOW, PARTITION, ROW

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def restore_order(df: DataFrame) -> DataFrame:
    """Put the rows of a join with ``punctuate=True`` back into the order in which they arrived.

    In each partition and micro-batch; rows wait in memory until all that arrived before them have come. With
    ``order=Disorder(max=n)`` that is never more than n rows (n + 1 where rows have several matches), whatever the database does;
    with `Windows` never more than lie between two of their boundaries; with ``order="any"`` there is no bound. Filters and new
    columns may stand between the join and this. A shuffle, a union or another join with ``order="any"`` may not: they mix or
    reorder the rows of a partition.

    Args:
        df: what `srj_enrich` returned, or what was made of it; with its columns ``srj_partition``, ``srj_row`` and
            ``srj_complete_below``.

    Returns:
        The same rows without the punctuation.

    Raises:
        RequestError: the columns are not there.

    Example:
        >>> enriched = srj_enrich(orders, table, "product_id", order=Disorder(max=1000), punctuate=True)  # doctest: +SKIP
        >>> restore_order(enriched.where("amount > 10"))  # doctest: +SKIP
    """
    missing = [name for name in (PARTITION, ROW, COMPLETE_BELOW) if df.columns.count(name) != 1]
    if missing:
        raise RequestError(
            f"expected the columns {PARTITION}, {ROW} and {COMPLETE_BELOW} of a join with punctuate=True, got {df.columns}; "
            "keep them until here"
        )
    kept = [position for position, name in enumerate(df.columns) if name not in ALL]
    places = [df.columns.index(name) for name in (PARTITION, ROW, COMPLETE_BELOW)]
    fields = [df.schema.fields[position] for position in kept]
    # By numbers, for Spark resolves names, and fails at dots and repeated ones; the metadata hold a watermark.
    schema = StructType([StructField(f"c{n}", field.dataType, field.nullable, field.metadata) for n, field in enumerate(fields)])
    numbered = df.toDF(*[f"c{position}" for position in range(len(df.columns))])
    restored = numbered.mapInArrow(launcher("restore_order", kept, *places), schema)
    return restored.toDF(*[field.name for field in fields])
