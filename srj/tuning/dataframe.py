"""`srj.profile`: the tuner on a DataFrame's first rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from srj.errors import RequestError
from srj.quantities import whole_number
from srj.table import Table
from srj.tuning.keys import KeySequence
from srj.tuning.prices import priced
from srj.tuning.tuning import Tuning, tune

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame

_MOST = 100_000_000


def profile(
    df: DataFrame,
    key: str | Sequence[str] | Mapping[str, str],
    *,
    table: str | Table | None = None,
    rows: int = 1_000_000,
    miss_cost: float | None = None,
    row_bytes: float | None = None,
    memory: str | int | None = None,
    memory_cost: float = 0.0,
    update_period: str | float | None = None,
    curves: bool = True,
) -> Tuning:
    """Find policy and size of the cache for a stream, from a DataFrame that holds a part of it; what `srj tune` does for a file.

    What is read: the key columns of the first `rows` rows, the partitions one after the other, each in its own order, through
    the driver's memory. References stay whole and in order, which a random sample would destroy: a tenth of the rows hides nine
    tenths of the repetitions. So a cache that is shared by tasks which run side by side sees the same keys more mixed; and a part
    that is shorter than the stream's own rhythm (a day, say) can't show it. Every key that comes once in the part counts as new.

    Args:
        df: a batch DataFrame, as of a file or table that a stream was written to.
        key: the column to join on, several as a list, or ``{"stream column": "table column"}``, as for `srj_enrich`.
        table: the table to join with, as for `srj_enrich`: its lookups are measured, and its rows' bytes.
        rows: most rows to read.
        miss_cost: seconds that the database works for a missed key; None: measured, or 1 ms.
        row_bytes: of a row in the cache; None: by the table's columns, or 100.
        memory: most memory of the cache (``"512 MB"``, ``"100_000 rows"``); None: no limit.
        memory_cost: what a gigabyte has to save during these rows to be worth it, in seconds of the database's work.
        update_period: how often the table's data is renewed (``"1 h"``).
        curves: make the curves of all policies too, which takes longer than the pick.

    Returns:
        The curves, the recommendation, and ways to show them: `Tuning.toml`, `Tuning.write`, `Tuning.plot`, `Tuning.html`.

    Raises:
        RequestError: a streaming DataFrame, no such column, no key in it, or an argument that is none.
        DatabaseError: the table can't be asked.

    Example:
        >>> found = srj.profile(spark.read.parquet("orders"), "product_id", memory="256 MB")  # doctest: +SKIP
        >>> found.write("srj.toml")  # doctest: +SKIP
    """
    from srj.session import is_case_sensitive  # noqa: PLC0415  they import Spark
    from srj.stream_columns import key_pairs, stream_key  # noqa: PLC0415

    if not hasattr(df, "sparkSession"):
        raise RequestError(f"expected a DataFrame first, got {type(df).__name__}; write srj.profile(df, key)")
    if df.isStreaming:
        raise RequestError("expected a batch DataFrame, got a streaming one; read what it was made from with spark.read")
    whole_number("rows", rows, 1, _MOST)
    pairs = key_pairs(key)
    case_sensitive = is_case_sensitive(df.sparkSession)
    columns = [stream_key(df, name, case_sensitive=case_sensitive)[0] for name, _ in pairs]
    named = [column.alias(f"key{number}") for number, column in enumerate(columns)]
    read = df.select(*named).limit(rows).toArrow()
    keys = KeySequence.from_chunks([batch.columns for batch in read.to_batches()])
    table = Table(table) if isinstance(table, str) else table
    prices = priced(
        miss_cost=miss_cost,
        row_bytes=row_bytes,
        memory=memory,
        memory_cost=memory_cost,
        table=table,
        key=[name for _, name in pairs],
    )
    notes = (
        (f"the first {rows:,} rows were read, the partitions one after the other; there may be more",)
        if read.num_rows == rows
        else ()
    )
    name = ", ".join(name for name, _ in pairs)
    return tune(keys, prices, update_period=update_period, curves=curves, trace=f"{name} of a DataFrame", notes=notes)
