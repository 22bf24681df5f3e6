"""The mapInPandas form: for platforms that offer it and not mapInArrow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

from srj.enrich import plan_for
from srj.errors import RequestError
from srj.operators.out_of_order import map_in_pandas
from srj.options import Options, parse_options

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame

    from srj.table import Table


def enrich_in_pandas(
    df: DataFrame, table: str | Table, key: str | Sequence[str] | Mapping[str, str], **options: Unpack[Options]
) -> DataFrame:
    """`srj_enrich` with ``order="any"``, by way of `DataFrame.mapInPandas`.

    When to use it: the platform allows mapInPandas and not mapInArrow. The rows are the same, and it is slower, for each batch
    becomes a pandas frame and an Arrow batch again.

    Args:
        df, table, key, options: as for `srj_enrich`; `order`, if given, is ``"any"``.

    Raises:
        RequestError: also for another `order`: whole rows through pandas keep no order.
        DatabaseError: as `srj_enrich`.

    Example:
        >>> enriched = enrich_in_pandas(orders, table, "product_id", ttl="1 h")  # doctest: +SKIP
    """
    settings = parse_options(options)
    if "order" in options and settings.order != "any":
        raise RequestError(f"expected order='any' for the pandas form, got {settings.order!r}; leave it out, or use srj_enrich")
    return map_in_pandas(plan_for(df, table, key, settings))
