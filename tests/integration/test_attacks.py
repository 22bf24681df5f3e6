"""Names and settings chosen to break a join in Spark itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F  # noqa: N812  Spark's own convention

from srj import RequestError, srj_enrich

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from srj.options import Order
    from tests.integration.stores import Store

ORDERS: tuple[Order, ...] = ("input", "any")
OWN_NAMES = ["__srj_matches", "__SRJ_Matches", "__srj_metrics", "__srj_key_0"]


@pytest.fixture(scope="module")
def shop(postgres_store: Store) -> Store:
    """A table with a name, and one with columns that are called like srj's own."""
    postgres_store.run("CREATE TABLE named (id int PRIMARY KEY, name text); INSERT INTO named VALUES (1, 'tea')")
    columns = ", ".join(f'"{name}" text' for name in OWN_NAMES if name.islower())
    postgres_store.run(f"CREATE TABLE own_names (id int PRIMARY KEY, {columns}); INSERT INTO own_names VALUES (1, 'a', 'b', 'c')")
    return postgres_store


@pytest.fixture(scope="module")
def stream(spark: SparkSession) -> DataFrame:
    """One row."""
    return spark.range(1, 2)


def _or_refused(df: DataFrame, shop: Store, table: str, order: Order) -> list[tuple[object, ...]] | None:
    """The rows, or None where srj refuses the request in its own words."""
    try:
        return [tuple(row) for row in srj_enrich(df, shop.table(table), "id", order=order).collect()]
    except RequestError:
        return None


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", OWN_NAMES)
def test_a_stream_column_called_like_one_of_srjs_own_is_kept_or_refused(
    stream: DataFrame, shop: Store, name: str, order: Order
) -> None:
    """It must not vanish."""
    assert _or_refused(stream.withColumn(name, F.lit("mine")), shop, "named", order) in ([(1, "mine", "tea")], None)


@pytest.mark.parametrize("order", ORDERS)
def test_table_columns_called_like_srjs_own_are_kept_or_refused(stream: DataFrame, shop: Store, order: Order) -> None:
    """Nor must these."""
    assert _or_refused(stream, shop, "own_names", order) in ([(1, "a", "b", "c")], None)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", ["a.b", "x`y", "sp ace", "100%", "[0]", 'q"q', "c0", "matches", "metrics"])
def test_a_stream_column_of_any_name_comes_through(stream: DataFrame, shop: Store, name: str, order: Order) -> None:
    """Flattened JSON has dots in its names."""
    assert _or_refused(stream.withColumn(name, F.lit("mine")), shop, "named", order) == [(1, "mine", "tea")]


@pytest.mark.parametrize("order", ORDERS)
def test_a_prefix_cures_a_clash_of_names_in_either_order(stream: DataFrame, shop: Store, order: Order) -> None:
    """The stream's and the table's ``name``, of one type and of two."""
    for mine in (F.lit("mine"), F.lit(7)):
        joined = srj_enrich(stream.withColumn("name", mine), shop.table("named"), "id", prefix="p_", order=order)
        assert [row["p_name"] for row in joined.collect()] == ["tea"]


def test_a_cache_too_small_for_the_table_is_refused_before_the_stream_starts(stream: DataFrame, shop: Store) -> None:
    """Not by a worker, in the middle of a traceback."""
    for size in ("1 KB", "0.5 rows"):
        with pytest.raises(RequestError):
            srj_enrich(stream, shop.table("named"), "id", cache=size)


def test_a_password_of_text_and_variable_reaches_the_workers_complete(
    stream: DataFrame, shop: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``pre${SUFFIX}`` is no plain reference, yet the variable in it is one."""
    monkeypatch.setenv("SRJ_ATTACKS_SUFFIX", "fix")
    shop.run("CREATE ROLE srj_attacks_mixed LOGIN PASSWORD 'prefix'; GRANT SELECT ON named TO srj_attacks_mixed")
    try:
        url = f"postgresql://srj_attacks_mixed:pre${{SRJ_ATTACKS_SUFFIX}}@{shop.place}#named"
        assert [tuple(row) for row in srj_enrich(stream, url, "id").collect()] == [(1, "tea")]
    finally:
        shop.run("DROP OWNED BY srj_attacks_mixed; DROP ROLE srj_attacks_mixed")


@pytest.mark.parametrize("most", ["0", "-1", "1", "1000000"])
def test_batches_of_any_size_give_the_same_rows(spark: SparkSession, shop: Store, most: str) -> None:
    """0 and -1 mean no bound."""
    name = "spark.sql.execution.arrow.maxRecordsPerBatch"
    before = spark.conf.get(name)
    spark.conf.set(name, most)
    try:
        for order in ORDERS:
            joined = srj_enrich(spark.range(0, 300, 1, 2), shop.table("named"), "id", order=order)
            assert joined.agg(F.count("*"), F.sum("id"), F.count("name")).collect() == [(300, 44850, 1)]
    finally:
        spark.conf.set(name, str(before))
