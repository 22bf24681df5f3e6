"""What a bound on disorder costs: `Disorder(max=10_000)` against ``order="any"``, where four rows of five hit."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812  Spark's own convention

from benchmarks.pairs import Checksum, Contest, timed
from benchmarks.setting import checksum, run_to_nowhere
from srj import Disorder, srj_enrich

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame

    from benchmarks.setting import Setting
    from srj.lookup.order import Order

GROUP = "orders"


def contests(setting: Setting) -> Iterator[Contest]:
    """The one contest. Both share a cache, so each run has missing keys of its own, and the same present ones."""
    scale = setting.scale
    rounds = itertools.count()

    def stream() -> DataFrame:
        first_missing = scale.cached_keys + next(rounds) * scale.half_hits // 5
        ids = setting.spark.range(0, scale.half_hits, 1, 2)
        present = F.pmod(F.xxhash64("id"), F.lit(scale.cached_keys))
        missing = F.pmod(F.floor(F.col("id") / 5) + first_missing, F.lit(scale.many_items))
        return ids.select(F.when(F.col("id") % 5 > 0, present).otherwise(missing).alias("key"))

    def enriched(keys: DataFrame, order: Order) -> DataFrame:
        return srj_enrich(keys, setting.table("many_items"), key={"key": "id"}, cache="256 MB", ttl="1 d", order=order)

    def seconds(order: Order) -> float:
        frame = enriched(stream(), order)
        return timed(lambda: run_to_nowhere(frame))

    def checksums() -> tuple[Checksum, Checksum]:
        keys = stream()
        return checksum(enriched(keys, Disorder(max=10_000))), checksum(enriched(keys, "any"))

    yield Contest(
        GROUP,
        "80 % hits, Disorder(10_000)",
        'order="any"',
        scale.half_hits,
        lambda: seconds(Disorder(max=10_000)),
        lambda: seconds("any"),
        checksums,
        0.9,
    )
