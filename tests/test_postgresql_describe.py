"""PostgreSQL: descriptions, and what can be wrong in a request, against a real server."""

from __future__ import annotations

import re
import secrets
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from srj.errors import ConnectionFailedError, LookupFailedError, RequestError
from tests.postgresql_place import Place, own_database, refusal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.servers import Server


@pytest.fixture(scope="module")
def place(postgres: Server) -> Iterator[Place]:
    with own_database(postgres) as place:
        yield place


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


def test_the_width_of_a_large_value_is_its_own_not_that_of_its_pointer(place: Place) -> None:
    """Whether compressed or not, and before ANALYZE too; json counts as it is stored."""
    place.sql("CREATE TABLE stories (id int PRIMARY KEY, title text, story text, plain text, packed json, number int)")
    place.sql("ALTER TABLE stories ALTER plain SET STORAGE external")
    place.sql(
        "INSERT INTO stories SELECT i, 'title', repeat('x', 1000000), repeat('y', 20000), "
        "to_json((SELECT string_agg(md5((i * 1000 + j)::text), '') FROM generate_series(1, 500) j)), i "
        "FROM generate_series(1, 50) i"
    )
    for _ in range(2):
        title, story, plain, packed, number = (column.width for column in place.describe("stories").columns)
        assert (title, story, plain, number) == (5, 1_000_000, 20_000, 0)
        assert 8_000 < packed <= 17_000
        place.sql("ANALYZE stories")


def test_a_missing_index_is_warned_of_with_its_cost(place: Place) -> None:
    """Large tables only; the rows of a key come from the statistics."""
    description = place.describe("products", "category")
    assert description.index is None
    assert not description.unique
    assert description.rows_per_key == pytest.approx(200, rel=0.05)
    (warning,) = description.warnings
    assert "20,000 rows" in warning
    place.sql("CREATE TABLE tiny (id int, v int); CREATE INDEX tiny_i ON tiny (id); INSERT INTO tiny VALUES (1), (2); ANALYZE tiny")
    assert place.describe("tiny", "v").warnings == ()
    assert place.describe("tiny").index == "tiny_i"
    place.sql("CREATE TABLE unknown (id int, v int)")
    (warning,) = place.describe("unknown", "v").warnings
    assert "does not know its size before ANALYZE; create an index on (v)" in warning


def test_a_volatile_expression_that_keeps_the_index_from_serving_is_named(place: Place) -> None:
    """An index that is there needs not be created."""
    description = place.describe("products", columns=("random() AS r",))
    assert description.index is None
    (warning,) = description.warnings
    assert "an expression among the columns keeps index products_pkey of table products from serving the key id" in warning
    assert place.describe("products", columns=("upper(name) AS n",)).warnings == ()


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
def test_uniqueness_and_index_are_those_of_the_key(place: Place, index: str, unique: bool, serves: bool) -> None:
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
    place.sql("CREATE DOMAIN any_case AS extras.citext; CREATE DOMAIN any_name AS any_case")
    for kind in ("extras.citext", "any_name"):
        place.sql(f"DROP TABLE IF EXISTS folded; CREATE TABLE folded (k {kind}); CREATE UNIQUE INDEX ON folded (k text_ops)")
        assert not place.describe("folded", "k").unique
        place.sql("CREATE UNIQUE INDEX ON folded (k)")
        assert place.describe("folded", "k").unique


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


def test_a_missing_table_is_named_with_its_nearest(place: Place) -> None:
    """Also when only the case differs."""
    assert "products" in refusal(lambda: place.describe("Product"))
    assert "did you mean" in refusal(lambda: place.describe(("public", "Products")))
    assert "there are: " in refusal(lambda: place.describe("zzzzzzzz"))


def test_a_missing_column_is_named_with_its_nearest(place: Place) -> None:
    """In the key, in the columns, in an expression, in the filter."""
    assert "did you mean 'name'" in refusal(lambda: place.describe("products", columns=("Names",)))
    assert "did you mean 'price'" in refusal(lambda: place.describe("products", "prices"))
    assert "there are: category, id, name, price" in refusal(lambda: place.describe("products", "zzz"))
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
    assert "without parameters" in refusal(lambda: place.describe("products", where="id = $1"))
    assert "NUL" in refusal(lambda: place.describe("products", where="name <> 'a\0b'"))
    assert isinstance(place.describe("products", columns=("price AS name",)).columns[0].type, pa.DataType)


@pytest.mark.parametrize(
    "settings",
    [
        {"where": "price > 1) OR (price < 1"},
        {"where": "price > 1) OR (price < 1", "exists_only": True},
        {"columns": ("price) + (1 AS x",)},
        {"columns": ("price) AS x, (1 AS y",)},
        {"columns": ("id /* AS a", "*/ + 1 AS b")},
        {"first": True, "columns": ("category",), "order_by": "price) AS u, (SELECT 1 AS srj_c0"},
        {"first": True, "order_by": "price OFFSET 1"},
        {"first": True, "order_by": "price ROWS UNBOUNDED PRECEDING"},
    ],
)
def test_sql_that_leaves_the_place_where_it_stands_is_refused(place: Place, settings: dict[str, Any]) -> None:
    """Brackets closed and others opened, comments that hide what follows, clauses of another kind."""
    assert "expected SQL that is valid for table products in" in refusal(lambda: place.describe("products", **settings))


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
