"""Every type, joined by srj and by the database: the same rows for every how, cold and from the cache, in order and not."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import cachetools
import pyarrow as pa
import pytest

from srj.databases import mysql_table, postgresql_table
from srj.databases.lists import list_of
from srj.errors import LookupFailedError
from tests.ground import Ground, open_ground, spec_of
from tests.postgresql_place import refusal
from tests.type_cases import MARIADB_ONLY, MYSQL, MYSQL_ONLY, POSTGRES, POSTGRES_SETUP
from tests.type_refusals import MYSQL_REFUSED, MYSQL_REFUSED_ONLY, POSTGRES_REFUSED, POSTGRES_REFUSED_ARRAYS, Refused
from tests.type_walk import FORMS, HOWS, TypeCase, described, fetch, fill, literal, own_join, plain, stream_of, walk

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.servers import Server


_LONG_BYTES = "binary, varbinary, tinyblob, blob, mediumblob, longblob"
# The text that is walked by itself has a collation.
_ELEMENTS = {"text[]": 'text COLLATE "C"', "any_case[]": "extras.citext", "few": "int"}
_SHOWN = "SELECT format_type(atttypid, atttypmod) FROM pg_attribute WHERE attname = 'x' AND attrelid = 'odd'::regclass"


@pytest.fixture(scope="module")
def postgres_types(postgres: Server) -> Iterator[Ground]:
    """A database with types of its users'."""
    postgres.execute("CREATE DATABASE srj_types TEMPLATE template0 ENCODING 'UTF8' LC_COLLATE 'C' LC_CTYPE 'C'")
    ground = Ground(postgres, "srj_types")
    ground.sql(POSTGRES_SETUP)
    yield ground
    postgres.execute("DROP DATABASE srj_types WITH (FORCE)")


@pytest.fixture(scope="module")
def mysql_types(mariadb: Server) -> Iterator[Ground]:
    yield from open_ground(mariadb, "srj_types")


def test_every_entry_is_walked() -> None:
    """As a column and a key where it can be one, and refused where it can't."""
    for entries, cases, refused in (
        (postgresql_table.ENTRIES, POSTGRES, POSTGRES_REFUSED),
        (mysql_table.ENTRIES, (*MYSQL, *MARIADB_ONLY, *MYSQL_ONLY), (*MYSQL_REFUSED, *MYSQL_REFUSED_ONLY)),
    ):
        columns = {entry.title for entry in entries if entry.arrow is not None}
        assert {case.entry.title for case in cases if case.is_column} == columns
        assert {case.entry.title for case in cases if case.streams} == {entry.title for entry in entries if entry.key is not None}
        known = {entry.title for entry in entries if entry.arrow is None or entry.key is None}
        assert known - {"null"} == {one.entry.title for one in refused}


def test_every_key_meets_what_it_can_never_be() -> None:
    """Of each type of key that does not hold all that a stream may ask for; of dates, see those beyond the years of Python's."""
    whole = {"boolean", "numeric", "real", "double precision", "bytea", "date", "timestamp", "timestamp with time zone"}
    whole_here = {"enum", "set", "inet4", "inet6", _LONG_BYTES, "date", "datetime"}  # or the server alone can tell
    for cases, without in ((POSTGRES, whole), ((*MYSQL, *MARIADB_ONLY), whole_here)):
        met = {case.entry.title for case in cases if case.streams and case.impossible_among(range(len(case.keys)))}
        assert {case.entry.title for case in cases if case.streams} - met == without


def _name(case: TypeCase | Refused) -> str:
    return re.sub(r"\W+", "-", case.sql)


@pytest.mark.parametrize("case", POSTGRES, ids=_name)
def test_postgresql_answers_alike(postgres_types: Ground, case: TypeCase) -> None:
    """With its own equality, whatever the collation."""
    _check(postgres_types, case)


@pytest.mark.parametrize("case", MYSQL, ids=_name)
def test_mariadb_answers_alike(mysql_types: Ground, case: TypeCase) -> None:
    """With its own equality, whatever the collation."""
    _check(mysql_types, case)


def test_what_mariadb_or_mysql_has_alone(mysql_types: Ground) -> None:
    """Of the two, the one that runs here (`SRJ_TEST_MARIADB_URL` may name a MySQL)."""
    is_mariadb = "MariaDB" in mysql_types.sql("SELECT VERSION()")[0][0]
    for case in MARIADB_ONLY if is_mariadb else MYSQL_ONLY:
        _check(mysql_types, case)
    for refused in [] if is_mariadb else MYSQL_REFUSED_ONLY:
        _check_refused(mysql_types, refused)


def _cachetools() -> cachetools.LRUCache[Any, Any]:
    return cachetools.LRUCache(10_000)


def _check(ground: Ground, case: TypeCase) -> None:
    fill(ground, case)
    value = "walked.v" if ground.is_postgres or case.sql != "FLOAT" else "walked.v + 0e0"
    for how in HOWS if case.streams else HOWS[:2]:  # what adds no column has nothing to do with one that is no key
        adds = how in ("left", "inner")
        with described(ground, how, ["n", "v"] if adds else None) as spec:
            if adds:
                assert [column.type for column in spec.description.columns] == [pa.int32(), _arrow(case)]
            streams = case.streams or (pa.int32(),)
            for stream in streams if how == "left" else streams[:1]:
                positions, batches = stream_of(case.keys, stream)
                # How a stream's column is converted has nothing to do with the order in which rows leave.
                impossible = case.impossible_among(positions)
                found = walk(spec, how, positions, batches, FORMS if stream is streams[0] else FORMS[:1], impossible)
                assert found == own_join(ground, how, ["walked.n", value], positions, case.equal), stream
                assert len(found) > 1

    with described(ground, "left", ["n", "v"], cache=_cachetools) as spec:
        positions, batches = stream_of(case.keys, case.streams[0] if case.streams else pa.int32())
        found = walk(spec, "left", positions, batches, FORMS[:1])
        assert found == own_join(ground, "left", ["walked.n", value], positions, case.equal)


@pytest.mark.parametrize("refused", POSTGRES_REFUSED, ids=_name)
def test_postgresqls_other_types_are_refused_with_what_works(postgres_types: Ground, refused: Refused) -> None:
    """As a column and as a key, each with its own advice, which is taken literally."""
    ground = postgres_types
    ground.sql(f"DROP TABLE IF EXISTS odd CASCADE; CREATE TABLE odd (id int, x {refused.sql})")
    ground.sql(f"INSERT INTO odd VALUES (1, {refused.literal}), (2, NULL)")
    if refused.entry.arrow is None:
        _check_advice(ground)
    if refused.entry.key is None:
        message = refusal(lambda: spec_of(ground.url, "odd", "x"))
        ((shown,),) = ground.sql(_SHOWN)
        assert f"got odd.x of type {shown}; " in message
        kind = re.search(r"; make a view with this column cast to (\w+)(, and an index on that expression)?$", message)
        assert kind is not None
        ground.sql(f"CREATE VIEW odd_view AS SELECT id, x::{kind[1]} AS x FROM odd")
        if kind[2] is not None:
            ground.sql(f"CREATE INDEX odd_index ON odd ((x::{kind[1]}))")
            assert spec_of(ground.url, "odd_view", "x").description.index == "odd_index"
        _check_key(ground, "odd_view", "x")


@pytest.mark.parametrize("refused", POSTGRES_REFUSED_ARRAYS, ids=_name)
def test_arrays_of_refused_types_are_refused_with_what_works(postgres_types: Ground, refused: Refused) -> None:
    """Cast as their elements would be."""
    postgres_types.sql(f"DROP TABLE IF EXISTS odd CASCADE; CREATE TABLE odd (id int, x {refused.sql})")
    postgres_types.sql(f"INSERT INTO odd VALUES (1, {refused.literal}), (2, NULL)")
    _check_advice(postgres_types)


@pytest.mark.parametrize(
    ("kind", "value", "message"),
    [
        (
            "int[][]",
            "{{1,2},{3,4}}",
            'expected arrays of one dimension in column x, got one of several; write array_to_json("x")::text',
        ),
        ("date[]", "{2024-01-01,infinity}", "expected dates of the years 1 to 9999 in column x"),
        ("numeric(5,1)[]", "{1,NaN}", "expected numbers of type decimal(5,1) in column x"),
    ],
)
def test_an_array_that_no_list_of_spark_can_be_fails_its_lookup(
    postgres_types: Ground, kind: str, value: str, message: str
) -> None:
    """With the column's name; others of the table are joined."""
    postgres_types.sql(f"DROP TABLE IF EXISTS odd CASCADE; CREATE TABLE odd (id int, x {kind})")
    postgres_types.sql(f"INSERT INTO odd VALUES (1, '{value}'), (2, '{{}}'), (3, NULL)")
    with described(postgres_types, "left", None, "odd", "id") as spec:
        with pytest.raises(LookupFailedError, match=re.escape(message)):
            walk(spec, "left", [0], [pa.array([1], pa.int32())])
        assert walk(spec, "left", [0, 1, 2], [pa.array([2, 3, 4], pa.int32())]) == [(0, []), (1, None), (2, None)]
    json = "array_to_json(x)::text AS x"
    with described(postgres_types, "left", [json], "odd", "id") as spec:
        assert walk(spec, "left", [0], [pa.array([1], pa.int32())]) == [
            tuple(postgres_types.sql(f"SELECT 0, {json} FROM odd WHERE id = 1")[0])
        ]


@pytest.mark.parametrize("refused", MYSQL_REFUSED, ids=_name)
def test_mariadbs_other_types_are_refused_with_what_works(mysql_types: Ground, refused: Refused) -> None:
    """As a column and as a key, each with its own advice, which is taken literally."""
    _check_refused(mysql_types, refused)


def _check_refused(ground: Ground, refused: Refused) -> None:
    ground.sql(f"DROP TABLE IF EXISTS odd; CREATE TABLE odd (id int, x {refused.sql})")
    ground.sql(f"INSERT INTO odd VALUES (1, {refused.literal}), (2, NULL)")
    if refused.entry.arrow is None:
        _check_advice(ground)
    message = refusal(lambda: spec_of(ground.url, "odd", "x"))
    assert f"got 'x' of type {refused.sql.lower()}; {refused.entry.key_instead}" in message
    cast = (refused.entry.instead or "CAST({} AS CHAR)").format("x")
    if "view" in message:
        ground.sql(f"CREATE OR REPLACE VIEW odd_view AS SELECT id, {cast} AS y FROM odd")
        _check_key(ground, "odd_view", "y")
        return
    assert message.endswith("; add a generated column of another type, such as CHAR, and index it")
    ground.sql(f"ALTER TABLE odd ADD y CHAR(100) GENERATED ALWAYS AS ({cast}) STORED, ADD INDEX odd_index (y)")
    assert spec_of(ground.url, "odd", "y", columns=["id"]).description.index == "odd_index"
    _check_key(ground, "odd", "y")


def test_text_and_bytes_are_alike_whatever_mariadb_calls_them(mysql_types: Ground) -> None:
    """As columns and as keys; of the walk's types some have several names."""
    ground = mysql_types
    for entry, value in ((mysql_table.TEXT, "é😀"), (mysql_table.BYTES, b"\xff\0'")):
        names = [f"{name}(3)" if name in {"char", "varchar", "binary", "varbinary"} else name for name in entry.names]
        sql = literal(value, is_postgres=False)
        for name in names:
            ground.table("named", f"id int, x {name}{' CHARACTER SET utf8mb4' if entry is mysql_table.TEXT else ''}")
            ground.sql(f"INSERT INTO named VALUES (1, {sql}), (2, NULL)")
            assert ground.join("named", pa.array([1, 2], pa.int32())) == [(0, value), (1, None)], name
            assert ground.join("named", pa.array([value, None, value[:1]], entry.arrow), "x") == [(0, 1)], name


def test_a_null_without_a_type_is_refused_with_what_works(mysql_types: Ground) -> None:
    """Which gives NULL."""
    mysql_types.table("bare", "id int", "(1)")
    message = refusal(lambda: spec_of(mysql_types.url, "bare", "id", columns=["NULL AS x"]))
    advice = re.search(r" got 'x' of type null in .* write (['\"])(.*)\1 in columns$", message)
    assert advice is not None
    assert mysql_types.join("bare", pa.array([1], pa.int32()), columns=[advice[2]]) == [(0, None)]


def _check_advice(ground: Ground) -> None:
    """What the message says to write gives what it gives in the database."""
    message = refusal(lambda: spec_of(ground.url, "odd", "id"))
    assert "got x of type " in message or "got 'x' of type " in message
    advice = re.search(r" write (['\"])(.*)\1 in ", message)
    assert advice is not None
    with described(ground, "inner", [advice[2]], "odd", "id") as spec:
        found = walk(spec, "inner", [0, 1, 2], [pa.array([1, 2, 3], pa.int32())])
    own = fetch(ground, f"SELECT id - 1, {advice[2]} FROM odd ORDER BY id")
    assert found == [tuple(map(plain, row)) for row in own]
    assert found[0][1] is not None
    assert found[1][1] is None


def _check_key(ground: Ground, table: str, key: str) -> None:
    ((value,),) = fetch(ground, f"SELECT {key} FROM {table} WHERE id = 1")
    kind = spec_of(ground.url, table, key, columns=["id"]).description.key[0].type
    assert ground.join(table, pa.array([value, None], kind), key, columns=["id"]) == [(0, 1)]


def _arrow(case: TypeCase) -> pa.DataType | None:
    if not case.is_column:
        return pa.int32()
    if case.entry.of_elements:
        element = next(one for one in POSTGRES if one.sql == _ELEMENTS.get(case.sql, case.sql).removesuffix("[]"))
        return list_of(_arrow(element))
    if not case.entry.digits:
        return case.entry.arrow
    declared = re.findall(r"\d+", "9,2" if case.sql == "amount" else case.sql)
    return pa.decimal128(int(declared[0]), int((declared[1:] or [0])[0]))
