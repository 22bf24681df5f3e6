"""One lookup per stream row, however the result is used.

Spark evaluates a plan again where a use of it does: `orderBy` (to sample the ranges), a union and a join with itself. Each row
is then looked up once an evaluation; all evaluations but the first find their keys in the cache, so no key is asked twice.
"""

from __future__ import annotations

import itertools
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from srj import srj_enrich

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame, SparkSession

    from tests.integration.conftest import Observed
    from tests.integration.stores import Store

ROWS = 3000
# Every second stream key has a row.
PRESENT = range(0, ROWS, 2)
NEVER, ONCE, TWICE = 0, 1, 2

_numbers = itertools.count(1)


def _sort(frame: DataFrame) -> DataFrame:
    return frame.orderBy("v", "k")


def _persisted(frame: DataFrame) -> int:
    kept = frame.persist()
    rows = len(_sort(kept).collect()) + kept.count()
    kept.unpersist()
    return rows


# For each use: how many rows it gives, and how often it evaluates the lookup in order without metrics; with metrics, and out of
# order, whatever is not used is evaluated all the same.
USES: dict[str, tuple[Callable[[DataFrame], Any], int, int]] = {
    "filter": (lambda frame: len(frame.where("w >= 0 AND v <> 'x'").select("v").collect()), len(PRESENT), ONCE),
    "coalesce": (lambda frame: len(frame.selectExpr("coalesce(w, -1) AS w").where("w < 0").collect()), ROWS // 2, ONCE),
    "subset": (lambda frame: len(frame.select("w").collect()), ROWS, ONCE),
    "count": (lambda frame: frame.count(), ROWS, NEVER),
    "drop": (lambda frame: len(frame.drop("v", "w").collect()), ROWS, NEVER),
    "aggregate": (lambda frame: frame.groupBy("v").count().count(), len(PRESENT) + 1, ONCE),
    "union": (lambda frame: len(frame.unionAll(frame).collect()), 2 * ROWS, TWICE),
    "self-join": (lambda frame: frame.alias("a").join(frame.alias("b"), "k").where("a.w = b.w").count(), len(PRESENT), TWICE),
    "orderBy": (lambda frame: len(_sort(frame).collect()), ROWS, TWICE),
    "orderBy of few": (lambda frame: len(_sort(frame).limit(3).collect()), 3, ONCE),
    "persist": (_persisted, 2 * ROWS, ONCE),
}
# These stop early: at most one evaluation, of as much as Spark had read by then.
EARLY: dict[str, Callable[[DataFrame], Any]] = {
    "limit": lambda frame: len(frame.limit(5).collect()),
    "first": lambda frame: len(frame.where("v IS NOT NULL").take(5)),
    "isEmpty": lambda frame: 5 * (not frame.isEmpty()),
}


@pytest.fixture(scope="module")
def shop(postgres_store: Store) -> Iterator[Store]:
    """A table with a row for every second key."""
    _create(postgres_store, "shop")
    return postgres_store


def _create(store: Store, table: str) -> None:
    store.run(f"CREATE TABLE {table} (k int PRIMARY KEY, v text, w int)")
    store.insert(table, [(key, f"value {key}", key) for key in PRESENT])


def _frame(spark: SparkSession, shop: Store, order: str, *, metrics: bool, cache: str, table: str = "shop") -> DataFrame:
    """With a cache of its own: another time to live makes another."""
    ttl = 2000.0 + next(_numbers)
    stream = spark.range(0, ROWS, 1, 2).selectExpr("cast(id AS int) AS k")
    return srj_enrich(stream, shop.table(table), "k", order=order, metrics=metrics, cache=cache, ttl=ttl)


@pytest.mark.parametrize("metrics", [True, False], ids=["metrics", "plain"])
@pytest.mark.parametrize("order", ["input", "any"])
@pytest.mark.parametrize("use", USES)
def test_each_row_is_looked_up_once_an_evaluation(
    spark: SparkSession, shop: Store, observed: Observed, use: str, order: str, metrics: bool
) -> None:
    """With a cache too small to help, each key is asked as often as Spark evaluates the lookup; with a larger one, once."""
    action, rows, evaluations = USES[use]
    if metrics or order == "any":
        evaluations = max(evaluations, ONCE)
    observed.take()
    with shop.listening("shop") as asked:
        assert action(_frame(spark, shop, order, metrics=metrics, cache="16 rows")) == rows
    times = Counter(asked)
    assert len(times) == (ROWS if evaluations else 0)
    # The few keys that even the small cache holds may be asked once less.
    assert evaluations - 0.05 <= len(asked) / ROWS <= evaluations
    if metrics and evaluations == ONCE:
        counted = [one for one in observed.take() if one["rows"]]
        assert [(one["rows"], one["keys"], one["absent"]) for one in counted[:1]] == [(ROWS, ROWS, ROWS // 2)]
    with shop.listening("shop") as asked:
        assert action(_frame(spark, shop, order, metrics=metrics, cache="64 MB")) == rows
    assert sorted(asked) == (list(range(ROWS)) if evaluations else [])


@pytest.mark.parametrize("metrics", [True, False], ids=["metrics", "plain"])
@pytest.mark.parametrize("order", ["input", "any"])
@pytest.mark.parametrize("use", EARLY)
def test_uses_that_stop_early_ask_no_key_twice(spark: SparkSession, shop: Store, use: str, order: str, metrics: bool) -> None:
    """limit, take and isEmpty look at the beginning: no row is looked up twice."""
    # A table of this use's own, for lookups may still be on their way when the one before has ended.
    table = f"early_{next(_numbers)}"
    _create(shop, table)
    with shop.listening(table) as asked:
        frame = _frame(spark, shop, order, metrics=metrics, cache="16 rows", table=table)
        assert EARLY[use](frame) == 5
    assert len(asked) == len(set(asked)) <= ROWS


def test_mariadb_is_asked_once_too(spark: SparkSession, store: Store, observed: Observed) -> None:
    """Both servers' own logs agree with srj's metrics, key by key and lookup by lookup."""
    store.run("CREATE TABLE agreed (k int PRIMARY KEY, v int)")
    store.insert("agreed", [(key, key) for key in range(0, 500, 2)])
    stream = spark.range(0, 5000, 1, 3).selectExpr("cast(id % 700 AS int) AS k")
    for order in ("input", "any"):
        observed.take()
        with store.listening("agreed") as asked:
            frame = srj_enrich(stream, store.table("agreed"), "k", order=order, batch=64, ttl=2000.0 + next(_numbers))
            assert frame.where("v >= 0").count() == sum(key % 700 in range(0, 500, 2) for key in range(5000))
        [metrics] = observed.take()
        assert sorted(asked) == list(range(700))
        assert (metrics["keys"], metrics["rows"], metrics["hits"] + metrics["misses"]) == (700, 5000, 5000)
        assert metrics["batches"] >= 700 / 64
        assert metrics["keys_per_batch"] == pytest.approx(700 / metrics["batches"])
