"""MySQL's types against a real MariaDB: every value arrives exactly, every key is compared as the column compares."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from srj.databases.mysql_types import decode
from srj.errors import LookupFailedError, TableError
from tests.mysql_shop import open_shop

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.mysql_shop import Shop
    from tests.servers import Server

naive = datetime.fromisoformat  # DATETIME has no zone


@pytest.fixture(scope="module")
def shop(mariadb: Server) -> Iterator[Shop]:
    yield from open_shop(mariadb, "srj_mysql_types")


VALUES: list[tuple[str, pa.DataType, list[tuple[str, Any]]]] = [
    ("TINYINT(1)", pa.int8(), [("-128", -128), ("127", 127)]),
    ("BOOL", pa.int8(), [("TRUE", 1)]),
    ("TINYINT UNSIGNED", pa.int16(), [("255", 255)]),
    ("SMALLINT", pa.int16(), [("-32768", -32768)]),
    ("SMALLINT UNSIGNED", pa.int32(), [("65535", 65535)]),
    ("MEDIUMINT", pa.int32(), [("-8388608", -8388608)]),
    ("MEDIUMINT UNSIGNED", pa.int32(), [("16777215", 16777215)]),
    ("INT", pa.int32(), [("-2147483648", -(2**31)), ("2147483647", 2**31 - 1)]),
    ("INT(8) UNSIGNED ZEROFILL", pa.int64(), [("7", 7), ("4294967295", 2**32 - 1)]),
    ("BIGINT", pa.int64(), [("-9223372036854775808", -(2**63)), ("9223372036854775807", 2**63 - 1)]),
    ("BIGINT UNSIGNED", pa.decimal128(20, 0), [("18446744073709551615", Decimal(2**64 - 1))]),
    ("YEAR", pa.int16(), [("1901", 1901), ("2155", 2155)]),
    ("FLOAT", pa.float32(), [("16777217", 16777216.0), ("0.1", float(np.float32(0.1))), ("3.4e38", float(np.float32(3.4e38)))]),
    ("DOUBLE", pa.float64(), [("0.1", 0.1), ("1.7976931348623157e308", 1.7976931348623157e308), ("5e-324", 5e-324)]),
    ("DECIMAL(10,2)", pa.decimal128(10, 2), [("-99999999.99", Decimal("-99999999.99")), ("0", Decimal("0.00"))]),
    ("DECIMAL(38,38)", pa.decimal128(38, 38), [("0." + "9" * 38, Decimal("0." + "9" * 38))]),
    ("DECIMAL(38,0) UNSIGNED", pa.decimal128(38, 0), [("9" * 38, Decimal("9" * 38))]),
    ("CHAR(5)", pa.string(), [("'ab '", "ab"), ("''", "")]),
    ("VARCHAR(20)", pa.string(), [("'ab '", "ab "), ("'😀é\\0x'", "😀é\0x")]),
    ("VARCHAR(20) CHARACTER SET latin1", pa.string(), [("'é€'", "é€")]),
    ("VARCHAR(20) CHARACTER SET utf16", pa.string(), [("'é😀'", "é😀")]),
    ("LONGTEXT", pa.string(), [("REPEAT('é', 1000000)", "é" * 1_000_000)]),
    ("ENUM('small','large')", pa.string(), [("'large'", "large")]),
    ("SET('red','blue')", pa.string(), [("'red,blue'", "red,blue"), ("''", "")]),
    ("JSON", pa.string(), [("""'{"a": [1, "é"]}'""", '{"a": [1, "é"]}')]),
    ("UUID", pa.string(), [("'12345678-1234-5678-1234-56789ABCDEF0'", "12345678-1234-5678-1234-56789abcdef0")]),
    ("INET6", pa.string(), [("'2001:DB8::1'", "2001:db8::1")]),
    ("BINARY(3)", pa.binary(), [("'a'", b"a\0\0")]),
    ("VARBINARY(20)", pa.binary(), [("x'00FF2725'", b"\0\xff'%"), ("''", b"")]),
    ("BLOB", pa.binary(), [("x'FFFE'", b"\xff\xfe")]),
    ("DATE", pa.date32(), [("'0001-01-01'", date(1, 1, 1)), ("'9999-12-31'", date(9999, 12, 31))]),
    ("DATETIME", pa.timestamp("us"), [("'2024-02-29 23:59:59'", naive("2024-02-29 23:59:59"))]),
    ("DATETIME(6)", pa.timestamp("us"), [("'9999-12-31 23:59:59.999999'", naive("9999-12-31 23:59:59.999999"))]),
    (
        "TIMESTAMP(3) NULL",
        pa.timestamp("us", "UTC"),
        [("'2024-02-29 12:00:00.125'", datetime(2024, 2, 29, 12, 0, 0, 125000, tzinfo=UTC))],
    ),
]


@pytest.mark.parametrize(("sql_type", "arrow", "values"), VALUES, ids=[sql_type for sql_type, _, _ in VALUES])
def test_values_arrive_exactly(shop: Shop, sql_type: str, arrow: pa.DataType, values: list[tuple[str, Any]]) -> None:
    """Each type arrives as its Arrow type, its edge values and NULL included."""
    literals = [*(literal for literal, _ in values), "NULL"]
    rows = ", ".join(f"({position}, {literal})" for position, literal in enumerate(literals))
    shop.run(
        f"CREATE OR REPLACE TABLE types (k INT PRIMARY KEY, v {sql_type}); SET time_zone = '+00:00'; "
        f"INSERT INTO types VALUES {rows}"
    )
    description, answer = shop.ask("types", {"k": list(range(len(literals)))})
    assert description.columns[0].type == arrow
    assert answer.rows.schema.field(0).type == arrow
    assert answer.rows.column(0).to_pylist() == [*(value for _, value in values), None]


def test_instants_do_not_depend_on_the_servers_zone(shop: Shop) -> None:
    """A TIMESTAMP is the same instant whatever zone the session that wrote it was in."""
    shop.run(
        "CREATE OR REPLACE TABLE instants (k INT PRIMARY KEY, v TIMESTAMP NULL); SET time_zone = '+05:00'; "
        "INSERT INTO instants VALUES (1, '2024-01-01 05:00:00')"
    )
    assert shop.matches("instants", [1]) == [(0, datetime(2024, 1, 1, tzinfo=UTC))]


def test_zero_dates_arrive_as_null(shop: Shop) -> None:
    """Dates that are in no calendar are NULL, beside good ones, and text on request."""
    shop.run(
        "SET sql_mode = ''; CREATE OR REPLACE TABLE zeros (k INT PRIMARY KEY, d DATE, t DATETIME, s TIMESTAMP NULL); "
        "INSERT INTO zeros "
        "VALUES (0, '0000-00-00', '0000-00-00', '0000-00-00'), (1, '2024-05-00', '2024-00-01 10:00:00', NULL), "
        "(2, '2024-05-10', '2024-10-01 10:00:00', '2024-10-01 10:00:00')"
    )
    _, answer = shop.ask("zeros", {"k": [0, 1, 2]}, columns=("d", "t", "s", "CAST(d AS CHAR) AS text"))
    assert answer.rows.to_pydict() == {
        "d": [None, None, date(2024, 5, 10)],
        "t": [None, None, naive("2024-10-01 10:00:00")],
        "s": [None, None, datetime(2024, 10, 1, 10, tzinfo=UTC)],
        "text": ["0000-00-00", "2024-05-00", "2024-05-10"],
    }


@pytest.mark.parametrize(
    ("sql_type", "literal", "value"),
    [
        ("TIME(3)", "'-838:59:59.000'", "-838:59:59.000"),
        ("BIT(8)", "b'101'", Decimal(5)),
        ("POINT", "POINT(1, 2)", "POINT(1 2)"),
        ("DECIMAL(65,2)", "1" * 63 + ".25", "1" * 63 + ".25"),
    ],
)
def test_unreadable_types_are_refused_with_an_expression_that_works(shop: Shop, sql_type: str, literal: str, value: Any) -> None:
    """The expression in the message does what it promises."""
    shop.run(f"CREATE OR REPLACE TABLE odd (k INT PRIMARY KEY, v {sql_type}); INSERT INTO odd VALUES (1, {literal})")
    with pytest.raises(
        TableError, match=r"types that srj can read, got 'v' of type .*; leave it out or write '(.*)' in columns"
    ) as caught:
        shop.describe("odd", "k")
    advice = str(caught.value).partition(" or write '")[2].partition("' in columns")[0]
    assert shop.matches("odd", [1], column=advice) == [(0, value)]


KEYS: list[tuple[str, str, Any, list[Any]]] = [
    ("TINYINT", "-5", -5, [5]),
    ("SMALLINT UNSIGNED", "65535", 65535, [-1, 65534]),
    ("INT", "2147483647", 2147483647, [2147483646]),
    ("INT UNSIGNED", "4294967295", 4294967295, [-1, 2**40, 0]),
    ("BIGINT", "9007199254740993", 9007199254740993, [9007199254740992]),
    ("BIGINT UNSIGNED", "18446744073709551615", 2**64 - 1, [2**64 - 2, 2**63]),
    ("YEAR", "1999", 1999, [99, 30000, -1]),
    ("FLOAT", "0.1", 0.1, [0.2, float("nan"), float("inf")]),
    ("DOUBLE", "0.1", 0.1, [0.1 + 1e-17 * 8, float("nan"), float("-inf")]),
    (
        "DECIMAL(30,4)",
        "12345678901234567890123456.0001",
        Decimal("12345678901234567890123456.0001"),
        [Decimal(12345678901234567890123456)],
    ),
    ("VARCHAR(20)", "'it''s \\\\ \\\"%s\\\" 😀'", 'it\'s \\ "%s" 😀', ["it's", ""]),
    ("VARCHAR(20) CHARACTER SET latin1", "'caf?'", "caf?", ["caf😀", "cafй"]),
    ("VARCHAR(20) CHARACTER SET utf8mb3", "'caf?'", "caf?", ["caf😀", "cafй"]),
    ("VARCHAR(20) COLLATE utf8mb4_bin", "'Ab'", "Ab", ["ab", "AB", "Ab\0"]),
    ("VARCHAR(20) CHARACTER SET utf16", "'é😀'", "é😀", ["é"]),
    ("CHAR(10) CHARACTER SET ascii", "'abc'", "abc", ["äbc", "?bc"]),
    ("ENUM('small','large')", "'large'", "large", ["2", ""]),
    ("DATE", "'2024-02-29'", date(2024, 2, 29), [date(1, 1, 1), date(9999, 12, 31)]),
    (
        "DATETIME",
        "'2024-02-29 10:00:00'",
        naive("2024-02-29 10:00:00"),
        [naive("2024-02-29 10:00:00.000001"), naive("9999-12-31 00:00:00")],
    ),
    ("DATETIME(6)", "'2024-02-29 10:00:00.000001'", naive("2024-02-29 10:00:00.000001"), [naive("2024-02-29 10:00:00")]),
    (
        "TIMESTAMP(6) NULL",
        "'2024-02-29 10:00:00'",
        datetime(2024, 2, 29, 10, tzinfo=UTC),
        [datetime(9999, 12, 31, tzinfo=UTC), datetime(1960, 1, 1, tzinfo=UTC)],
    ),
    ("VARBINARY(20)", "x'00FF27'", b"\0\xff'", [b"\0\xff", b""]),
    ("BINARY(3)", "'a'", b"a\0\0", [b"a", b"a\0\0\0"]),
    ("UUID", "'12345678-1234-5678-1234-56789abcdef0'", "12345678-1234-5678-1234-56789abcdef0", ["nonsense", ""]),
    ("INET6", "'2001:db8::1'", "2001:DB8::1", ["nonsense", "2001:db8::2"]),
]


@pytest.mark.parametrize(("sql_type", "literal", "present", "absent"), KEYS, ids=[sql_type for sql_type, *_ in KEYS])
def test_keys_match_exactly_through_the_index(shop: Shop, sql_type: str, literal: str, present: Any, absent: list[Any]) -> None:
    """A key of each type finds its row and no other one, and EXPLAIN says that the index serves."""
    shop.run(
        f"CREATE OR REPLACE TABLE keyed (k {sql_type}, v INT, KEY by_k (k)); SET time_zone = '+00:00'; "
        f"INSERT INTO keyed VALUES ({literal}, 1), (NULL, 2)"
    )
    assert shop.matches("keyed", [present, *absent, present]) == [(0, 1), (1 + len(absent), 1)]
    assert shop.describe("keyed", "k").index == "by_k"
    shop.run("INSERT INTO keyed SELECT NULL, seq FROM seq_1_to_500; ANALYZE TABLE keyed")
    [row] = shop.plan("keyed", '[["1"],["2"]]', "k")
    assert (row[3], row[5]) == ("ref", "by_k")


def test_zero_dates_are_not_found_by_keys_out_of_range(shop: Shop) -> None:
    """A key that the server would read as a zero date doesn't find one."""
    shop.run(
        "SET sql_mode = ''; CREATE OR REPLACE TABLE zero_keys (k DATETIME, v INT); INSERT INTO zero_keys VALUES ('0000-00-00', 1)"
    )
    description = shop.describe("zero_keys", "k")
    limits = description.key[0].limits
    assert limits.lowest is not None
    assert limits.highest is not None
    keys = pa.array([limits.lowest, limits.highest, 0], pa.int64()).cast(pa.timestamp("us"))
    assert shop.ask("zero_keys", {"k": keys})[1].ordinals.tolist() == []


@pytest.mark.parametrize(
    ("collation", "stored", "found", "missed"),
    [
        ("utf8mb4_general_ci", "Müller", ["müller", "MULLER", "Müller  "], ["Mueller", " Müller"]),
        ("utf8mb4_unicode_520_ci", "straße", ["STRASSE", "straße "], ["strase"]),
        ("utf8mb4_bin", "Müller", ["Müller", "Müller   "], ["müller", "Muller"]),
        ("utf8mb4_nopad_bin", "Müller", ["Müller"], ["Müller ", "müller"]),
        ("latin1_swedish_ci", "Müller", ["MÜLLER", "müller "], ["Möller", "M?ller", "Mйller"]),
        ("utf8mb3_general_ci", "Müller", ["muller", "Müller "], ["Müller😀", "Müller?"]),
        ("latin1_general_cs", "Müller", ["Müller"], ["müller"]),
    ],
)
def test_the_databases_collation_decides_equality(
    shop: Shop, collation: str, stored: str, found: list[str], missed: list[str]
) -> None:
    """Case, accents and trailing spaces count as the column's collation has it, for VARCHAR and CHAR, through the index."""
    charset = collation.split("_", maxsplit=1)[0]
    for kind in ("VARCHAR(30)", "CHAR(30)"):
        shop.run(
            f"CREATE OR REPLACE TABLE names (k {kind} CHARACTER SET {charset} COLLATE {collation} PRIMARY KEY, v INT) ; "
            f"INSERT INTO names SELECT CONCAT('x', seq), seq FROM seq_1_to_2000; INSERT INTO names VALUES ('{stored}', -1); "
            "ANALYZE TABLE names"
        )
        if "nopad" in collation and kind.startswith("CHAR"):
            continue  # CHAR drops the spaces when it stores them; the keys' spaces still count
        keys = [*found, *missed]
        assert shop.matches("names", keys) == [(position, -1) for position in range(len(found))], kind
        [row] = shop.plan("names", '[["a"],["b"]]', "k")
        assert (row[3], row[5]) == ("eq_ref", "PRIMARY")


def test_keys_longer_than_the_column_are_not_cut(shop: Shop) -> None:
    """A long key whose beginning is a key of the table finds nothing; one of a megabyte is no trouble."""
    shop.run("CREATE OR REPLACE TABLE short (k VARCHAR(4) PRIMARY KEY, v INT); INSERT INTO short VALUES ('abcd', 1), ('abc', 2)")
    assert shop.matches("short", ["abcde", "abcd", "abcd" * 300_000, "abc      ", "abc      d"]) == [(1, 1), (3, 2)]
    shop.run(
        "CREATE OR REPLACE TABLE long_keys (k LONGTEXT, v INT, KEY (k(10))); INSERT INTO long_keys VALUES (REPEAT('ab', 500000), 1)"
    )
    assert shop.matches("long_keys", ["ab" * 500_000, "ab" * 499_999]) == [(0, 1)]


def test_a_batch_with_more_bytes_than_a_column_can_hold_is_refused_with_the_advice_to_use_smaller_ones() -> None:
    """Arrow's text ends at 2 GiB."""
    with pytest.raises(LookupFailedError, match=r"expected at most 2 GiB .* in column story .* smaller batch"):
        decode([b"x" * 2**20] * 2**11, pa.string(), "story")
