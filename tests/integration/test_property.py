"""Whatever the table and the stream: srj_enrich gives what Spark's own join gives, cold and from the cache, in order if asked."""

from __future__ import annotations

import itertools
from collections import Counter
from contextlib import contextmanager
from functools import reduce
from typing import TYPE_CHECKING, Any

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  Spark's own convention

from srj import srj_enrich
from tests.integration.cases import HOWS, cases, collected, create, own_join, stream_frame, table_frame, tagged

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import SparkSession

    from tests.integration.cases import Case
    from tests.integration.conftest import Observed
    from tests.integration.stores import Store

ORDERS = ("input", "any")
# Those that ask the same, and so share a cache: what the one has found, the other finds there.
PAIRS = (("left", "inner"), ("semi", "anti"))
# The tests' session compiles no plans, for few of them pay that back; here some are compiled as a user's would be.
COMPILED = {"spark.sql.codegen.wholeStage": "true", "spark.sql.codegen.factoryMode": "FALLBACK"}
BATCH_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
# What the examples of each kind of key have: a table that is unique on the key or not, and rows in an Arrow batch.
EXAMPLES = {("int",): [(False, 1)], ("text",): [(False, 7)], ("int", "text"): [(False, 1000), (True, 1)]}
# An example runs some 30 joins, so few of them and no shrinking; derandomized, so that a failure comes again.
FEW = {
    "deadline": None,
    "derandomize": True,
    "database": None,
    "print_blob": True,
    "phases": [Phase.explicit, Phase.generate],
    "suppress_health_check": list(HealthCheck),
}

# Each pair of joins has a cache of its own: another time to live makes another.
_numbers = itertools.count(1)
_checks = itertools.count()


@pytest.mark.timeout(900)
@pytest.mark.parametrize("kinds", EXAMPLES, ids="-".join)
def test_every_join_equals_sparks_own_twice(spark: SparkSession, store: Store, observed: Observed, kinds: tuple[str, ...]) -> None:
    """Every how, order and on_multiple: the same rows as Spark's join, by the second of a pair without a call of the database.

    Which is the second changes from check to check. Text keys also with plans that Spark compiles.
    """

    @settings(max_examples=1, **FEW)
    @given(st.data())
    def check(unique: bool, batch_rows: int, data: st.DataObject) -> None:
        several = 1 if unique else 2
        made = cases(kinds, unique, batch_rows).filter(
            lambda case: len(case.matches) >= 8 and max(case.matches.values()) >= several
        )
        case = data.draw(made)
        name = f"t{next(_numbers)}"
        create(store, name, case)
        spark.conf.set(BATCH_ROWS, case.batch_rows)
        stream, table = stream_frame(spark, case, case.stream), table_frame(spark, case)
        _check(store, name, case, stream, table, "all", case.stream, observed)
        _check(store, name, case, stream, table, "first", case.stream, observed)
        single = tuple(row for row in case.stream if case.matches[row[1:]] < 2)
        if len(single) < len(case.stream):
            for how, order in zip(("left", "inner"), ORDERS, strict=True):
                failing = _enriched(store, name, case, stream, how, order, "error", next(_numbers))
                with pytest.raises(
                    Exception, match=rf"expected at most one row of {name} for a key \(on_multiple='error'\), got \d+ for"
                ):
                    failing.collect()
        _check(store, name, case, stream_frame(spark, case, single), table, "error", single, observed)

    with _configured(spark, COMPILED if kinds == ("text",) else {}):
        # A second example tells the operators' paths apart, which are the same for both servers.
        for unique, batch_rows in EXAMPLES[kinds][: None if store.is_postgres else 1]:
            check(unique, batch_rows)


@contextmanager
def _configured(spark: SparkSession, settings: dict[str, str]) -> Iterator[None]:
    """The session with other settings, for a while."""
    before = {name: spark.conf.get(name) for name in settings}
    try:
        for name, value in settings.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, value in before.items():
            spark.conf.set(name, str(value))


def _enriched(
    store: Store, name: str, case: Case, stream: DataFrame, how: str, order: str, on_multiple: str, number: int
) -> DataFrame:
    key = dict(zip(case.stream_keys, case.table_keys, strict=True))
    return srj_enrich(
        stream,
        store.table(name),
        key,
        how=how,
        order=order,
        on_multiple=on_multiple,
        batch=case.batch,
        cache="4 MB",
        ttl=1000.0 + number,
    )


def _joins(number: int) -> list[tuple[str, str, str]]:
    """How, order and turn of each join, the cold one of a pair before the warm one; with the next number it is the other's turn."""
    return [
        (how, order, turn)
        for place, order in enumerate(ORDERS)
        for pair in PAIRS
        for how, turn in zip(pair[:: -1 if (number + place) % 2 else 1], ("cold", "warm"), strict=True)
    ]


def _check(
    store: Store,
    name: str,
    case: Case,
    stream: DataFrame,
    table: DataFrame,
    on_multiple: str,
    rows: Sequence[tuple[Any, ...]],
    observed: Observed,
) -> None:
    """All joins of one `on_multiple` in one Spark job, pair by pair; with one core the second runs after the first."""
    observed.take()
    expected = collected([tagged(own_join(stream, table, case, how, first=on_multiple == "first"), how) for how in HOWS])
    joins = _joins(next(_checks))
    numbers = [number for number in itertools.islice(_numbers, len(joins) // 2) for _ in ("cold", "warm")]
    frames = [
        _enriched(store, name, case, stream, how, order, on_multiple, number)
        for (how, order, _), number in zip(joins, numbers, strict=True)
    ]
    found = collected([tagged(frame, "-".join(join)) for frame, join in zip(frames, joins, strict=True)])
    keys = case.asked(rows, nul_is_possible=not store.is_postgres)
    for join, metrics in zip(joins, observed.take(), strict=True):
        how, order, turn = join
        got = found.get("-".join(join), [])
        assert Counter(got) == Counter(expected.get(how, [])), (join, on_multiple)
        assert metrics["rows"] == len(rows), join
        assert (metrics["keys"], metrics["batches"] > 0) == ((len(keys), bool(keys)) if turn == "cold" else (0, False)), join
        if order == "input":
            assert [row[0] for row in got] == sorted(row[0] for row in got), (join, on_multiple)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", ["unique", "several"])
def test_large_batches_equal_sparks_own_join(spark: SparkSession, store: Store, observed: Observed, kind: str) -> None:
    """120,000 rows in Arrow batches of up to 50,000, of which a third has no match, and the keys come in lookups of 1,000.

    Such a number of rows pays for the compiling of plans.
    """
    columns = "id int PRIMARY KEY, k int, v varchar(40)"
    store.run(f"DROP TABLE IF EXISTS large_{kind}; CREATE TABLE large_{kind} ({columns})")
    store.run(f"CREATE {'UNIQUE ' if kind == 'unique' else ''}INDEX large_{kind}_key ON large_{kind} (k)")
    doubles = 1 if kind == "unique" else 3
    rows = [(number, number // doubles, f"value {number}") for number in range(6000)]
    store.insert(f"large_{kind}", rows)

    @settings(max_examples=1, **FEW)
    @given(seed=st.integers(1, 10**6), batch_rows=st.sampled_from([50_000]))
    def check(seed: int, batch_rows: int) -> None:
        spark.conf.set(BATCH_ROWS, batch_rows)
        hashed = F.pmod(F.xxhash64(F.col("id"), F.lit(seed)), F.lit(9000 // doubles))
        stream = spark.range(0, 120_000, 1, 2).select(
            F.monotonically_increasing_id().alias("place"), F.when(F.col("id") % 100 > 0, hashed).alias("s")
        )
        table = spark.createDataFrame(rows, "id int, k int, v string")
        distinct = stream.where("s IS NOT NULL").select("s").distinct().count()
        kinds = {how: f"left_{how}" if how in ("semi", "anti") else how for how in HOWS}
        theirs = {how: _checksum(stream.join(table, F.col("s") == F.col("k"), kind).drop("k")) for how, kind in kinds.items()}
        observed.take()
        ttl = 1000.0
        for how, order, turn in _joins(next(_checks)):
            if turn == "cold":
                ttl = 1000.0 + next(_numbers)
            frame = srj_enrich(stream, store.table(f"large_{kind}"), {"s": "k"}, how=how, order=order, ttl=ttl)
            assert _checksum(frame) == theirs[how], (how, order, turn)
            [metrics] = observed.take()
            assert (metrics["rows"], metrics["keys"]) == (120_000, distinct if turn == "cold" else 0), (how, order, turn)
            if order == "input" and turn == "warm":
                places = frame.select("place").toArrow()["place"].to_numpy()
                assert (places[1:] >= places[:-1]).all(), (how, order)
                observed.take()

    with _configured(spark, COMPILED):
        check()


def _checksum(frame: DataFrame) -> tuple[int, int]:
    """The number of rows, and a sum over all their values that their order does not change."""
    whole = frame.select(F.count("*"), F.sum(F.xxhash64(*map(F.col, frame.columns)).cast("decimal(38,0)")))
    count, total = whole.collect()[0]
    return count, total


def test_collations_are_the_databases(spark: SparkSession, store: Store) -> None:
    """Text that ignores case, accents or padding matches as in the database's own join, cold and cached, with an index or none."""
    if store.is_postgres:
        store.run("CREATE COLLATION ci (provider = icu, locale = 'und-u-ks-level1', deterministic = false)")
        kinds = {"ci": ("text COLLATE ci", "text"), "padded": ("char(8)", "char(40)")}
    else:
        collations = ("utf8mb4_unicode_ci", "utf8mb4_bin", "utf8mb4_nopad_bin", "latin1_swedish_ci", "latin1_bin")
        text = "varchar(40) CHARACTER SET {} COLLATE {}"
        kinds = {name: (text.format(name.partition("_")[0], name), text.format("utf8mb4", "utf8mb4_bin")) for name in collations}
    in_table = ["a", "A", "é", "ab", "ß", "x ", "", "o", "straße"]
    in_stream = [*in_table, "a ", "E", "AB", "aB", "ss", "SS", "x", " ", "Ö", "ö", "STRASSE", "😀", "a" * 30, "zz", None, "a", "é"]
    stream = spark.createDataFrame(list(enumerate(in_stream)), "n int, s string").coalesce(1)
    for number, (name, (kind, asked)) in enumerate(kinds.items()):
        # What the column's character set lacks can't be in it, and the database's own join would ask for a question mark.
        possible = [(n, s) for n, s in enumerate(in_stream) if s is not None and not ("latin1" in name and s == "😀")]
        store.run(f"CREATE TABLE words_{number} (k {kind}, v int); CREATE TABLE asked_{number} (n int, s {asked})")
        store.insert(f"words_{number}", [(word, row) for row, word in enumerate(in_table)])
        store.insert(f"asked_{number}", possible)
        collate = "" if store.is_postgres else f" COLLATE {name}"
        key = f"CONVERT(a.s USING {name.partition('_')[0]}){collate}" if collate else "a.s"
        theirs = store.run(f"SELECT a.n, w.v FROM asked_{number} a JOIN words_{number} w ON w.k = {key}")
        assert len(theirs) > len(in_table)
        for indexed, order, turn in itertools.product((False, True), ORDERS, ("cold", "warm")):
            if indexed and order == "input" and turn == "cold":
                store.run(f"CREATE INDEX words_index_{number} ON words_{number} (k)")
            ttl = 1000.0 + ORDERS.index(order) + 10 * indexed
            ours = srj_enrich(stream, store.table(f"words_{number}"), {"s": "k"}, how="inner", order=order, ttl=ttl)
            assert Counter(map(tuple, ours.select("n", "v").collect())) == Counter(theirs), (name, indexed, order, turn)


def test_nobody_is_asked_for_nothing(spark: SparkSession, store: Store) -> None:
    """A stream without rows, or with NULL keys alone, reaches the database not even once; left keeps its rows."""
    store.run("CREATE TABLE nothing (k int PRIMARY KEY, v int); INSERT INTO nothing VALUES (1, 1)")
    nulls = spark.range(0, 10, 1, 3).select(F.lit(None).cast("int").alias("k"))
    with store.listening("nothing") as asked:
        frames = [srj_enrich(nulls, store.table("nothing"), "k", order=order) for order in ORDERS]
        frames += [srj_enrich(nulls.where("rand() < 0"), store.table("nothing"), "k", order=order) for order in ORDERS]
        whole = reduce(lambda one, other: one.unionAll(other), frames)
        assert whole.collect() == [(None, None)] * 20
    assert asked == []


def test_tables_without_rows_or_without_other_columns(spark: SparkSession, store: Store) -> None:
    """An empty table, and one whose only column is its key, unique or not: there is nothing to add but the rows count."""
    store.run("CREATE TABLE bare (k int); CREATE INDEX bare_key ON bare (k); INSERT INTO bare VALUES (1), (1), (2), (NULL)")
    store.run("CREATE TABLE bare_unique (k int PRIMARY KEY); INSERT INTO bare_unique VALUES (1), (2)")
    store.run("CREATE TABLE bare_empty (k int PRIMARY KEY, v int)")
    stream = spark.range(0, 4, 1, 1).selectExpr("cast(nullif(id, 3) AS int) AS k")
    keys = {"bare": [1, 1, 2], "bare_unique": [1, 2], "bare_empty": []}
    ours, theirs = [], []
    for number, (name, rows) in enumerate(keys.items()):
        table = spark.createDataFrame([(key,) for key in rows], "t int")
        for how, order, turn in _joins(number):
            found = srj_enrich(stream, store.table(name), "k", how=how, order=order, ttl=float(1000 + ORDERS.index(order)))
            ours.append(found.select("k", F.lit(f"{name} {how} {order} {turn}").alias("tag")))
            if order == ORDERS[0]:
                expected = stream.join(table, stream["k"] == table["t"], f"left_{how}" if how in ("semi", "anti") else how)
                theirs.append(expected.select("k", F.lit(f"{name} {how}").alias("tag")))
    wanted, got = (Counter(reduce(DataFrame.unionAll, frames).collect()) for frames in (theirs, ours))
    turns = {(f"{name} {how}", f"{order} {turn}") for number, name in enumerate(keys) for how, order, turn in _joins(number)}
    assert got == {(key, f"{tag} {turn}"): count for (key, tag), count in wanted.items() for name, turn in turns if name == tag}
