"""Every key is in the cache: srj against Spark's own broadcast hash join.

The join is given the relation as cheaply as Spark can have it, cached in memory as a DataFrame. It builds its hash table in each
run, as a stream builds it in each micro-batch. srj's cache is warm: before each run, untimed, every key is looked up in both
workers, for Spark ends workers that were idle for a minute.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812  Spark's own convention

from benchmarks.pairs import Checksum, Contest, timed
from benchmarks.setting import checksum, run_to_nowhere
from srj import srj_enrich

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame

    from benchmarks.setting import Setting
    from srj.options import Order

GROUP = "hits"
_BATCH = "spark.sql.execution.arrow.maxRecordsPerBatch"
_ATTEMPTS = 3


def contests(setting: Setting) -> Iterator[Contest]:
    """The headline in order and out of order, then variations of the first, then the rate without the join's build."""
    arena = Arena(setting)
    yield arena.contest("all hits, in order", bar=0.65)
    yield arena.contest("all hits, any order", order="any", bar=0.33)
    yield arena.contest("all hits, in order, no metrics", metrics=False)
    yield arena.contest("all hits, in order, 40,000-row batches", batch_rows=40_000)
    yield arena.marginal("all hits, in order, beyond the first rows")


class Arena:
    """Stream, relation and the two joins of them."""

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        items = setting.scale.items
        ids = setting.spark.range(0, items, 1, 2)
        self._relation = ids.select(
            "id",
            F.concat(F.lit("item-"), F.lpad(F.col("id").cast("string"), 11, "0")).alias("name"),
            (F.col("id") * F.lit(0.25)).alias("price"),
            (F.col("id") % 1000).cast("int").alias("quantity"),
        ).cache()
        run_to_nowhere(self._relation)
        # Both partitions, and so both workers, get every key.
        self._every_key = self._enriched(setting.spark.range(0, 2 * items, 1, 2).select((F.col("id") % items).alias("key")))

    def contest(
        self, name: str, *, order: Order = "input", metrics: bool = True, batch_rows: int = 10_000, bar: float | None = None
    ) -> Contest:
        """One against the other over the same stream."""
        stream = self._stream(self._setting.scale.hits)
        enriched, joined = self._enriched(stream, order, metrics), self._joined(stream)

        def checksums() -> tuple[Checksum, Checksum]:
            run_to_nowhere(self._every_key)
            return checksum(enriched), checksum(joined)

        return Contest(
            GROUP,
            name,
            "broadcast hash join with its build",
            self._setting.scale.hits,
            lambda: self._warm_seconds(enriched, batch_rows),
            lambda: timed(lambda: run_to_nowhere(joined)),
            checksums,
            bar,
        )

    def marginal(self, name: str) -> Contest:
        """What further rows cost, when starting and building are done."""
        scale = self._setting.scale
        few, more = self._stream(scale.hits), self._stream(scale.more_hits)

        def checksums() -> tuple[Checksum, Checksum]:
            run_to_nowhere(self._every_key)
            return checksum(self._enriched(more)), checksum(self._joined(more))

        return Contest(
            GROUP,
            name,
            "broadcast hash join without its build",
            scale.more_hits - scale.hits,
            lambda: self._warm_seconds(self._enriched(more)) - self._warm_seconds(self._enriched(few)),
            lambda: timed(lambda: run_to_nowhere(self._joined(more))) - timed(lambda: run_to_nowhere(self._joined(few))),
            checksums,
        )

    def _stream(self, rows: int) -> DataFrame:
        """Four columns; keys uniform over the relation's, in no order."""
        return self._setting.spark.range(0, rows, 1, 2).select(
            F.pmod(F.xxhash64("id"), F.lit(self._setting.scale.items)).alias("key"),
            (F.col("id") * F.lit(0.01)).alias("amount"),
            (F.col("id") % 100).cast("int").alias("pieces"),
            F.concat(F.lit("till-"), (F.col("id") % 1000).cast("string")).alias("till"),
        )

    def _enriched(self, stream: DataFrame, order: Order = "input", metrics: bool = True) -> DataFrame:
        table = self._setting.table("items")
        return srj_enrich(stream, table, key={"key": "id"}, cache="256 MB", ttl="1 d", order=order, metrics=metrics)

    def _joined(self, stream: DataFrame) -> DataFrame:
        return stream.join(F.broadcast(self._relation), stream["key"] == self._relation["id"], "left").drop("id")

    def _warm_seconds(self, enriched: DataFrame, batch_rows: int = 10_000) -> float:
        """Seconds of a run that asked the database for nothing."""
        for _ in range(_ATTEMPTS):
            run_to_nowhere(self._every_key)
            start = self._setting.now()
            with self._batches_of(batch_rows):
                seconds = timed(lambda: run_to_nowhere(enriched))
            if not self._setting.lookups_since(start):
                return seconds
        raise RuntimeError(f"expected a run without a miss after every key was looked up, got {_ATTEMPTS} with one; free memory")

    @contextmanager
    def _batches_of(self, rows: int) -> Iterator[None]:
        self._setting.spark.conf.set(_BATCH, rows)
        try:
            yield
        finally:
            self._setting.spark.conf.unset(_BATCH)
