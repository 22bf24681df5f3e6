"""cache="auto" in Spark: rows are right, keys asked once, and the cache in Spark's local folder has the size of their bound."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from srj import Batch, srj_enrich

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.integration.conftest import Observed
    from tests.integration.stores import Store

KEYS, INTERVALS, ROWS = 2_000, 5, 24_000  # keys of an interval, intervals, and rows of each


def test_the_cache_follows_the_streams_keys_over_micro_batches(
    spark: SparkSession, postgres_store: Store, observed: Observed
) -> None:
    """And the metrics tell what was chosen."""
    postgres_store.run("CREATE TABLE moving (k int PRIMARY KEY, v text)")
    postgres_store.run(
        f"INSERT INTO moving SELECT k, 'the value of key ' || k FROM generate_series(0, {KEYS * INTERVALS - 1}) AS k"
    )
    postgres_store.run("ANALYZE moving")
    folder = Path(spark.conf.get("spark.local.dir") or "")
    before, asked, told = maps(folder), 0, []
    for interval in range(INTERVALS):
        keys = f"cast({interval * KEYS} + pmod(hash(id), {KEYS}) AS int) AS k"
        enriched = srj_enrich(
            spark.range(0, ROWS, 1, 1).selectExpr(keys),
            postgres_store.table("moving"),
            "k",
            cache="auto",
            memory="4 MB",
            batch=Batch(size=(300, 700), in_flight=2),
        )
        observed.take()
        with postgres_store.listening("moving") as looked_up:
            rows = enriched.select("k", "v").collect()
        assert len(rows) == ROWS
        assert all(row.v == f"the value of key {row.k}" for row in rows)
        asked += len(looked_up)
        told += observed.take()
    assert KEYS * INTERVALS * 0.99 <= asked <= 1.02 * KEYS * INTERVALS
    [new] = maps(folder) - before
    # Half of the memory at first; then room for 1.15 times an interval's keys, of some 100 bytes each.
    assert new.stat().st_size < 500_000
    # All keys of the first interval are known long before its end, and the later ones have the same bound.
    assert {metrics["cache_phase"] for metrics in told} == {"closed"}
    last = told[-1]
    assert 0.98 * KEYS <= last["cache_bound"] <= KEYS
    assert last["cache_bound"] * 1.15 <= last["cache_capacity"] <= 1.6 * KEYS
    assert last["cache_bytes"] == new.stat().st_size
    assert sum(metrics["resizes"] for metrics in told) == 1
    assert all(300 <= metrics["batch_size"] <= 700 and metrics["in_flight"] == 2 for metrics in told)


def maps(folder: Path) -> set[Path]:
    """The caches in Spark's local folder."""
    return {path for path in folder.glob("**/srj/*") if path.is_file()}
