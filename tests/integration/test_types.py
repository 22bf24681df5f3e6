"""Through Spark: a table with a column of every type, and a key of all types that can be one."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import StructField, StructType

from srj import RequestError, srj_enrich
from srj.databases import mysql_table, postgresql_table
from srj.databases.base import KeyColumn
from srj.databases.conversion import check_key_type
from srj.databases.typing import STREAM_TYPES, accepted
from srj.forms import enrich_in_pandas
from tests.ground import Ground
from tests.type_cases import MARIADB_ONLY, MYSQL, POSTGRES, POSTGRES_SETUP
from tests.type_walk import fetch, holds, literal, plain

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from pyspark.sql import DataFrame, SparkSession

    from tests.integration.stores import Store
    from tests.type_walk import TypeCase

ROWS = 6  # and one of NULLs


@pytest.fixture(scope="module")
def ground(store: Store) -> Ground:
    """The store's database, with the types that the cases name."""
    if store.is_postgres:
        store.run(POSTGRES_SETUP)
    return Ground(store.server, store.name)


def _cases(ground: Ground) -> tuple[TypeCase, ...]:
    return POSTGRES if ground.is_postgres else (*MYSQL, *MARIADB_ONLY)


def _fill(ground: Ground, table: str, cases: Sequence[TypeCase]) -> None:
    """A row for each of the cases' first values, and one of NULLs."""
    null = "" if ground.is_postgres else " NULL"
    columns = ", ".join(f"c{number} {case.sql}{null}" for number, case in enumerate(cases))
    ground.sql(f"CREATE TABLE {table} (id int PRIMARY KEY, {columns})")
    rows = [[row, *(case.values[row % len(case.values)] for case in cases)] for row in range(ROWS)]
    rows.append([ROWS, *[None] * len(cases)])
    values = ", ".join(f"({', '.join(literal(value, is_postgres=ground.is_postgres) for value in row)})" for row in rows)
    zone = "" if ground.is_postgres else "SET time_zone = '+00:00'; "
    ground.sql(f"{zone}INSERT INTO {table} VALUES {values}")


def _rows(frame: DataFrame) -> list[list[Any]]:
    """In one order for all; not by `collect`, whose datetimes are in no zone and end with some years."""
    table = frame.toArrow()
    return sorted(([*map(plain, row.values())] for row in table.to_pylist()), key=repr)


def test_values_of_every_type_arrive_in_spark(spark: SparkSession, store: Store, ground: Ground) -> None:
    """By the in-order operator, by whole rows, and by pandas, as the database's own driver reads them."""
    cases = [case for case in _cases(ground) if case.is_column]
    _fill(ground, "every_type", cases)
    floats = {number for number, case in enumerate(cases) if case.sql == "FLOAT"}  # which MySQL prints with six digits
    names = ", ".join(f"c{number} + 0e0" if number in floats else f"c{number}" for number in range(len(cases)))
    own = [[*map(plain, row)] for row in fetch(ground, f"SELECT id, {names} FROM every_type ORDER BY id")]
    own.append([plain(ROWS + 1), *[None] * len(cases)])
    stream = spark.range(ROWS + 2).selectExpr("CAST(id AS int) AS id")
    for order in ("input", "any"):
        assert _rows(srj_enrich(stream, store.table("every_type"), "id", order=order)) == own
    inner = srj_enrich(stream, store.table("every_type"), "id", how="inner", order="any")
    assert _rows(inner) == own[:-1]
    few = [f"c{number}" for number, case in enumerate(cases) if case.sql in {"int[]", "text[]", "bigint", "BIGINT", "uuid", "UUID"}]
    # Once more as a function of pandas, whose dates end with the year 2262, and whose floats have no NULL beside NaN.
    by_pandas = enrich_in_pandas(stream, store.table("every_type"), "id", columns=few)
    assert _rows(by_pandas) == _rows(srj_enrich(stream, store.table("every_type"), "id", columns=few))


@pytest.mark.filterwarnings("ignore:no index of")  # none has so many columns
def test_keys_of_every_type_come_from_spark(spark: SparkSession, store: Store, ground: Ground) -> None:
    """All of them as the parts of one key."""
    cases = list({case.entry.title: case for case in reversed(_cases(ground)) if case.streams}.values())
    _fill(ground, "every_key", cases)
    columns = [[case.values[row % len(case.values)] for row in [*range(ROWS), 0]] for case in cases]
    types = [next(kind for kind in case.streams if all(holds(kind, value) for value in case.values[:ROWS])) for case in cases]
    columns[0][-1] = None  # one part that is NULL, and all others of a key that is there
    names = [f"s{number}" for number in range(len(cases))]
    schema = StructType(
        [StructField(name, from_arrow_type(kind, prefer_timestamp_ntz=True)) for name, kind in zip(names, types, strict=True)]
    )
    table = pa.table([pa.array(values, kind) for values, kind in zip(columns, types, strict=True)], names=names)
    stream = spark.createDataFrame(table, schema)
    assert stream.count() == ROWS + 1
    key = {name: f"c{number}" for number, name in enumerate(names)}
    for order in ("input", "any"):
        found = srj_enrich(stream, store.table("every_key"), key, columns=["id"], order=order).select("id")
        assert _rows(found) == sorted(([plain(row)] for row in [*range(ROWS), None]), key=repr)


def test_the_cast_in_a_refusal_is_one_that_spark_has(spark: SparkSession) -> None:
    """Of every type of a stream's column to every type of a key; where Spark has none, the message says so."""
    keys = [entry.key for entry in (*postgresql_table.ENTRIES, *mysql_table.ENTRIES) if entry.key is not None]
    streams = [*STREAM_TYPES, pa.time64("ns")]
    pairs = {(stream, key.arrow): key for key in keys for stream in streams if stream not in accepted(key)}
    kinds = {stream: from_arrow_type(stream, prefer_timestamp_ntz=True) for stream, _ in pairs}
    frames = {stream: spark.createDataFrame([], StructType([StructField("x", kind)])) for stream, kind in kinds.items()}
    missing = 0
    for (stream, _), key in pairs.items():
        with pytest.raises(RequestError) as caught:
            check_key_type(stream, KeyColumn("k", "k", "", key.arrow, key.cast, key.limits), "x")
        message = str(caught.value)
        cast = re.search(r"write (CAST\(x AS .*\))$", message)
        if cast is not None:
            assert frames[stream].selectExpr(f"{cast[1]} AS x").schema["x"].dataType is not None
            continue
        missing += 1
        target = re.search(r"; name another column, for Spark has no cast to (.*)$", message)
        assert target is not None
        with pytest.raises(AnalysisException, match="DATATYPE_MISMATCH"):
            frames[stream].selectExpr(f"CAST(x AS {target[1]})")
    assert 0 < missing < len(pairs)
