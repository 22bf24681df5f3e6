"""Random tables and streams for the property tests, and Spark's own joins of them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

import hypothesis.strategies as st
from pyspark.sql import functions as F  # noqa: N812  Spark's own convention
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType
from pyspark.sql.window import Window

from srj import Batch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame, SparkSession

    from tests.integration.stores import Store

HOWS = ("left", "inner", "semi", "anti")
PARTS = 3

# An int column can't hold the last two: the stream's bigint keys match nothing then.
_INTEGERS = [*range(-3, 12), 2**31 - 1, -(2**31), 2**31, 2**63 - 1]
_TEXTS = ["", " ", "a", "A", "a ", " a", "ab", "é", "e\u0301", "ß", "ss", "😀", "'", '"', "\\", "%", "a\tb", "NULL", "{1,2}", "[1]"]
_VALUES = ["", "x", "Ünïcode 😀", "a text that does not fit into twelve bytes", None]


@dataclass(frozen=True)
class Case:
    """A table, a stream and how they are joined.

    Attributes:
        kinds: ``int`` or ``text`` for each key column.
        unique: the table has a unique index on its key (which may be NULL all the same).
        table: rows of id, key columns, v, w.
        stream: rows of part, key columns.
        batch_rows: the most rows that Spark puts into an Arrow batch.
        batch: how keys are asked.
    """

    kinds: tuple[str, ...]
    unique: bool
    table: tuple[tuple[Any, ...], ...]
    stream: tuple[tuple[Any, ...], ...]
    batch_rows: int
    batch: Batch

    @property
    def table_keys(self) -> list[str]:
        """The table's key columns."""
        return [f"k{position}" for position in range(len(self.kinds))]

    @property
    def stream_keys(self) -> list[str]:
        """The stream's key columns."""
        return [f"s{position}" for position in range(len(self.kinds))]

    @property
    def matches(self) -> Counter[tuple[Any, ...]]:
        """How many rows the table has for a key without NULL."""
        keys = [row[1 : 1 + len(self.kinds)] for row in self.table]
        return Counter(key for key in keys if None not in key)

    def asked(self, stream: Sequence[tuple[Any, ...]], *, nul_is_possible: bool) -> set[tuple[Any, ...]]:
        """The distinct keys that a database can be asked: no NULL, no number or text that the column can't hold."""
        keys = {row[1:] for row in stream}
        return {key for key in keys if all(_is_possible(value, nul_is_possible=nul_is_possible) for value in key)}


def _is_possible(value: int | str | None, *, nul_is_possible: bool) -> bool:
    if isinstance(value, int):
        return -(2**31) <= value < 2**31
    return value is not None and (nul_is_possible or "\0" not in value)


@st.composite
def cases(draw: st.DrawFn, kinds: tuple[str, ...], unique: bool, batch_rows: int) -> Case:
    """Keys are taken from a few values, so that doubles, several matches and absent keys are all frequent."""
    in_table = [st.sampled_from([*(_INTEGERS[:-2] if kind == "int" else _TEXTS), None]) for kind in kinds]
    in_stream = [st.sampled_from([*(_INTEGERS if kind == "int" else [*_TEXTS, "a\0", "absent"]), None]) for kind in kinds]
    values = st.tuples(st.sampled_from(_VALUES), st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1)))
    rows = draw(st.integers(20, 60))
    keyed = draw(st.lists(st.tuples(*in_table), min_size=rows, max_size=rows))
    if unique:
        keyed = list(dict.fromkeys(key for key in keyed if None not in key)) + [key for key in keyed if None in key]
    # A batch costs the same whether it has one row or a thousand: fewer rows where each is a batch.
    length = draw(st.integers(60, 70 if batch_rows == 1 else 150))
    stream = draw(st.lists(st.tuples(st.integers(0, PARTS - 1), *in_stream), min_size=length, max_size=length))
    return Case(
        kinds,
        unique,
        tuple((number, *key, *draw(values)) for number, key in enumerate(keyed)),
        tuple(stream),
        batch_rows,
        Batch(size=draw(st.sampled_from([1000, 1, 7])), in_flight=draw(st.sampled_from([4, 1]))),
    )


def create(store: Store, name: str, case: Case) -> None:
    """Make the case's table in the database."""
    text = 'text COLLATE "C"' if store.is_postgres else "varchar(40) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin"
    keys = [f"{key} {'int' if kind == 'int' else text}" for key, kind in zip(case.table_keys, case.kinds, strict=True)]
    store.run(f"DROP TABLE IF EXISTS {name}")
    store.run(f"CREATE TABLE {name} (id int PRIMARY KEY, {', '.join(keys)}, v text, w bigint)")
    store.run(f"CREATE {'UNIQUE ' if case.unique else ''}INDEX {name}_key ON {name} ({', '.join(case.table_keys)})")
    store.insert(name, case.table)


def stream_frame(spark: SparkSession, case: Case, rows: Sequence[tuple[Any, ...]]) -> DataFrame:
    """The stream in partitions, some of them empty, each row with its place: it grows with the partition, and within each."""
    types = [LongType() if kind == "int" else StringType() for kind in case.kinds]
    fields = [StructField("part", IntegerType()), *map(StructField, case.stream_keys, types)]
    frame = spark.createDataFrame(list(rows), StructType(fields)).coalesce(1).repartition(PARTS, "part")
    return frame.withColumn("place", F.monotonically_increasing_id()).persist()


def table_frame(spark: SparkSession, case: Case) -> DataFrame:
    """The same table in Spark."""
    types = [IntegerType() if kind == "int" else StringType() for kind in case.kinds]
    fields = [StructField("id", IntegerType()), *map(StructField, case.table_keys, types)]
    return spark.createDataFrame(
        list(case.table), StructType([*fields, StructField("v", StringType()), StructField("w", LongType())])
    )


def own_join(stream: DataFrame, table: DataFrame, case: Case, how: str, *, first: bool) -> DataFrame:
    """Spark's own join; with `first`, of the row with the least id of each key."""
    if first:
        ranked = F.row_number().over(Window.partitionBy(*case.table_keys).orderBy("id"))
        table = table.withColumn("rank", ranked).where("rank = 1").drop("rank")
    pairs = zip(case.stream_keys, case.table_keys, strict=True)
    condition: Column = reduce(lambda one, other: one & other, [stream[left] == table[right] for left, right in pairs])
    return stream.join(table, condition, f"left_{how}" if how in ("semi", "anti") else how).drop(*case.table_keys)


def tagged(frame: DataFrame, tag: str) -> DataFrame:
    """With NULL for the table's columns where a join adds none, so that all results are of one form."""
    missing = {name: F.lit(None).cast(kind) for name, kind in (("id", "int"), ("v", "string"), ("w", "bigint"))}
    return frame.withColumns({name: null for name, null in missing.items() if name not in frame.columns} | {"tag": F.lit(tag)})


def collected(frames: Sequence[DataFrame]) -> dict[str, list[tuple[Any, ...]]]:
    """The rows of each tag, in the order in which Spark has them."""
    whole = reduce(lambda one, other: one.unionByName(other), frames)
    found: dict[str, list[tuple[Any, ...]]] = {}
    for *row, tag in whole.select("place", *sorted(set(whole.columns) - {"place", "tag"}), "tag").collect():
        found.setdefault(tag, []).append(tuple(row))
    return found
