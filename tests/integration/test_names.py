"""Names of stream columns as keys, and what Spark itself takes for one name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F  # noqa: N812  Spark's own convention

from srj import RequestError, srj_enrich

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

    from srj.options import Order
    from tests.integration.stores import Store

ORDERS: tuple[Order, ...] = ("input", "any")
NAMES = (
    *("a.b", "a.b.c", "x`y", "sp ace", " lead", "100%", "[0]", 'q"q', "it's", "größe", "列", "😀", "select"),
    *("c0", "1st", "a-b", "$1", "\\"),
)


@pytest.fixture(scope="module")
def shop(postgres_store: Store) -> Store:
    """Two products, in columns of odd names."""
    postgres_store.run('CREATE TABLE products (id int PRIMARY KEY, "the name" varchar(9), "a.b" int)')
    postgres_store.run("INSERT INTO products VALUES (1, 'tea', 10), (2, 'milk', 20)")
    return postgres_store


@pytest.fixture
def by_case(spark: SparkSession) -> Iterator[None]:
    """Spark tells names apart by their case."""
    spark.conf.set("spark.sql.caseSensitive", "true")
    yield
    spark.conf.set("spark.sql.caseSensitive", "false")


@pytest.fixture(scope="module")
def stream(spark: SparkSession) -> DataFrame:
    """One row, whose key is 1."""
    return spark.range(1, 2)


@pytest.mark.parametrize("order", ORDERS)
def test_a_key_of_any_name_finds_its_row(stream: DataFrame, shop: Store, order: Order) -> None:
    """At the top of the stream and inside a struct; some are joined, and Spark has resolved the others."""
    options: dict[str, Any] = {"order": order, "prefix": "p_"}
    named = stream.select(*(F.col("id").alias(name) for name in NAMES))
    simple = [name for name in NAMES if "." not in name]
    inside = stream.select(F.struct(*(F.col("id").alias(name) for name in simple)).alias("in side"))
    for number, name in enumerate(NAMES):
        joined = srj_enrich(named, shop.table("products"), {name: "id"}, **options)
        assert joined.columns == [*NAMES, "p_the name", "p_a.b"]
        if number < 4:
            assert [tuple(row) for row in joined.collect()] == [(*[1] * len(NAMES), "tea", 10)], name
    for number, name in enumerate(simple):
        joined = srj_enrich(inside, shop.table("products"), {f"in side.{name}": "id"}, **options)
        assert joined.columns == ["in side", "p_the name", "p_a.b"]
        if number < 2:
            assert [tuple(row)[1:] for row in joined.collect()] == [("tea", 10)], name


@pytest.mark.parametrize("order", ORDERS)
def test_a_column_with_a_dot_comes_before_a_field(stream: DataFrame, shop: Store, order: Order) -> None:
    """As the page on types says."""
    both = stream.select(F.struct(F.lit(2).alias("b")).alias("a"), F.lit(1).alias("a.b"))
    options: dict[str, Any] = {"columns": ["the name"], "order": order}
    assert [row[-1] for row in srj_enrich(both, shop.table("products"), {"a.b": "id"}, **options).collect()] == ["tea"]
    nested = both.drop(F.col("`a.b`"))
    assert [row[-1] for row in srj_enrich(nested, shop.table("products"), {"a.b": "id"}, **options).collect()] == ["milk"]
    deep = nested.select(F.struct("a").alias("top.most"))
    with pytest.raises(RequestError, match=r"expected a stream column named 'top.most.a.b' for the key, got none"):
        srj_enrich(deep, shop.table("products"), {"top.most.a.b": "id"}, **options)
    assert [row[-1] for row in srj_enrich(deep, shop.table("products"), {"`top.most`.a.b": "id"}, **options).collect()] == ["milk"]


def test_between_backticks_a_dot_is_part_of_a_name(stream: DataFrame, shop: Store) -> None:
    """As in Spark: of the column and, where the table's column is not named apart, of that too."""
    both = stream.select(F.struct(F.lit(2).alias("b.c"), F.lit(1).alias("x`y")).alias("a.b"), F.lit(10).alias("a.b`"))
    found = {
        key: srj_enrich(both, shop.table("products"), {key: "id"}, columns=["the name"]).select("the name").collect()[0][0]
        for key in ("`a.b`.`b.c`", "`a.b`.`x``y`")
    }
    assert found == {"`a.b`.`b.c`": "milk", "`a.b`.`x``y`": "tea"}
    ten = stream.select(F.lit(10).alias("a.b"))
    assert srj_enrich(ten, shop.table("products"), "`a.b`", columns=["id"]).collect()[0][1] == 1
    with pytest.raises(RequestError, match=r"expected a stream column named '`a.b`.c' for the key, got none"):
        srj_enrich(both, shop.table("products"), {"`a.b`.c": "id"})


def test_a_field_that_a_struct_has_twice_is_no_key(stream: DataFrame, shop: Store) -> None:
    """Nor one whose name differs in case alone, where that is one name to Spark."""
    for names in (("b", "b"), ("b", "B")):
        twice = stream.select(F.struct(*(F.lit(1).alias(name) for name in names)).alias("a"))
        with pytest.raises(RequestError, match="expected one field named 'b' in stream column 'a', got several; rename all"):
            srj_enrich(twice, shop.table("products"), {"a.b": "id"})


@pytest.mark.parametrize("order", ORDERS)
def test_names_that_differ_in_case_are_one_unless_spark_is_told_otherwise(stream: DataFrame, shop: Store, order: Order) -> None:
    """A key may be written in any case; a clash is one in any case."""
    table = shop.table("products")
    upper = stream.select(F.col("id").alias("ID"))
    assert [tuple(row) for row in srj_enrich(upper, table, {"id": "id"}, order=order).collect()] == [(1, "tea", 10)]
    clashing = stream.select("id", F.lit("x").alias("THE NAME"))
    with pytest.raises(RequestError, match="got the table's column 'the name' beside the stream's 'THE NAME'"):
        srj_enrich(clashing, table, "id", order=order)


@pytest.mark.usefixtures("by_case")
@pytest.mark.parametrize("order", ORDERS)
def test_names_that_differ_in_case_are_two_where_spark_is_told_so(stream: DataFrame, shop: Store, order: Order) -> None:
    """As keys, and beside the table's."""
    table = shop.table("products")
    both = stream.select(F.lit(2).alias("ID"), "id", F.lit("x").alias("THE NAME"))
    for key, name in (("id", "tea"), ("ID", "milk")):
        [row] = srj_enrich(both, table, {key: "id"}, columns=["the name"], order=order).collect()
        assert tuple(row) == (2, 1, "x", name)
    with pytest.raises(RequestError, match="expected a stream column named 'Id' for the key, got none"):
        srj_enrich(both, table, {"Id": "id"}, order=order)
