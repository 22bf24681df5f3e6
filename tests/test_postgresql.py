"""PostgreSQL: descriptions, lookups and errors, against a real server."""

from __future__ import annotations

import asyncio
import re
import secrets
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import asyncpg
import numpy as np
import pyarrow as pa
import pytest

from srj.databases import database
from srj.databases.base import Question
from srj.databases.conversion import convert_key
from srj.errors import ConnectionFailedError, LookupFailedError, LookupTimeoutError, RequestError, SrjError, TableError
from srj.table import DatabaseUrl

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from srj.databases.base import Answer, Connection, Description
    from tests.servers import Server

TIMEOUT = 20.0


@dataclass(frozen=True)
class Place:
    """A database of these tests' own."""

    server: Server
    name: str

    def sql(self, text: str) -> list[tuple[Any, ...]]:
        return self.server.execute(text, database=self.name)

    def question(self, table: str | tuple[str, ...], key: str | tuple[str, ...] = "id", **settings: Any) -> Question:
        url = settings.pop("url", None) or self.server.url_for(database=self.name)
        names = (table,) if isinstance(table, str) else table
        return Question(DatabaseUrl.parse(url), names, (key,) if isinstance(key, str) else key, **settings)

    def describe(self, *args: Any, **settings: Any) -> Description:
        return asyncio.run(database("postgresql").describe(self.question(*args, **settings), TIMEOUT))

    def lookup(self, keys: tuple[list[Any], ...] | list[Any], *args: Any, **settings: Any) -> list[tuple[Any, ...]]:
        """Describe, connect and look these keys up: (ordinal, value, …) a row."""

        async def run() -> Answer:
            async with self.connection(*args, **settings) as (connection, description):
                columns = keys if isinstance(keys, tuple) else (keys,)
                arrays = tuple(pa.array(values, part.type) for values, part in zip(columns, description.key, strict=True))
                return await connection.lookup(arrays, TIMEOUT)

        answer = asyncio.run(run())
        assert answer.rows.num_rows == len(answer.ordinals)
        assert np.all(np.diff(answer.ordinals) >= 0)
        return list(zip(answer.ordinals.tolist(), *(column.to_pylist() for column in answer.rows.columns), strict=True))

    @asynccontextmanager
    async def connection(self, *args: Any, **settings: Any) -> AsyncIterator[tuple[Connection, Description]]:
        question = self.question(*args, **settings)
        description = await database("postgresql").describe(question, TIMEOUT)
        connection = await database("postgresql").connect(question, description, TIMEOUT)
        try:
            yield connection, description
        finally:
            await connection.close()


@pytest.fixture(scope="module")
def place(postgres: Server) -> Iterator[Place]:
    name = f"test_{secrets.token_hex(4)}"
    postgres.execute(f"CREATE DATABASE {name} TEMPLATE template0 ENCODING 'UTF8' LC_COLLATE 'C' LC_CTYPE 'C'")
    place = Place(postgres, name)
    place.sql("CREATE SCHEMA extras")
    place.sql("CREATE EXTENSION citext SCHEMA extras")
    place.sql("CREATE TABLE products (id bigint PRIMARY KEY, name text, price float8, category int)")
    place.sql("INSERT INTO products SELECT i, 'product ' || i, i / 2.0, i % 100 FROM generate_series(1, 20000) i")
    place.sql("ANALYZE products")
    yield place
    postgres.execute(f"DROP DATABASE {name} WITH (FORCE)")


def refusal(call: Any, kind: type[SrjError] = TableError) -> str:
    """The message of the error that this raises, one sentence without a password."""
    with pytest.raises(kind) as caught:
        call()
    assert type(caught.value) is kind
    message = str(caught.value)
    assert message.startswith("expected ")
    assert "\n" not in message
    assert "; " in message
    return message


# --- lookups ---


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


# --- types ---

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
        ("money", "'1'", "$1.00"),
        ("time", "'24:00'", "24:00:00"),
        ("interval", "'1 day'", "1 day"),
        ("inet", "'::1'", "::1/128"),
        ("int[]", "'{1,2}'", "{1,2}"),
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


def test_a_key_outside_the_databases_encoding_is_known_as_impossible(place: Place) -> None:
    """Else the server would refuse its whole batch."""
    name = f"latin_{secrets.token_hex(4)}"
    place.sql(f"CREATE DATABASE {name} TEMPLATE template0 ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C'")
    latin = replace(place, name=name)
    latin.sql("CREATE TABLE names (k text PRIMARY KEY, v text); INSERT INTO names VALUES ('é', 'ü')")
    (key,) = latin.describe("names", "k").key
    keys, impossible = convert_key(pa.array(["é", "€", "e"]), key)
    assert (keys.to_pylist(), None if impossible is None else impossible.tolist()) == (["é", None, "e"], [False, True, False])
    assert latin.lookup(["e", "é"], "names", "k") == [(1, "ü")]
    with pytest.raises(LookupFailedError, match="encoding"):
        latin.lookup(["€"], "names", "k")
    place.sql(f"DROP DATABASE {name} WITH (FORCE)")


def test_bytes_that_are_no_text_are_an_error_that_the_connection_survives(place: Place) -> None:
    """A database without an encoding holds any bytes."""
    name = f"ascii_{secrets.token_hex(4)}"
    place.sql(f"CREATE DATABASE {name} TEMPLATE template0 ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C'")
    plain = replace(place, name=name)
    plain.sql(r"CREATE TABLE names (k int, v text); INSERT INTO names VALUES (1, E'\xff'), (2, 'a')")

    async def run() -> list[dict[str, Any]]:
        async with plain.connection("names", "k") as (connection, _):
            with pytest.raises(LookupFailedError, match="names"):
                await connection.lookup((pa.array([1], pa.int32()),), TIMEOUT)
            rows: list[dict[str, Any]] = (await connection.lookup((pa.array([2], pa.int32()),), TIMEOUT)).rows.to_pylist()
            return rows

    assert asyncio.run(run()) == [{"v": "a"}]
    place.sql(f"DROP DATABASE {name} WITH (FORCE)")


# --- descriptions ---


def test_a_description_tells_server_rows_widths_and_types(place: Place) -> None:
    """As the catalog has them."""
    description = place.describe("products")
    assert re.fullmatch(r"PostgreSQL \d+\.\d+", description.server)
    assert description.rows == 20000
    assert description.rows_per_key == 1.0
    assert description.index == "products_pkey"
    assert description.warnings == ()
    assert [(column.name, column.db_type) for column in description.columns] == [
        ("name", "text"),
        ("price", "double precision"),
        ("category", "integer"),
    ]
    assert 10 <= description.columns[0].width <= 20
    assert description.columns[1].width == 0


def test_a_missing_index_is_warned_of_with_its_cost(place: Place) -> None:
    """Large tables only; the rows of a key come from the statistics."""
    description = place.describe("products", "category")
    assert description.index is None
    assert not description.unique
    assert description.rows_per_key == pytest.approx(200, rel=0.05)
    (warning,) = description.warnings
    assert "20,000 rows" in warning
    place.sql("CREATE TABLE tiny (id int)")
    assert place.describe("tiny").warnings == ()


@pytest.mark.parametrize(
    ("index", "unique", "serves"),
    [
        ("CREATE UNIQUE INDEX {0}_i ON {0} (a)", True, True),
        ("CREATE UNIQUE INDEX {0}_i ON {0} (b, a)", True, True),
        ("CREATE UNIQUE INDEX {0}_i ON {0} (a, c)", False, True),
        ("CREATE UNIQUE INDEX {0}_i ON {0} (a) INCLUDE (c)", True, True),
        ("CREATE UNIQUE INDEX {0}_i ON {0} (a) WHERE c > 0", False, False),
        ("CREATE UNIQUE INDEX {0}_i ON {0} (a, lower(b))", False, True),
        ("CREATE UNIQUE INDEX {0}_i ON {0} (lower(b))", False, False),
        ('CREATE UNIQUE INDEX {0}_i ON {0} (b COLLATE "POSIX")', False, False),
        ("CREATE INDEX {0}_i ON {0} USING hash (b)", False, True),
        ("CREATE INDEX {0}_i ON {0} (c)", False, False),
        ("ALTER TABLE {0} ADD CONSTRAINT {0}_i UNIQUE (a, b) DEFERRABLE", True, True),
    ],
)
def test_uniqueness_and_index_are_those_of_the_key(place: Place, index: str, unique: bool, serves: bool) -> None:  # noqa: FBT001
    """Partial, expression and foreign-collation indexes promise nothing about a key (a, b)."""
    table = f"indexed_{secrets.token_hex(4)}"
    place.sql(f"CREATE TABLE {table} (a int, b text, c int)")
    place.sql(index.format(table))
    for where in (None, "c IS NULL"):
        description = place.describe(table, ("a", "b"), where=where)
        assert description.unique is unique
        assert description.index == (f"{table}_i" if serves else None)


def test_an_index_left_invalid_promises_nothing(place: Place) -> None:
    """A failed CREATE INDEX CONCURRENTLY stays behind, unused."""
    place.sql("CREATE TABLE broken (id int); INSERT INTO broken VALUES (1), (1)")
    with pytest.raises(Exception, match="could not create unique index"):
        place.sql("CREATE UNIQUE INDEX CONCURRENTLY broken_i ON broken (id)")
    description = place.describe("broken")
    assert (description.unique, description.index) == (False, None)


def test_text_operators_on_a_citext_column_do_not_make_it_unique(place: Place) -> None:
    """'a' and 'A' are two values for such an index, one for a lookup."""
    place.sql("CREATE TABLE folded (k extras.citext); CREATE UNIQUE INDEX ON folded (k text_ops)")
    assert not place.describe("folded", "k").unique


def test_every_kind_of_relation_can_be_asked(place: Place) -> None:
    """Views, materialised views, partitioned and foreign tables, and tables with children."""
    place.sql("CREATE VIEW cheap AS SELECT id, name FROM products WHERE price < 100")
    place.sql("CREATE MATERIALIZED VIEW stored AS SELECT * FROM cheap; CREATE UNIQUE INDEX ON stored (id)")
    place.sql("CREATE TABLE parts (id int PRIMARY KEY, v int) PARTITION BY RANGE (id)")
    place.sql("CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM (0) TO (10)")
    place.sql("CREATE TABLE parts_2 PARTITION OF parts FOR VALUES FROM (10) TO (20); INSERT INTO parts VALUES (3, 30), (13, 130)")
    place.sql("CREATE TABLE parent (id int PRIMARY KEY); CREATE TABLE child () INHERITS (parent)")
    place.sql("INSERT INTO parent VALUES (1); INSERT INTO child VALUES (1)")
    view = place.describe("cheap")
    assert (view.unique, view.index) == (False, "products_pkey")
    assert place.describe("stored").unique
    assert place.describe("parts").unique
    assert place.describe("parts").index is not None
    assert place.lookup([13, 4, 3], "parts") == [(0, 130), (2, 30)]
    assert not place.describe("parent").unique
    assert place.lookup([1], "parent") == [(0,), (0,)]


def test_a_foreign_table_is_warned_of(place: Place) -> None:
    """Its indexes are on another server."""
    place.sql("CREATE EXTENSION file_fdw; CREATE SERVER files FOREIGN DATA WRAPPER file_fdw")
    place.sql("CREATE FOREIGN TABLE elsewhere (id int, v text) SERVER files OPTIONS (program 'echo 5,five', format 'csv')")
    assert "foreign table" in place.describe("elsewhere").warnings[0]
    assert place.lookup([4, 5], "elsewhere") == [(1, "five")]


@pytest.mark.parametrize("name", ["Mixed", "has space", 'quo"te', "do.t", "select", "naïve😀", "100%", "{x}", "$1"])
def test_names_are_taken_exactly(place: Place, name: str) -> None:
    """Schema, table, key and column of any spelling."""
    quoted = '"' + name.replace('"', '""') + '"'
    place.sql(
        f'CREATE SCHEMA {quoted}; CREATE TABLE {quoted}.{quoted} ({quoted} int PRIMARY KEY, "v {name.replace(chr(34), "")}" int)'
    )
    place.sql(f"INSERT INTO {quoted}.{quoted} VALUES (1, 2)")
    assert place.lookup([1], (name, name), name) == [(0, 2)]
    assert place.lookup([1], (name, name), name, columns=(name,)) == [(0, 1)]


def test_an_unqualified_name_follows_the_search_path(place: Place) -> None:
    """As set by an option in the URL."""
    place.sql("CREATE SCHEMA other; CREATE TABLE other.hidden (id int); INSERT INTO other.hidden VALUES (1)")
    url = place.server.url_for(database=place.name)
    assert "other.hidden" in refusal(lambda: place.describe("hidden"))
    assert place.lookup([1], "hidden", url=f"{url}?search_path=other") == [(0,)]


def test_the_lookup_uses_the_index_for_a_large_table(place: Place) -> None:
    """The plan that the server takes by itself, for each form of the statement."""
    place.sql("CREATE TABLE large (a int, b varchar(20), v int); CREATE INDEX large_i ON large (b, a)")
    place.sql("INSERT INTO large SELECT i, 'k' || i, i FROM generate_series(1, 100000) i; ANALYZE large")
    key = ("a", "b")
    shapes: list[dict[str, Any]] = [{}, {"exists_only": True}, {"first": True, "order_by": "v"}, {"where": "v > 0"}]
    for settings in shapes:
        sql = place.describe("large", key, **settings).sql
        bound = sql.replace("$1", "ARRAY[1,2,3]").replace("$2", "ARRAY['k1','k2','x']")
        plan = "\n".join(line for (line,) in place.sql(f"EXPLAIN {bound}"))
        assert "large_i" in plan
        assert "Seq Scan" not in plan


# --- what can be wrong in a request ---


def test_a_missing_table_is_named_with_its_nearest(place: Place) -> None:
    """Also when only the case differs."""
    assert "products" in refusal(lambda: place.describe("Product"))
    assert "did you mean" in refusal(lambda: place.describe(("public", "Products")))
    assert "correct the name" in refusal(lambda: place.describe("zzzzzzzz"))


def test_a_missing_column_is_named_with_its_nearest(place: Place) -> None:
    """In the key, in the columns, in an expression, in the filter."""
    assert "did you mean name" in refusal(lambda: place.describe("products", columns=("Names",)))
    assert "did you mean price" in refusal(lambda: place.describe("products", "prices"))
    assert "it has id, name, price, category" in refusal(lambda: place.describe("products", "zzz"))
    assert "nope" in refusal(lambda: place.describe("products", columns=("nope + 1 AS x",)))
    assert "nope" in refusal(lambda: place.describe("products", where="nope > 1"))


def test_other_slips_in_the_sql_are_explained(place: Place) -> None:
    """No alias, an aggregate, a doubled name, a filter that is no condition, bad syntax."""
    assert "'price * 2 AS name'" in refusal(lambda: place.describe("products", columns=("price * 2",)))
    assert "AS name" in refusal(lambda: place.describe("products", columns=("price::text",)))
    assert "GROUP BY" in refusal(lambda: place.describe("products", columns=("count(*) AS n",)))
    assert "twice" in refusal(lambda: place.describe("products", columns=("name", "price AS name")))
    assert "boolean" in refusal(lambda: place.describe("products", where="price"))
    assert "syntax error" in refusal(lambda: place.describe("products", where="price >"))
    assert "syntax error" in refusal(lambda: place.describe("products", columns=("price + AS x",)))
    assert isinstance(place.describe("products", columns=("price AS name",)).columns[0].type, pa.DataType)


def test_logins_that_are_refused_say_why_without_the_password(place: Place) -> None:
    """Wrong password, unknown user, missing database, no permission."""
    user = f"reader_{secrets.token_hex(4)}"
    place.sql(f"CREATE ROLE {user} LOGIN PASSWORD 'right-one'")
    url = place.server.url_for(user=user, password="wrong-one", database=place.name)
    for wrong in (url, url.replace(user, "nobody")):
        with pytest.raises(LookupFailedError, match="login") as caught:
            place.describe("products", url=wrong)
        assert "wrong-one" not in repr(caught.value)
    message = refusal(lambda: place.describe("products", url=place.server.url_for(database="nowhere")), LookupFailedError)
    assert "nowhere" in message
    assert place.server.password not in message
    allowed = url.replace("wrong-one", "right-one")
    assert "GRANT SELECT" in refusal(lambda: place.describe("products", url=allowed))
    place.sql(f"CREATE SCHEMA closed; CREATE TABLE closed.t (id int); GRANT SELECT ON closed.t TO {user}")
    assert "GRANT USAGE" in refusal(lambda: place.describe(("closed", "t"), url=allowed))
    place.sql(f"GRANT SELECT (id, name) ON products TO {user}")
    assert place.lookup([1], "products", columns=("name",), url=allowed) == [(0, "product 1")]
    assert "GRANT SELECT" in refusal(lambda: place.describe("products", columns=("price",), url=allowed))
    place.sql(f"DROP OWNED BY {user}; DROP ROLE {user}")


def test_a_secret_of_the_environment_is_filled_in_where_the_connection_is_made(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The question keeps the reference."""
    monkeypatch.setenv("PG_TEST_PASSWORD", place.server.password)
    url = place.server.url_for(database=place.name, password="${PG_TEST_PASSWORD}")
    assert place.lookup([1], "products", columns=("name",), url=url) == [(0, "product 1")]


def test_options_of_the_url_reach_the_server(place: Place) -> None:
    """Settings, the application's name (srj by default), sslmode; what is no option is refused."""
    url = place.server.url_for(database=place.name)
    name = ("current_setting('application_name') AS n",)
    assert place.lookup([1], "products", columns=name) == [(0, "srj")]
    assert place.lookup([1], "products", columns=name, url=f"{url}?application_name=mine&sslmode=disable") == [(0, "mine")]
    assert "SSL" in refusal(lambda: place.describe("products", url=f"{url}?sslmode=require"), ConnectionFailedError)
    assert "sslmode" in refusal(lambda: place.describe("products", url=f"{url}?sslmode=maybe"), RequestError)
    assert "no_such_option" in refusal(lambda: place.describe("products", url=f"{url}?no_such_option=1"), LookupFailedError)
    assert "connect_timeout" in refusal(lambda: place.describe("products", url=f"{url}?connect_timeout=soon"), RequestError)


# --- what can go wrong on the way ---


def test_a_server_that_is_not_there_is_a_failed_connection(place: Place) -> None:
    """Nobody listens, the name is unknown."""
    question = place.question("products")
    for url in (replace(question.url, port=1), replace(question.url, host="no-such-host.invalid")):
        with pytest.raises(ConnectionFailedError) as caught:
            asyncio.run(database("postgresql").describe(replace(question, url=url), TIMEOUT))
        assert place.server.password not in str(caught.value)


def test_a_server_that_does_not_answer_is_given_up_in_time(place: Place) -> None:
    """It accepts the connection and says nothing."""

    async def run() -> float:
        async def say_nothing(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await asyncio.sleep(TIMEOUT)
            writer.close()

        server = await asyncio.start_server(say_nothing, "127.0.0.1", 0)
        question = place.question("products")
        silent = replace(question, url=replace(question.url, port=server.sockets[0].getsockname()[1]))
        started = time.monotonic()
        with pytest.raises(ConnectionFailedError, match=r"within 0\.3 s"):
            await database("postgresql").describe(silent, 0.3)
        server.close()
        return time.monotonic() - started

    assert asyncio.run(run()) < 5


def active(place: Place) -> int:
    """Statements of this library that run in the server now."""
    ((count,),) = place.sql(
        "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND application_name = 'srj' AND datname = current_database()"
    )
    return int(count)


async def wait_until_idle(place: Place) -> None:
    deadline = time.monotonic() + 5
    while active(place) and time.monotonic() < deadline:  # noqa: ASYNC110 - the server has no event to wait for
        await asyncio.sleep(0.02)
    assert active(place) == 0


SLOW = {"columns": ("name",), "where": "id = 1 AND pg_sleep(30) IS NOT NULL"}
ONE = (pa.array([1], pa.int64()),)


def test_a_late_answer_is_given_up_and_cancelled_in_the_server(place: Place) -> None:
    """And the connection serves again."""

    async def run() -> None:
        async with place.connection("products", **SLOW) as (connection, _):
            started = time.monotonic()
            with pytest.raises(LookupTimeoutError, match=r"products .* within 0\.3 s"):
                await connection.lookup(ONE, 0.3)
            assert time.monotonic() - started < 5
            await wait_until_idle(place)
            assert connection.is_usable()
            answer = await connection.lookup((pa.array([2], pa.int64()),), TIMEOUT)
            assert answer.rows.num_rows == 0

    asyncio.run(run())


def test_a_lookup_that_is_cancelled_here_ends_in_the_server_too(place: Place) -> None:
    """As when a stream stops."""

    async def run() -> None:
        async with place.connection("products", **SLOW) as (connection, _):
            task = asyncio.create_task(connection.lookup(ONE, TIMEOUT))
            while not active(place):  # noqa: ASYNC110 - the server has no event to wait for
                await asyncio.sleep(0.02)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await wait_until_idle(place)

    asyncio.run(run())


def test_the_server_gives_up_by_itself_where_the_client_is_gone(place: Place) -> None:
    """The server knows the time-out, and a longer one replaces it."""

    async def run() -> list[Any]:
        async with place.connection("products", columns=("current_setting('statement_timeout') AS t",)) as (connection, _):
            return [(await connection.lookup(ONE, timeout)).rows.to_pylist()[0]["t"] for timeout in (3, 2, 60)]

    assert asyncio.run(run()) == ["3s", "3s", "1min"]


def test_a_slow_description_is_given_up_in_time(place: Place) -> None:
    """A lock on the table stops the planner."""

    async def run() -> None:
        blocker = await asyncpg.connect(place.server.url_for(database=place.name))
        try:
            async with blocker.transaction():
                await blocker.execute("CREATE TABLE IF NOT EXISTS locked (id int)")
                await blocker.execute("LOCK TABLE products IN ACCESS EXCLUSIVE MODE")
                with pytest.raises(LookupTimeoutError):
                    await database("postgresql").describe(place.question("products"), 0.5)
        finally:
            await blocker.close()

    asyncio.run(run())


def test_a_connection_that_the_server_ends_is_a_failed_connection(place: Place) -> None:
    """While idle and during a lookup; it is then unusable, and closing it is quiet."""

    def kill() -> None:
        place.sql(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'srj' AND datname = current_database()"
        )

    async def run() -> None:
        async with place.connection("products") as (connection, _):
            kill()
            for _ in range(2):
                with pytest.raises(ConnectionFailedError, match="products"):
                    await connection.lookup(ONE, TIMEOUT)
            assert not connection.is_usable()
        async with place.connection("products", **SLOW) as (connection, _):
            task = asyncio.create_task(connection.lookup(ONE, TIMEOUT))
            while not active(place):  # noqa: ASYNC110 - the server has no event to wait for
                await asyncio.sleep(0.02)
            kill()
            with pytest.raises(ConnectionFailedError):
                await task
            assert not connection.is_usable()

    asyncio.run(run())


def test_too_many_connections_are_worth_another_try(place: Place) -> None:
    """The server has no room now."""
    user = f"limited_{secrets.token_hex(4)}"
    place.sql(f"CREATE ROLE {user} LOGIN PASSWORD 'p' CONNECTION LIMIT 0; GRANT SELECT ON products TO {user}")
    url = place.server.url_for(user=user, password="p", database=place.name)
    with pytest.raises(ConnectionFailedError, match="too many connections"):
        place.describe("products", url=url)
    place.sql(f"DROP OWNED BY {user}; DROP ROLE {user}")


def test_a_table_changed_after_its_description_fails_clearly_or_keeps_its_types(place: Place) -> None:
    """A dropped column is named; a widened one keeps the type described until a value no longer fits."""
    place.sql("CREATE TABLE changing (id int PRIMARY KEY, n int, v text); INSERT INTO changing VALUES (1, 5, 'a'), (2, 6, 'b')")

    async def run() -> None:
        async with place.connection("changing") as (connection, _):
            keys = (pa.array([1], pa.int32()),)
            place.sql("ALTER TABLE changing ADD w int; ALTER TABLE changing ALTER n TYPE bigint")
            assert (await connection.lookup(keys, TIMEOUT)).rows.to_pylist() == [{"n": 5, "v": "a"}]
            place.sql("UPDATE changing SET n = 5000000000 WHERE id = 1")
            with pytest.raises(LookupFailedError, match="integer out of range"):
                await connection.lookup(keys, TIMEOUT)
            place.sql("ALTER TABLE changing DROP v")
            with pytest.raises(LookupFailedError, match=r'changing .*column "v" does not exist'):
                await connection.lookup(keys, TIMEOUT)
            assert connection.is_usable()

    asyncio.run(run())


def test_no_transaction_stays_open_between_lookups(place: Place) -> None:
    """The connection is idle, not idle in transaction."""

    async def run() -> list[tuple[Any, ...]]:
        async with place.connection("products") as (connection, _):
            await connection.lookup(ONE, TIMEOUT)
            return place.sql(
                "SELECT DISTINCT state FROM pg_stat_activity WHERE application_name = 'srj' AND datname = current_database()"
            )

    assert asyncio.run(run()) == [("idle",)]


def test_an_unknown_dialect_is_refused() -> None:
    """With those that there are."""
    assert "postgresql" in refusal(lambda: database("oracle"), RequestError)
