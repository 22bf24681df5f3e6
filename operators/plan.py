"""What an operator is built from, and what all of them add to a plan."""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812  Spark's own convention

from srj.lookup.metrics import COUNTED, LARGEST, METRICS, PHASES, UNKNOWN, Chosen

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

    from srj.lookup.spec import LookupSpec
    from srj.options import Settings

_numbers = itertools.count(1)


@dataclass(frozen=True)
class Plan:
    """A checked request.

    Attributes:
        stream: the stream, or any DataFrame.
        keys: its key columns, in the order of the table's key.
        position: its column of positions, if the order is by one.
        settings: the user's options.
        spec: the lookup; `fingerprint` names it, `payload` is its pickled form, which holds no secret.
        added: names, prefix included, and Spark types of the table columns that come out.
    """

    stream: DataFrame
    keys: tuple[Column, ...]
    position: Column | None
    settings: Settings
    spec: LookupSpec
    fingerprint: str
    payload: bytes
    added: tuple[tuple[str, DataType], ...]

    @property
    def several(self) -> bool:
        """Whether a key may have several rows that all come out."""
        return not self.spec.description.unique and not self.spec.question.exists_only and self.settings.on_multiple == "all"


def observe(df: DataFrame, plan: Plan, *path: str) -> DataFrame:
    """Report the metrics that ride in a column, or in a field of one: per micro-batch in `observedMetrics`, and to listeners.

    Counts are added up, or the largest is taken; of what was chosen, the latest that is known.

    One aggregate over the few rows that carry any, unfolded into a struct at the end: measured at a quarter of the cost of an
    aggregate a metric, for Spark evaluates these row by row. As SQL, since a call of the JVM for each part of the expression
    would take the driver 0.1 s, which `foreachBatch` pays in each micro-batch.
    """
    metrics = ".".join("`{}`".format(name.replace("`", "``")) for name in path)
    largest, chosen = len(LARGEST), len(Chosen._fields)
    added = len(COUNTED) - largest
    first_largest, first_chosen = added + 2, len(COUNTED) + 2  # SQL counts from 1, and the time stands before them

    def together(first: int, length: int, how: str) -> str:
        return f"zip_with(slice(sums, {first}, {length}), slice(more, {first}, {length}), (old, new) -> {how})"

    total = (
        f"aggregate(sort_array(collect_list({metrics})), "
        f"concat(array_repeat(0L, {1 + len(COUNTED)}), array_repeat({UNKNOWN}L, {chosen})), (sums, more) -> concat("
        f"slice(more, 1, 1), {together(2, added, 'old + new')}, {together(first_largest, largest, 'greatest(old, new)')}, "
        f"{together(first_chosen, chosen, f'if(new = {UNKNOWN}, old, new)')}))"
    )
    named = F.expr(f"transform(array({total}), sums -> named_struct({', '.join(_named('sums'))}))[0]")
    table = re.sub(r"\W", "_", plan.spec.question.table)
    return df.observe(f"srj_{table}_{next(_numbers)}", named.alias("srj"))


def _named(sums: str) -> Iterator[str]:
    """Names and values of the metrics in an array; what people compare is in milliseconds and keys a batch."""
    values = {name: f"{sums}[{position}]" for position, name in enumerate(METRICS)}
    database_us = values.pop("database_us")
    del values["told_us"]
    # NULL where nothing was asked.
    values["keys_per_batch"] = f"try_divide({values['keys']}, {values['batches']})"
    values["database_ms"] = f"{database_us} / 1000D"
    for name in Chosen._fields:
        values[name] = f"nullif({values[name]}, {UNKNOWN})"
    values["cache_bound"] = f"nullif({values['cache_bound']}, 0)"
    phases = ", ".join(f"'{phase}'" for phase in PHASES)
    values["cache_phase"] = f"element_at(array({phases}), cast({values['cache_phase']} + 1 AS int))"
    for name, value in values.items():
        yield from (f"'{name}'", value)
