"""The foreachBatch form: for sinks that are written by a function."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Unpack

from srj.enrich import srj_enrich
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
