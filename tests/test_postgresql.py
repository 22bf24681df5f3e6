"""PostgreSQL: what lookups answer, against a real server."""

from __future__ import annotations

import asyncio
import random
import re
import secrets
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import asyncpg
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from srj.databases.postgresql_wire import joined_rows
from srj.errors import LookupFailedError
from tests.postgresql_place import TIMEOUT, Place, own_database, refusal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from srj.databases.base import Answer
    from tests.servers import Server


@pytest.fixture(scope="module")
def place(postgres: Server) -> Iterator[Place]:
    with own_database(postgres) as place:
        yield place


def test_lookup_returns_each_row_of_each_key_with_the_keys_position(place: Place) -> None:
    """Absent keys have no row, and rows come in the order of the keys."""
    assert place.lookup([7, -1, 3], "products", columns=("name", "price")) == [(0, "product 7", 3.5), (2, "product 3", 1.5)]


def test_a_key_with_several_rows_gets_all_of_them(place: Place) -> None:
    """Multiplicity is the table's."""
    place.sql("CREATE TABLE doubles (id int, n int); CREATE INDEX ON doubles(id)")
    place.sql("INSERT INTO doubles SELECT i % 3, i FROM generate_series(1, 9) i; INSERT INTO doubles VALUES (NULL, 0)")
    assert sorted(place.lookup([2, 5, 0], "doubles")) == [(0, 2), (0, 5), (0, 8), (2, 3), (2, 6), (2, 9)]


def test_a_large_batch_keeps_its_order_whatever_plan_the_server_takes(place: Place) -> None:
    """10,000 keys of a small table invite a hash join, whose rows come unordered."""
    keys = np.random.default_rng(5).permutation(20000)[:10000].tolist()
    rows = place.lookup(keys, "products", columns=("name",))
    assert rows == [(i, f"product {key}") for i, key in enumerate(keys) if key > 0]


def test_an_empty_batch_has_an_empty_answer(place: Place) -> None:
    """No keys, no rows, the right columns."""
    assert place.lookup([], "products") == []


def test_existence_alone_brings_no_columns(place: Place) -> None:
    """Semi and anti joins ask which keys have a row, once each."""
    place.sql("CREATE TABLE seen (id int); INSERT INTO seen VALUES (1), (1), (2)")
    description = place.describe("seen", exists_only=True)
    assert description.columns == ()
    assert place.lookup([2, 9, 1], "seen", exists_only=True) == [(0,), (2,)]
    assert place.lookup([2, 9, 1], "seen", columns=()) == [(0,), (2,), (2,)]


def test_first_keeps_one_row_a_key_in_the_order_asked(place: Place) -> None:
    """By order_by, else by the primary key; the answer is then unique."""
    place.sql("CREATE TABLE versions (id int, version int, note text, PRIMARY KEY (version, id))")
    place.sql("INSERT INTO versions VALUES (1, 2, 'b'), (1, 1, 'a'), (1, 3, 'c'), (2, 1, 'x')")
    assert place.describe("versions", first=True).unique
    assert place.lookup([1, 2, 3], "versions", first=True, columns=("note",)) == [(0, "a"), (1, "x")]
    latest = {"first": True, "order_by": "version DESC -- newest", "columns": ("note",)}
    assert place.lookup([1, 2, 3], "versions", **latest) == [(0, "c"), (1, "x")]
    assert place.lookup([1], "versions", first=True, columns=()) == [(0,)]


def test_first_without_any_order_is_refused(place: Place) -> None:
    """Neither order_by nor a primary key: no row is the first."""
    place.sql("CREATE TABLE unordered (id int)")
    assert "order_by" in refusal(lambda: place.describe("unordered", first=True))
    assert "nope" in refusal(lambda: place.describe("unordered", first=True, order_by="nope"))


def test_composite_keys_match_in_all_parts(place: Place) -> None:
    """Parts may have different types; NULL in the table matches nothing."""
    place.sql("CREATE TABLE pairs (a int, b varchar(9), v int, UNIQUE (b, a))")
    place.sql("INSERT INTO pairs VALUES (1, 'x', 10), (1, 'y', 11), (2, 'x', 12), (NULL, 'x', 13)")
    assert place.describe("pairs", ("a", "b")).unique
    assert place.lookup(([1, 2, 2], ["y", "x", "y"]), "pairs", ("a", "b")) == [(0, 11), (1, 12)]


def test_where_hides_rows_and_may_end_in_a_comment(place: Place) -> None:
    """The filter takes part in the lookup, also with names of the table inside."""
    where = "products.price > 2 OR name = 'product 1' -- the first one"
    assert place.lookup([1, 2, 5], "products", columns=("name",), where=where) == [(0, "product 1"), (2, "product 5")]
    assert place.lookup([1, 2, 5], "products", exists_only=True, where=where) == [(0,), (2,)]
    assert place.lookup([1, 2], "products", first=True, order_by="price", columns=("id AS k",), where=where) == [(0, 1)]


def test_expressions_are_computed_by_the_database(place: Place) -> None:
    """With the alias as written, a column's own type, and names that the statement uses itself."""
    expressions = ("upper(name) AS Upper", "price * 2 AS double", "CAST(price AS numeric(8,3)) AS exact", '(SELECT 1) AS "the one"')
    description = place.describe("products", columns=expressions)
    assert [column.name for column in description.columns] == ["Upper", "double", "exact", "the one"]
    assert [column.type for column in description.columns] == [pa.string(), pa.float64(), pa.decimal128(8, 3), pa.int32()]
    assert place.lookup([4], "products", columns=expressions) == [(0, "PRODUCT 4", 4.0, Decimal("2.000"), 1)]


def test_an_expression_that_multiplies_rows_is_not_unique(place: Place) -> None:
    """A set-returning function gives a key several rows whatever the index says."""
    expressions = ("generate_series(1, 2) AS n",)
    assert not place.describe("products", columns=expressions).unique
    assert place.lookup([4], "products", columns=expressions) == [(0, 1), (0, 2)]


def test_the_tables_names_may_be_those_of_the_statement(place: Place) -> None:
    """A table named like the statement's own parts, with columns named like them."""
    place.sql("CREATE TABLE srj_keys (ord int PRIMARY KEY, k0 int, c0 int, t int)")
    place.sql("INSERT INTO srj_keys VALUES (5, 1, 2, 3)")
    assert place.lookup([4, 5], "srj_keys", "ord", columns=("k0", "c0", "t", "ord + k0 AS s")) == [(1, 1, 2, 3, 6)]
    assert place.lookup([4, 5], "srj_keys", "ord", first=True, order_by="k0") == [(1, 1, 2, 3)]
    assert place.lookup([4, 5], "srj_keys", "ord", exists_only=True, where="srj_keys.k0 = 1") == [(1,)]


VALUES = [
    ("bool", pa.bool_(), "true", True),
    ("smallint", pa.int16(), "-32768", -32768),
    ("int", pa.int32(), "2147483647", 2147483647),
    ("bigint", pa.int64(), "-9223372036854775808", -(2**63)),
    ("real", pa.float32(), "'-Infinity'", float("-inf")),
    ("float8", pa.float64(), "1e-308", 1e-308),
    (
        "numeric(38,10)",
        pa.decimal128(38, 10),
        "-1234567890123456789012345678.0123456789",
        Decimal("-1234567890123456789012345678.0123456789"),
    ),
    ("numeric(5)", pa.decimal128(5, 0), "-99999", Decimal(-99999)),
    ("numeric(3,3)", pa.decimal128(3, 3), "0.001", Decimal("0.001")),
    ("text", pa.string(), "'a😀' || repeat('x', 1000000)", "a😀" + "x" * 1000000),
    ("varchar(5)", pa.string(), "''", ""),
    ("char(4)", pa.string(), "'ab'", "ab  "),
    ("name", pa.string(), "'n'", "n"),
    ("extras.citext", pa.string(), "'MiXed'", "MiXed"),
    ("mood", pa.string(), "'happy'", "happy"),
    ("short_text", pa.string(), "'dom'", "dom"),
    ("money_amount", pa.decimal128(9, 2), "1.5", Decimal("1.50")),
    ("uuid", pa.string(), "'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11'", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
    ("bytea", pa.binary(), r"'\x0001ff'", b"\x00\x01\xff"),
    ("date", pa.date32(), "'0001-01-01'", date(1, 1, 1)),
    ("date", pa.date32(), "'9999-12-31'", date(9999, 12, 31)),
    ("timestamp", pa.timestamp("us"), "'0001-01-01 00:00:00.000001'", datetime(1, 1, 1, 0, 0, 0, 1)),  # noqa: DTZ001
    ("timestamptz", pa.timestamp("us", "UTC"), "'9999-12-31 23:59:59.999999Z'", datetime(9999, 12, 31, 23, 59, 59, 999999, UTC)),
    ("json", pa.string(), """'{"a" : 1}'""", '{"a" : 1}'),
    ("jsonb", pa.string(), """'{"a":null}'""", '{"a": null}'),
    ("int GENERATED ALWAYS AS (id + 1) STORED", pa.int32(), "DEFAULT", 2),
]


@pytest.fixture(scope="module")
def types(place: Place) -> None:
    place.sql("CREATE TYPE mood AS ENUM ('sad', 'happy'); CREATE DOMAIN short_text AS varchar(3) CHECK (VALUE <> 'no')")
    place.sql("CREATE DOMAIN money_amount AS numeric(9,2)")


@pytest.mark.usefixtures("types")
def test_values_of_every_type_arrive_unchanged(place: Place) -> None:
    """Each at the edge of its range, and as NULL."""
    columns = ", ".join(f"v{i} {kind}" for i, (kind, *_) in enumerate(VALUES))
    literals = ", ".join(literal for _, _, literal, _ in VALUES)
    place.sql(f"CREATE TABLE every_type (id int, {columns})")
    place.sql(f"INSERT INTO every_type VALUES (1, {literals}); INSERT INTO every_type (id) VALUES (2)")
    assert [column.type for column in place.describe("every_type").columns] == [arrow for _, arrow, _, _ in VALUES]
    (full, empty) = place.lookup([1, 2], "every_type")
    assert full == (0, *(value for *_, value in VALUES))
    assert empty == (1, *[None] * (len(VALUES) - 1), 3)


@pytest.mark.parametrize(
    ("kind", "literal", "text"),
    [
        ("numeric", "1.5", "1.5000000000"),
        ("numeric(40,2)", "1.5", "1.5000000000"),
        ("numeric(5,-2)", "12345", "12300.0000000000"),
        ("money", "'1'", "1.0000000000"),
        ("time", "'24:00'", "24:00:00"),
        ("interval", "'1 day'", "1 day"),
        ("inet", "'::1'", "::1/128"),
        ("int4range", "'[1,2)'", "[1,2)"),
        ("bit(3)", "B'101'", "101"),
        ("point", "'(1,2)'", "(1,2)"),
        ("xml", "'<a/>'", "<a/>"),
    ],
)
def test_a_type_that_spark_lacks_is_refused_with_the_expression_that_works(
    place: Place, kind: str, literal: str, text: str
) -> None:
    """The advice in the message is taken literally, and works."""
    table = f"odd_{secrets.token_hex(4)}"
    place.sql(f'CREATE TABLE {table} (id int, "Odd ""V""" {kind}); INSERT INTO {table} VALUES (1, {literal})')
    message = refusal(lambda: place.describe(table))
    advice = re.search(r"write '(.*)' in its place", message)
    assert advice is not None
    ((_, value),) = place.lookup([1], table, columns=(advice[1],))
    assert str(value) == text


def test_an_expression_of_unknown_precision_is_refused_until_cast(place: Place) -> None:
    """PostgreSQL's numeric expressions have no precision of their own."""
    message = refusal(lambda: place.describe("products", columns=("price::numeric * 2 AS d",)))
    assert "'CAST(price::numeric * 2 AS numeric(38,10)) AS d'" in message
    assert place.lookup([3], "products", columns=("(price * 2)::numeric(6, 1) AS d",)) == [(0, Decimal("3.0"))]


@pytest.mark.parametrize(
    ("kind", "literal"),
    [("date", "'infinity'"), ("timestamp", "'-infinity'"), ("timestamptz", "'0044-03-15 BC'"), ("numeric(9,2)", "'NaN'")],
)
def test_a_value_beyond_sparks_types_is_an_error_and_never_another_value(place: Place, kind: str, literal: str) -> None:
    """Infinite and far dates, numeric NaN: the lookup fails, the connection goes on."""
    table = f"beyond_{secrets.token_hex(4)}"
    place.sql(f"CREATE TABLE {table} (id int, v {kind}); INSERT INTO {table} VALUES (1, {literal}), (2, NULL)")

    async def run() -> int:
        async with place.connection(table) as (connection, _):
            with pytest.raises(LookupFailedError, match="column v"):
                await connection.lookup((pa.array([1], pa.int32()),), TIMEOUT)
            answer = await connection.lookup((pa.array([2], pa.int32()),), TIMEOUT)
            return int(answer.rows.num_rows)

    assert asyncio.run(run()) == 1


KEYS = [
    ("bool", [True], [False]),
    ("smallint", [-32768], [5]),
    ("int", [2**31 - 1], [5]),
    ("bigint", [-(2**63)], [5]),
    ("real", [0.1], [0.2]),
    ("float8", [0.1], [0.2]),
    ("numeric(30,2)", [Decimal("1234567890123456789012345678.90")], [Decimal("1.00")]),
    ("numeric", [Decimal("1.5")], [Decimal("1.6")]),
    ("text", ["é😀"], ["e"]),
    ("varchar(3)", ["abc"], ["abcd", "ab"]),
    ("char(4)", ["ab"], ["abcde"]),
    ("name", ["n"], ["n" * 70]),
    ("extras.citext", ["ABC"], ["abcd"]),
    ("mood", ["happy"], ["angry", ""]),
    ("short_text", ["abc"], ["no", "abcd"]),
    ("uuid", ["a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"], ["a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a12"]),
    ("bytea", [b"\x00\xff"], [b"\x00"]),
    ("date", [date(1, 1, 1)], [date(9999, 12, 31)]),
    ("timestamp", [datetime(9999, 12, 31, 23, 59, 59, 999999)], [datetime(1, 1, 1)]),  # noqa: DTZ001
    ("timestamptz", [datetime(1, 1, 1, tzinfo=UTC)], [datetime(2020, 1, 1, tzinfo=UTC)]),
]


@pytest.mark.usefixtures("types")
@pytest.mark.parametrize(("kind", "present", "absent"), KEYS, ids=[kind for kind, *_ in KEYS])
def test_keys_of_every_type_find_their_row_through_the_index(
    place: Place, kind: str, present: list[Any], absent: list[Any]
) -> None:
    """Keys that no value of the column can be (too long, no label) are absent, and nobody else fails for them."""
    table = f"keyed_{secrets.token_hex(4)}"
    place.sql(f"CREATE TABLE {table} (k {kind} UNIQUE, v int)")
    literal = f"'\\x{present[0].hex()}'" if isinstance(present[0], bytes) else f"'{present[0]}'"
    place.sql(f"INSERT INTO {table} VALUES ({literal}, 1), (NULL, 2)")
    description = place.describe(table, "k")
    assert description.unique
    assert description.index == f"{table}_k_key"
    assert place.lookup([*absent, *present], table, "k") == [(len(absent), 1)]
    assert place.lookup([*absent, *present], table, "k", exists_only=True) == [(len(absent),)]


def test_equality_is_the_databases(place: Place) -> None:
    """Case-insensitive columns, padding and nondeterministic collations match as in the database; two keys may match one row."""
    place.sql("CREATE COLLATION ci (provider = icu, locale = 'und-u-ks-level2', deterministic = false)")
    place.sql('CREATE TABLE equal (a extras.citext, b char(5), c text COLLATE ci, d text, e "char")')
    place.sql("INSERT INTO equal VALUES ('Anna', 'xy', 'Straße', 'abc  ')")
    assert place.lookup(["ANNA", "anna", "anna "], "equal", "a", columns=("d",)) == [(0, "abc  "), (1, "abc  ")]
    assert place.lookup(["xy", "xy     ", "XY"], "equal", "b", columns=("d",)) == [(0, "abc  "), (1, "abc  ")]
    assert place.lookup(["STRASSE", "straße", "strase"], "equal", "c", columns=("d",)) == [(1, "abc  ")]
    assert place.lookup(["abc", "abc  "], "equal", "d", exists_only=True) == [(1,)]


@pytest.mark.parametrize("kind", ["time", "inet", "int[]", "jsonb", "interval"])
def test_a_key_of_a_type_that_spark_lacks_is_refused(place: Place, kind: str) -> None:
    """With the column, its type and a way out."""
    table = f"bad_key_{secrets.token_hex(4)}"
    place.sql(f"CREATE TABLE {table} (k {kind}, v int)")
    message = refusal(lambda: place.describe(table, "k"))
    assert f"{table}.k" in message
    assert "view" in message


def test_the_order_of_first_rows_is_that_of_the_tables_columns_whatever_their_names(place: Place) -> None:
    """``c0`` is the table's column, not the lookup's first."""
    place.sql("CREATE TABLE ordered (id int PRIMARY KEY, k int, c0 int, a int)")
    place.sql("INSERT INTO ordered VALUES (1, 7, 1, 9), (2, 7, 2, 8)")
    assert place.lookup([7], "ordered", "k", columns=("a",), first=True, order_by="c0") == [(0, 9)]


@settings(deadline=None, max_examples=60)
@given(
    st.lists(
        st.tuples(
            st.one_of(
                st.text(st.sampled_from(" \"\\{},\n\tN'ab\x01é😀"), max_size=6), st.sampled_from(["NULL", "null", "{}", '""'])
            ),
            st.integers(-(2**63), 2**63 - 1) | st.integers(-2, 2),
            st.none() | st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=5),
            st.none() | st.binary(max_size=5),
            st.none() | st.floats(),
        ),
        max_size=12,
    ),
    st.integers(0, 2**32 - 1),
)
def test_any_text_as_key_and_any_value_comes_back_as_it_is(
    place: Place, rows: list[tuple[str, int, str | None, bytes | None, float | None]], seed: int
) -> None:
    """Quotes, backslashes, brackets, the word NULL, nothing at all: keys travel as one literal, values side by side."""
    place.sql("DROP TABLE IF EXISTS odd; CREATE TABLE odd (k text, n bigint, t text, b bytea, f float8)")

    async def load() -> None:
        connection = await asyncpg.connect(place.server.url_for(database=place.name))
        try:
            await connection.copy_records_to_table("odd", records=rows)
        finally:
            await connection.close()

    asyncio.run(load())
    keys = sorted({(k, n) for k, n, *_ in rows} | {("absent", 0), ("", 1), ("NULL", 2)})
    random.Random(seed).shuffle(keys)
    found = place.lookup(([k for k, _ in keys], [n for _, n in keys]), "odd", ("k", "n"))
    assert sorted(map(repr, found)) == sorted(repr((keys.index((k, n)), *values)) for k, n, *values in rows)


def test_columns_stay_side_by_side_when_the_server_works_in_parallel(place: Place) -> None:
    """Each worker strings its own rows together, and all columns of them."""
    place.sql("CREATE TABLE spread (id int, a text, b int, c float8)")
    place.sql("INSERT INTO spread SELECT i % 5000, 'a' || i, i, CASE WHEN i % 3 > 0 THEN i END FROM generate_series(1, 200000) i")
    place.sql("ANALYZE spread")
    for setting in ("max_parallel_workers_per_gather = 2", "parallel_setup_cost = 0", "parallel_tuple_cost = 0"):
        place.sql(f"ALTER DATABASE {place.name} SET {setting}")
    place.sql(f"ALTER DATABASE {place.name} SET min_parallel_table_scan_size = 0")
    sql = place.describe("spread").sql
    keys = "{" + ",".join(map(str, range(2001, 5000))) + "}"
    plan = place.sql("EXPLAIN " + re.sub(r"\$1\b", f"'{keys}'", sql))
    assert any("Gather" in line for (line,) in plan), plan
    found = place.lookup(list(range(4999, 2000, -1)), "spread")
    assert len(found) == 2999 * 40
    for ordinal, a, b, c in found:
        assert (b % 5000, a, c) == (4999 - ordinal, f"a{b}", float(b) if b % 3 else None)


def test_a_connection_holds_no_lock_between_lookups(place: Place) -> None:
    """Neither when it was just made: others may alter the table."""
    place.sql("CREATE TABLE free (id int PRIMARY KEY, v int)")
    held = "SELECT count(*) FROM pg_locks WHERE relation = 'free'::regclass"

    async def run() -> None:
        async with place.connection("free") as (connection, _):
            assert place.sql(held) == [(0,)]
            await connection.lookup((pa.array([1], pa.int32()),), TIMEOUT)
            assert place.sql(held) == [(0,)]

    asyncio.run(run())


@pytest.mark.parametrize("encoding", ["LATIN1", "WIN1252", "UTF8"])
def test_an_encoding_that_the_url_asks_for_changes_no_text(place: Place, encoding: str) -> None:
    """Answers are read as UTF-8, so that is what the server is asked for."""
    place.sql("DROP TABLE IF EXISTS accents; CREATE TABLE accents (id text PRIMARY KEY, v text)")
    place.sql("INSERT INTO accents VALUES ('é', 'Ã©'), ('e', 'é')")
    url = f"{place.server.url_for(database=place.name)}?client_encoding={encoding}"
    assert place.lookup(["é", "e"], "accents", url=url) == [(0, "Ã©"), (1, "é")]


def test_a_table_with_as_many_columns_as_there_can_be_is_joined(place: Place) -> None:
    """PostgreSQL has at most 1,600, and a statement returns at most 1,664."""
    place.sql(f"CREATE TABLE wide (id int, {', '.join(f'c{number} bool' for number in range(1599))}); INSERT INTO wide VALUES (7)")
    place.sql("UPDATE wide SET c0 = true, c1598 = false")
    assert place.lookup([7], "wide") == [(0, True, *[None] * 1597, False)]


def test_a_batch_whose_rows_fill_more_than_the_server_sends_at_once_is_asked_in_halves(place: Place) -> None:
    """PostgreSQL sends a batch's answer as one row of at most 1 GB; within four bytes of that it says so in other words."""
    place.sql("CREATE TABLE large (id int PRIMARY KEY); INSERT INTO large VALUES (1), (2), (3)")
    length = 2**29 - 2

    async def run() -> Answer:
        filled = f"repeat(repeat(chr(64 + id), 1022), {length} / 1022) || repeat(chr(64 + id), 2)"
        text = f"CASE id WHEN 2 THEN '' ELSE {filled} END AS text"
        async with place.connection("large", "id", columns=(text,)) as (connection, _):
            return await connection.lookup((pa.array([1, 2, 4, 3], pa.int32()),), 60.0)

    assert length % 1022 == 2
    answer = asyncio.run(run())
    assert answer.ordinals.tolist() == [0, 1, 3]
    (texts,) = answer.rows.columns
    assert pc.binary_length(texts).to_pylist() == [length, 0, length]
    assert pc.utf8_slice_codeunits(texts, 0, 6).to_pylist() == ["AAAAAA", "", "CCCCCC"]


def test_a_key_with_more_than_the_server_can_send_is_named(place: Place) -> None:
    """With what to do."""
    place.sql("CREATE TABLE huge (id int PRIMARY KEY); INSERT INTO huge VALUES (6), (7), (8)")
    with pytest.raises(
        LookupFailedError, match=r"expected rows of at most 1 GB for each key of table huge, got more for 7 .*; leave"
    ):
        place.lookup([8, 7, 6], "huge", "id", columns=("repeat('x', CASE id WHEN 7 THEN 1073741824 ELSE 1 END) AS text",))


def test_more_text_than_a_column_can_hold_is_refused_with_the_advice_to_use_smaller_batches() -> None:
    """Arrow's text ends at 2 GiB."""
    rows = pa.record_batch({"story": ["x" * 2**30]})
    with pytest.raises(LookupFailedError, match=r"expected at most 2 GiB .* of table stories .* smaller batch"):
        joined_rows([rows, rows], "stories")
