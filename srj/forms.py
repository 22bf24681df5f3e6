"""The other forms of the join: for sinks that are written by a function, and by way of mapInPandas."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Unpack

from srj.enrich import plan_for, srj_enrich
from srj.errors import RequestError
from srj.operators.out_of_order import map_in_pandas
from srj.options import Options, parse_options

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import DataFrame

    from srj.table import Table


def for_each_batch(
    table: str | Table,
    key: str | Sequence[str] | Mapping[str, str],
    write: Callable[[DataFrame, int], Any],
    **options: Unpack[Options],
) -> Callable[[DataFrame, int], None]:
    """A function for `DataStreamWriter.foreachBatch` that joins each micro-batch and hands it to `write`.

    The same as calling `srj_enrich` first inside your own function. When to use it: the sink needs a function anyway. Otherwise
    put `srj_enrich` on the stream itself, where metrics appear in the query's progress.

    Args:
        table, key, options: as for `srj_enrich`.
        write: called with the joined micro-batch and its id. The micro-batch is evaluated each time `write` uses it: persist it to
            use it twice. A micro-batch comes again after a failure; an idempotent `write` makes the output exact.

    Example:
        >>> def save(batch: DataFrame, number: int) -> None:
        ...     batch.write.mode("overwrite").save(f"out/{number}")
        >>> stream.writeStream.foreachBatch(for_each_batch(table, "product_id", save)).start()  # doctest: +SKIP
    """
    parse_options(options)  # before the stream starts

    def enrich_and_write(batch: DataFrame, number: int) -> None:
        write(srj_enrich(batch, table, key, **options), number)

    return enrich_and_write


def enrich_in_pandas(
    df: DataFrame, table: str | Table, key: str | Sequence[str] | Mapping[str, str], **options: Unpack[Options]
) -> DataFrame:
    """`srj_enrich` with ``order="any"``, by way of `DataFrame.mapInPandas`.

    When to use it: the platform allows mapInPandas and not mapInArrow. The rows are the same, and it is slower, for each batch
    becomes a pandas frame and an Arrow batch again.

    Args:
        df, table, key, options: as for `srj_enrich`; `order` is ``"any"`` unless it is given here, whatever a config file says.

    Raises:
        RequestError: also for ``order="input"``, which is the key-only form's.
        DatabaseError: as `srj_enrich`.

    Example:
        >>> enriched = enrich_in_pandas(orders, table, "product_id", ttl="1 h")  # doctest: +SKIP
    """
    if options.setdefault("order", "any") == "input":
        raise RequestError("expected an order other than 'input' for the pandas form; leave it out, or use srj_enrich")
    return map_in_pandas(plan_for(df, table, key, parse_options(options)))
