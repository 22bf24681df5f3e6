"""MySQL's module against a real MariaDB: what it says of tables, what a lookup answers, how it fails."""

from __future__ import annotations

import asyncio
from datetime import date
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from srj.databases.base import Question
from srj.databases.mysql import MySQL
from srj.errors import TableError
from srj.table import DatabaseUrl
from tests.mysql_shop import SECONDS, Shop, open_shop

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.servers import Server


@pytest.fixture(scope="module")
def shop(mariadb: Server) -> Iterator[Shop]:
    yield from open_shop(mariadb, "srj_mysql")


def test_composite_keys_use_the_index_and_answer_all_rows(shop: Shop) -> None:
    """Every row of each key comes back under the key's ordinal, for keys of several columns of different types."""
    shop.run(
        "CREATE OR REPLACE TABLE prices (shop VARCHAR(9) CHARACTER SET latin1, day DATE, amount DECIMAL(10,2), "
        "KEY by_both (shop, day)); "
        "INSERT INTO prices SELECT CONCAT('s', seq MOD 100), '2024-01-01' + INTERVAL seq MOD 7 DAY, seq / 4 FROM seq_1_to_7000; "
        "ANALYZE TABLE prices"
    )
    keys = {"day": [date(2024, 1, 2), date(2024, 1, 3), date(2030, 1, 1)], "shop": ["s1", "s2", "s1"]}
    description, answer = shop.ask("prices", keys)
    assert answer.ordinals.tolist() == [0] * 10 + [1] * 10
    assert sorted(answer.rows.column("amount").to_pylist()[:10]) == [Decimal(1 + 700 * step) / 4 for step in range(10)]
    assert (description.index, description.unique) == ("by_both", False)
    assert description.rows_per_key == pytest.approx(10, rel=0.5)
    [row] = shop.plan("prices", '[["2024-01-02","s1"]]', "day", "shop")
    assert (row[3], row[5], len(row[7].split(","))) == ("ref", "by_both", 2)


def test_ten_thousand_keys_come_back_in_order(shop: Shop) -> None:
    """A large batch is one statement; ordinals never fall and every present key is answered once."""
    shop.run(
        "CREATE OR REPLACE TABLE many (k INT PRIMARY KEY, v VARCHAR(20)); INSERT INTO many SELECT seq * 2, seq FROM seq_1_to_20000"
    )
    keys = np.random.default_rng(1).permutation(10_000)
    _, answer = shop.ask("many", {"k": pa.array(keys.astype(np.int32))})
    expected = np.flatnonzero((keys % 2 == 0) & (keys > 0))
    assert answer.ordinals.dtype == np.int64
    assert answer.ordinals.tolist() == expected.tolist()
    assert answer.rows.column("v").to_pylist() == [str(key // 2) for key in keys[expected]]


def test_an_empty_answer_has_the_tables_types(shop: Shop) -> None:
    """A batch in which nothing is found is an empty batch of the described columns."""
    shop.run("CREATE OR REPLACE TABLE empty (k INT PRIMARY KEY, v DECIMAL(5,1), w TEXT)")
    description, answer = shop.ask("empty", {"k": [1, 2]})
    assert answer.rows.schema.types == [column.type for column in description.columns] == [pa.decimal128(5, 1), pa.string()]
    assert len(answer.ordinals) == answer.rows.num_rows == 0
    assert len(shop.ask("empty", {"k": []})[1].ordinals) == 0


def test_statements_longer_than_the_server_takes_are_cut(shop: Shop) -> None:
    """With a small max_allowed_packet a batch is several statements with one answer; a key too long for any matches nothing."""
    shop.run(
        "CREATE OR REPLACE TABLE texts (k VARCHAR(50) PRIMARY KEY, v INT); INSERT INTO texts SELECT seq, seq FROM seq_1_to_9000"
    )
    [(packet,)] = shop.run("SELECT @@GLOBAL.max_allowed_packet")
    shop.run("SET GLOBAL max_allowed_packet = 16384")
    try:
        keys = [str(number) for number in range(1, 5001)]
        keys[2500] = "'" * 20_000
        assert shop.matches("texts", keys) == [(number, number + 1) for number in range(5000) if number != 2500]
    finally:
        shop.run(f"SET GLOBAL max_allowed_packet = {packet}")


@pytest.mark.parametrize("length", [16_777_208, 16_777_209, 16_777_210, 20_000_000])
def test_rows_longer_than_a_packet_of_the_protocol(goods: Shop, length: int) -> None:
    """A row of 16 MB and more comes in several packets, the last of them empty when the row just fills those before."""
    [(packet,)] = goods.run("SELECT @@GLOBAL.max_allowed_packet")
    goods.run("SET GLOBAL max_allowed_packet = 67108864")
    try:
        columns = (f"REPEAT('x', {length}) AS v", "id")
        _, answer = goods.ask("goods", {"id": [1, 2]}, columns=(columns[0],), where="id = 1")
        assert [len(value) for value in answer.rows.column(0).to_pylist()] == [length]
        _, answer = goods.ask("goods", {"id": [1, 2]}, columns=columns)
        assert answer.rows.column(1).to_pylist() == [1, 2]
    finally:
        goods.run(f"SET GLOBAL max_allowed_packet = {packet}")


def test_odd_names_are_taken_exactly(shop: Shop) -> None:
    """Back-quotes, quotes, percent signs, spaces, upper case, reserved words and other scripts in table and columns."""
    names = ["we`ird", 'qu"ote', "it's", "100%", "%s and %%", "two words", "Select", "größe", "_srj", "a.b", "#c -- d"]
    columns = ", ".join(f"`{name.replace('`', '``')}` INT" for name in names)
    shop.run(
        f"CREATE OR REPLACE TABLE `odd ``%s Tab.le` (`ke``y %` INT PRIMARY KEY, {columns}); "
        f"INSERT INTO `odd ``%s Tab.le` VALUES (7, {', '.join(str(number) for number in range(len(names)))})"
    )
    _, answer = shop.ask("odd `%s Tab.le", {"ke`y %": [7]})
    assert answer.rows.to_pydict() == {name: [number] for number, name in enumerate(names)}


def test_a_table_of_another_database_is_found(shop: Shop) -> None:
    """Two-part names are database and table."""
    shop.run("CREATE OR REPLACE TABLE here (k INT PRIMARY KEY, v INT); INSERT INTO here VALUES (1, 5)")
    url = DatabaseUrl.parse(shop.server.url)
    description = asyncio.run(MySQL().describe(Question(url, (shop.name, "here"), ("k",)), SECONDS))
    assert f"`{shop.name}`.`here`" in description.sql
    assert description.server.startswith("M")
    assert description.columns[0].db_type == "int(11)"


@pytest.fixture(scope="module")
def goods(shop: Shop) -> Shop:
    shop.run(
        "CREATE TABLE goods (id INT PRIMARY KEY, kind VARCHAR(10), price DECIMAL(8,2), note TEXT, ord INT); "
        "INSERT INTO goods VALUES "
        "(1, 'a', 1.50, '100% wool', 3), (2, 'a', 2.50, 'x%sy', 2), (3, 'b', NULL, '-- no', 1), (4, 'a', 2.50, NULL, 9)"
    )
    return shop


def test_expressions_are_computed_by_the_database(goods: Shop) -> None:
    """Columns may be expressions with names, with percent signs, comments and functions, typed without reading a row."""
    columns = (
        "price * 2 AS double_price",
        "note LIKE '%wool%' AS `is wool`",
        "CONCAT(kind, '%s') AS tag",
        "goods.id + 0 AS id",
        "CAST(price AS DOUBLE) -- rough\n AS rough",
        "note",
        "JSON_OBJECT('a', id) AS json",
    )
    description, answer = goods.ask("goods", {"id": [2, 1]}, columns=columns)
    assert answer.ordinals.tolist() == [0, 1]
    assert answer.rows.to_pydict() == {
        "double_price": [Decimal("5.00"), Decimal("3.00")],
        "is wool": [0, 1],
        "tag": ["a%s", "a%s"],
        "id": [2, 1],
        "rough": [2.5, 1.5],
        "note": ["x%sy", "100% wool"],
        "json": ['{"a": 2}', '{"a": 1}'],
    }
    assert description.columns[0].db_type == "decimal(9,2)"
    assert [column.width > 0 for column in description.columns] == [False, False, True, False, False, True, True]


def test_a_condition_hides_rows(goods: Shop) -> None:
    """Rows that don't fulfil `where` are not found; OR, percent signs and a comment stay inside."""
    _, answer = goods.ask("goods", {"id": [1, 2, 3, 4]}, where="note LIKE '100%' OR price IS NULL -- or %s")
    assert answer.ordinals.tolist() == [0, 2]


def test_existence_alone(goods: Shop) -> None:
    """Semi and anti joins ask for ordinals only, each once, through the index."""
    description, answer = goods.ask("goods", {"kind": ["b", "z", "A"]}, exists_only=True, where="price > 1 OR id = 3")
    assert description.columns == ()
    assert answer.ordinals.tolist() == [0, 2]
    assert answer.rows.num_rows == 2
    assert answer.rows.num_columns == 0


@pytest.mark.parametrize("more", [{"exists_only": True}, {"first": True}, {"where": "v > 1"}], ids=["exists", "first", "where"])
def test_every_form_of_the_statement_uses_the_index(shop: Shop, more: dict[str, Any]) -> None:
    """Asked for existence or the first row too, the table is read through its index, not as a whole."""
    shop.run(
        "CREATE OR REPLACE TABLE indexed (id INT PRIMARY KEY, k BIGINT, v INT, KEY by_k (k)); "
        "INSERT INTO indexed SELECT seq, seq MOD 500, seq FROM seq_1_to_5000; ANALYZE TABLE indexed"
    )
    [row] = shop.plan("indexed", "[[1],[2]]", "k", **more)
    assert (row[3], row[5]) == ("ref", "by_k")


def test_a_table_of_keys_alone_still_counts_its_rows(shop: Shop) -> None:
    """No columns to return: the ordinals alone say how often a key occurs."""
    shop.run("CREATE OR REPLACE TABLE bare (k INT); INSERT INTO bare VALUES (1), (1), (2)")
    _, answer = shop.ask("bare", {"k": [2, 1, 3]})
    assert answer.ordinals.tolist() == [0, 1, 1]
    assert answer.rows.num_rows == 3


def test_the_first_row_is_chosen_by_the_database(goods: Shop) -> None:
    """`first` keeps one row a key, by the order given, else by the primary key; ties fall to the primary key."""
    by_default, answer = goods.ask("goods", {"kind": ["b", "a"]}, first=True, columns=("id", "note"))
    assert by_default.unique
    assert answer.rows.to_pydict() == {"id": [3, 1], "note": ["-- no", "100% wool"]}
    _, answer = goods.ask("goods", {"kind": ["a", "b"]}, first=True, columns=("id",), order_by="price DESC, note LIKE '%' -- best")
    assert answer.rows.column("id").to_pylist() == [4, 3]
    _, answer = goods.ask("goods", {"kind": ["a", "c"]}, first=True, columns=("id", "ord"), order_by="ord")
    assert answer.rows.to_pydict() == {"id": [2], "ord": [2]}


def test_first_without_any_order_is_refused(shop: Shop) -> None:
    shop.run("CREATE OR REPLACE TABLE unordered (k INT, v INT)")
    with pytest.raises(TableError, match="has no primary key; give order_by"):
        shop.describe("unordered", "k", first=True)


UNIQUENESS: list[tuple[str, str, tuple[str, ...], bool, str | None]] = [
    ("the primary key", "PRIMARY KEY (a)", ("a",), True, "PRIMARY"),
    ("a key that holds the primary key", "PRIMARY KEY (a)", ("b", "a"), True, "PRIMARY"),
    ("part of a unique index", "UNIQUE u (a, b)", ("a",), False, "u"),
    ("its other part", "UNIQUE u (a, b)", ("b",), False, None),
    ("all of a unique index, turned round", "UNIQUE u (a, b)", ("b", "a"), True, "u"),
    ("a prefix that is unique", "UNIQUE u (t(3))", ("t",), False, "u"),
    ("a plain index", "KEY i (b)", ("b",), False, "i"),
    ("the longer of two indexes", "KEY i (a), KEY j (a, b)", ("a", "b"), False, "j"),
    ("an ignored index", "UNIQUE u (n) IGNORED", ("n",), True, None),
    ("a unique constraint on long text, which finds nothing", "UNIQUE u (x)", ("x",), True, None),
    ("full text", "FULLTEXT f (x)", ("x",), False, None),
    ("none", "KEY i (b)", ("a",), False, None),
]


@pytest.mark.parametrize(
    ("index", "key", "unique", "serves"), [case[1:] for case in UNIQUENESS], ids=[case[0] for case in UNIQUENESS]
)
def test_uniqueness_and_indexes_are_found(shop: Shop, index: str, key: tuple[str, ...], unique: bool, serves: str | None) -> None:
    """A key has one row at most where a unique index lies within it; an index serves where it begins within it."""
    shop.run(f"CREATE OR REPLACE TABLE indexed (a INT NOT NULL, b INT NOT NULL, n INT, t VARCHAR(9), x LONGTEXT, {index})")
    description = shop.describe("indexed", *key)
    assert (description.unique, description.index) == (unique, serves)


def test_a_missing_index_is_warned_of_and_costs_one_read_a_batch(shop: Shop) -> None:
    """A table of many rows without an index: one sentence with the cost and the cure; the lookup hashes the keys."""
    shop.run("CREATE OR REPLACE TABLE heap (a INT, v INT); INSERT INTO heap SELECT seq, seq FROM seq_1_to_5000; ANALYZE TABLE heap")
    description, answer = shop.ask("heap", {"a": list(range(1, 3001))})
    assert answer.rows.column("v").to_pylist() == list(range(1, 3001))
    [warning] = description.warnings
    assert "no index of heap begins with a column of its key `a`" in warning
    assert f"CREATE INDEX srj_key ON `{shop.name}`.`heap` (`a`)" in warning
    assert description.rows == pytest.approx(5000, rel=0.2)
    shop.run(warning.split("run: ")[1])
    assert shop.describe("heap", "a").warnings == ()


def test_views_answer_and_say_what_is_unknown(shop: Shop) -> None:
    shop.run(
        "CREATE OR REPLACE TABLE base_table (k INT PRIMARY KEY, v INT); INSERT INTO base_table VALUES (1, 2); "
        "CREATE OR REPLACE VIEW seen AS SELECT k, v * 2 AS v FROM base_table"
    )
    description, answer = shop.ask("seen", {"k": [1, 2]})
    assert answer.rows.column("v").to_pylist() == [4]
    assert (description.unique, description.index, description.rows) == (False, None, None)
    assert "is a view" in description.warnings[0]


def test_the_servers_sql_mode_changes_nothing(shop: Shop) -> None:
    """With ANSI_QUOTES and NO_BACKSLASH_ESCAPES as the server's default, keys with quotes and backslashes still match."""
    shop.run("CREATE OR REPLACE TABLE quoted (k VARCHAR(20) PRIMARY KEY, v INT); INSERT INTO quoted VALUES ('a\\\\''\"b', 1)")
    [(mode,)] = shop.run("SELECT @@GLOBAL.sql_mode")
    shop.run("SET GLOBAL sql_mode = 'ANSI_QUOTES,NO_BACKSLASH_ESCAPES,PIPES_AS_CONCAT'")
    try:
        assert shop.matches("quoted", ["a\\'\"b", "\\", "' OR 1=1 -- "], column='CONCAT("x", v) AS v') == [(0, "x1")]
    finally:
        shop.run(f"SET GLOBAL sql_mode = '{mode}'")


def test_no_transaction_stays_open(goods: Shop) -> None:
    """Between lookups a connection holds no snapshot: it sees what others have committed since."""

    async def run() -> list[Any]:
        question = goods.question("fresh", "k")
        description = await MySQL().describe(question, SECONDS)
        connection = await MySQL().connect(question, description, SECONDS)
        seen = []
        for number in (1, 2):
            goods.run(f"UPDATE fresh SET v = {number}")
            seen.append((await connection.lookup((pa.array([1], pa.int32()),), SECONDS)).rows.column(0).to_pylist())
        assert goods.run("SELECT COUNT(*) FROM information_schema.INNODB_TRX") == [(0,)]
        await connection.close()
        return seen

    goods.run("CREATE OR REPLACE TABLE fresh (k INT PRIMARY KEY, v INT); INSERT INTO fresh VALUES (1, 0)")
    assert asyncio.run(run()) == [[1], [2]]


BAD_REQUESTS: list[tuple[str, dict[str, Any], str]] = [
    (
        "a column that is nearly right",
        {"columns": ("pricee",)},
        "expected a column of table goods, got 'pricee'; did you mean 'price'",
    ),
    ("upper and lower case", {"columns": ("Price",)}, "got 'Price'; did you mean 'price'"),
    ("an expression without a name", {"columns": ("price * 2",)}, r"got 'price \* 2'; write 'price \* 2 AS name'"),
    ("an expression that is no SQL", {"columns": ("price +* AS x",)}, r"in columns 'price \+\* AS x', got: You have an error"),
    (
        "an expression of no column",
        {"columns": ("kind", "prise * 2 AS x")},
        r"in columns 'prise \* 2 AS x', got: Unknown column 'prise'",
    ),
    ("an aggregate", {"columns": ("SUM(price) AS x",)}, r"in columns 'SUM\(price\) AS x', got: Mixing of GROUP columns"),
    (
        "two columns in one",
        {"columns": ("kind, price AS x",)},
        "in columns 'kind, price AS x', got: Operand should contain 1 column",
    ),
    ("a name twice", {"columns": ("kind", "id AS kind")}, "got 'kind' twice; write AS another_name"),
    ("a condition that is no SQL", {"where": "price >"}, "in where 'price >', got: You have an error"),
    ("a condition on no column", {"where": "prise > 1"}, "in where 'prise > 1', got: Unknown column 'prise'"),
    ("a condition that leaves its brackets", {"where": "1=1) OR (1=1"}, "in where"),
    ("an expression that leaves its brackets", {"columns": ("price) + (1 AS x",)}, "in columns .*got: You have an error"),
    ("expressions that comment each other out", {"columns": ("id /* AS a", "*/ + 1 AS b")}, r"in columns 'id /\* AS a', got: You"),
    ("an order that leaves its brackets", {"first": True, "order_by": "price), (price"}, "in order_by .*got: You have an error"),
    (
        "an order with a frame",
        {"first": True, "order_by": "price ROWS UNBOUNDED PRECEDING"},
        "in order_by .*got: You have an error",
    ),
    ("an order by no column", {"first": True, "order_by": "prise"}, "in order_by 'prise', got: Unknown column 'prise'"),
]


@pytest.mark.parametrize(("more", "message"), [case[1:] for case in BAD_REQUESTS], ids=[case[0] for case in BAD_REQUESTS])
def test_mistakes_are_named(goods: Shop, more: dict[str, Any], message: str) -> None:
    """One sentence names what is wrong, before any row is read."""
    with pytest.raises(TableError, match=message):
        goods.describe("goods", "id", **more)


def test_missing_tables_and_keys_are_named_with_the_nearest(goods: Shop) -> None:
    with pytest.raises(TableError, match=r"table or view 'gods' in database 'srj_mysql'.*did you mean 'goods'\?"):
        goods.describe("gods", "id")
    with pytest.raises(TableError, match=r"key column of table goods, got 'ident'; (did you mean|there are: .*\bkind\b)"):
        goods.describe("goods", "ident")


@pytest.mark.parametrize("sql_type", ["TIME", "BIT(8)", "DECIMAL(40,2)", "POINT"])
def test_keys_that_can_not_be_compared_are_refused(shop: Shop, sql_type: str) -> None:
    shop.run(f"CREATE OR REPLACE TABLE odd_keys (k {sql_type}, v INT)")
    with pytest.raises(TableError, match=r"that srj can compare, got 'k' of type .*; add a generated column"):
        shop.describe("odd_keys", "k")
