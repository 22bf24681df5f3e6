"""A policy of the user's own decides in Spark's workers, which never heard of its name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from srj import Cache, srj_enrich
from srj.cache_policies import register
from tests.policies.test_as_option import newest_leaves

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.integration.stores import Store

PARTS = [range(16), range(16, 19), range(19, 22), range(22, 25), range(16)]


def test_a_registered_policy_is_followed_in_the_workers(spark: SparkSession, postgres_store: Store) -> None:
    """Nine new keys, three at a time, cost LRU nine old ones; who gives up the newest entry loses three of the old ones only."""
    register(newest_leaves("newest-in-spark"))
    postgres_store.run("CREATE TABLE rounds (k int PRIMARY KEY, v int)")
    postgres_store.insert("rounds", [(key, key + 1) for key in range(25)])
    asked = {}
    for policy in ("lru", "newest-in-spark"):
        for part in PARTS:
            stream = spark.range(part.start, part.stop, 1, 1).selectExpr("cast(id AS int) AS k")
            enriched = srj_enrich(stream, postgres_store.table("rounds"), "k", cache=Cache(size="16 rows", policy=policy))
            with postgres_store.listening("rounds") as keys:
                rows = enriched.select("k", "v").collect()
            assert sorted((row.k, row.v) for row in rows) == [(key, key + 1) for key in part]
            asked[policy] = len(keys)
    assert asked == {"lru": 9, "newest-in-spark": 3}
