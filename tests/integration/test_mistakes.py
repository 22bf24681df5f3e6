"""Each mistake of a user's has its sentence: what was expected, what came, what to do; and what it advises works."""

from __future__ import annotations

import re
import sys
import venv
from typing import TYPE_CHECKING, Any

import pytest

from srj import ConnectionFailedError, DatabaseError, LookupFailedError, RequestError, TableError, srj_enrich
from srj.table import Table

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from tests.integration.stores import Store


@pytest.fixture(scope="module")
def shop(store: Store) -> Iterator[Store]:
    """Products, some columns of which Spark has no type for, and a login that may read nothing."""
    odd = "extra xml, place point, many numeric" if store.is_postgres else "extra bit(12), place point, many time"
    text = "text" if store.is_postgres else "varchar(40)"
    store.run(f"CREATE TABLE products (id bigint PRIMARY KEY, code {text}, name text, price numeric(10,2), {odd})")
    store.run(f"CREATE TABLE secrets (id bigint PRIMARY KEY, {'v text' if store.is_postgres else 'v int'})")
    store.run(
        "INSERT INTO products (id, code, name, price, many) VALUES (7, '7', 'tea', 2.50, "
        + ("1.5)" if store.is_postgres else "'01:02:03')")
    )
    odd_values = "extra = '<a/>', place = point(1, 2)" if store.is_postgres else "extra = 5, place = point(1, 2)"
    store.run(f"UPDATE products SET {odd_values}")
    if store.is_postgres:
        store.run(
            "DROP ROLE IF EXISTS srj_guest; CREATE ROLE srj_guest LOGIN PASSWORD 'guest-pw'; GRANT SELECT (id) ON products TO "
            "srj_guest"
        )
    else:
        store.run(
            f"CREATE OR REPLACE USER srj_guest IDENTIFIED BY 'guest-pw'; GRANT SELECT (id) ON {store.name}.products TO srj_guest"
        )
    yield store
    store.run("DROP OWNED BY srj_guest; DROP ROLE srj_guest" if store.is_postgres else "DROP USER srj_guest")


@pytest.fixture(scope="module")
def stream(spark: SparkSession) -> DataFrame:
    """A stream with an id that products has."""
    return spark.sql(
        "SELECT 7L AS id, '7' AS text_id, 7.25D AS ratio, named_struct('id', 7L) AS nested, array(7L) AS list, 'x' AS name_"
    )


SIMPLE = {"columns": ["name"]}


def _refused(stream: DataFrame, table: Table | str, key: Any, kind: type[Exception], **options: Any) -> str:
    """The message of the error that this request must end with, once the same has been asked of nobody but srj."""
    with pytest.raises(kind) as caught:
        srj_enrich(stream, table, key, **options)
    assert type(caught.value) is kind
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_no_such_table(shop: Store, stream: DataFrame) -> None:
    """The table's name is misspelt: the nearest that exists."""
    message = _refused(stream, shop.table("product"), "id", TableError)
    if shop.is_postgres:
        assert message == (
            f'expected a table or view, got product, which database {shop.name} does not hold in the schemas "$user", public '
            "that the user "
            "searches; did you mean 'products'?"
        )
    else:
        assert message == (
            f"expected a table or view 'product' in database {shop.name!r} that this user may read, got none; did you mean "
            "'products'?"
        )


def test_no_such_column(shop: Store, stream: DataFrame) -> None:
    """A column's name is misspelt: the nearest that the table has."""
    message = _refused(stream, shop.table("products"), "id", TableError, columns=["nam"])
    assert message == "expected a column of table products, got 'nam'; did you mean 'name'?"


def test_no_such_key_column(shop: Store, stream: DataFrame) -> None:
    """The table's key column is misspelt: the nearest that it has."""
    message = _refused(stream, shop.table("products"), {"id": "ID_"}, TableError)
    if shop.is_postgres:
        assert message == "expected a column of table products as key, got 'ID_'; did you mean 'id'?"
    else:
        assert message == "expected a key column of table products, got 'ID_'; did you mean 'id'?"


def test_no_such_database(shop: Store, stream: DataFrame) -> None:
    """The database in the URL does not exist."""
    table = Table(shop.server.url_for(database="srj_absent"), "products")
    message = _refused(stream, table, "id", LookupFailedError)
    server = f"{shop.server.host}:{shop.server.port}"
    if shop.is_postgres:
        assert message == (
            f'expected a database at {server}, got: database "srj_absent" does not exist; correct the name after the host in '
            "the URL"
        )
    else:
        assert message == (
            f"expected a database at {server} that this user may read, got: Unknown database 'srj_absent'; correct the name "
            "after the host "
            "in the URL, or grant it"
        )


def test_no_such_host(shop: Store, stream: DataFrame) -> None:
    """The host's name is known to nobody; the resolver's words are the machine's own."""
    url = f"{shop.server.kind}://reader:s3cret@no-such-host.invalid/shop"
    message = _refused(stream, Table(url, "products"), "id", ConnectionFailedError, connect_timeout="5 s")
    if shop.is_postgres:
        place, pattern = (
            "no-such-host.invalid:5432/shop",
            "expected a PostgreSQL server at {}, got: .+; check host and port and that it is running",
        )
    else:
        place, pattern = (
            "no-such-host.invalid:3306/shop",
            "expected a connection to {}, got: .+; check the host, the port and that it is running",
        )
    assert re.fullmatch(pattern.format(re.escape(place)), message)


def test_nobody_listens_there(shop: Store, stream: DataFrame) -> None:
    """The port is wrong: nothing answers at it."""
    url = f"{shop.server.kind}://reader:s3cret@127.0.0.1:1/shop"
    message = _refused(stream, Table(url, "products"), "id", ConnectionFailedError)
    if shop.is_postgres:
        expected = "expected a PostgreSQL server at 127\\.0\\.0\\.1:1/shop"
        advice = "check host and port and that it is running"
    else:
        expected, advice = "expected a connection to 127\\.0\\.0\\.1:1/shop", "check the host, the port and that it is running"
    assert re.fullmatch(f"{expected}, got: .*Connect call failed.*; {advice}", message)


def test_wrong_password(shop: Store, stream: DataFrame) -> None:
    """The password is wrong: the user is named, the password is not."""
    table = Table(shop.server.url_for(database=shop.name, user="srj_guest", password="wr0ng-pw"), "products")
    message = _refused(stream, table, "id", LookupFailedError)
    assert "wr0ng-pw" not in message
    if shop.is_postgres:
        assert message == (
            f'expected a login that {shop.place} accepts, got: password authentication failed for user "srj_guest"; correct '
            "user, password "
            "or the server's pg_hba.conf"
        )
    else:
        pattern = (
            rf"expected a login that {re.escape(shop.place)} accepts, got: Access denied for user 'srj_guest'@'\S+' \(using "
            rf"password: YES\); "
            "correct the user or the password in the URL"
        )
        assert re.fullmatch(pattern, message)


def test_no_permission(shop: Store, stream: DataFrame) -> None:
    """The login may read one column of one table: what it may not is refused with the grant that is missing."""
    url = shop.server.url_for(database=shop.name, user="srj_guest", password="guest-pw")
    assert srj_enrich(stream, Table(url, "products"), "id", how="semi").count() == 1
    secrets = _refused(stream, Table(url, "secrets"), "id", TableError)
    column = _refused(stream, Table(url, "products"), "id", TableError, columns=["name"])
    if shop.is_postgres:
        grant = "run GRANT SELECT (and GRANT USAGE on its schema) for this user"
        assert secrets == f"expected permission to read table secrets, got: permission denied for table secrets; {grant}"
        assert column == f"expected permission to read table products, got: permission denied for table products; {grant}"
    else:
        assert secrets == (
            f"expected a table or view 'secrets' in database {shop.name!r} that this user may read, got none; there are: products"
        )
        assert column == "expected a column of table products, got 'name'; there are: id"


def test_key_types_that_cannot_match(shop: Store, stream: DataFrame) -> None:
    """A key that can't be converted without loss is refused with the cast to write, and that cast works."""
    message = _refused(stream, shop.table("products"), {"text_id": "id"}, RequestError, **SIMPLE)
    number = "bigint" if shop.is_postgres else "bigint(20)"
    assert message == (
        f"expected a key that converts to the table's id ({number}) without loss, got text_id of type string; "
        "write CAST(text_id AS BIGINT)"
    )
    cast = stream.selectExpr("CAST(text_id AS BIGINT) AS product")
    assert srj_enrich(cast, shop.table("products"), {"product": "id"}, **SIMPLE).collect() == [(7, "tea")]


@pytest.mark.parametrize(
    ("column", "cast", "kind"), [("id", "CAST(id AS STRING)", "bigint"), ("ratio", "CAST(ratio AS STRING)", "double")]
)
def test_numbers_for_a_text_key(shop: Store, stream: DataFrame, column: str, cast: str, kind: str) -> None:
    """The other way round: a number never silently becomes text."""
    message = _refused(stream, shop.table("products"), {column: "code"}, RequestError, **SIMPLE)
    text = "text" if shop.is_postgres else "varchar(40)"
    assert message == (
        f"expected a key that converts to the table's code ({text}) without loss, got {column} of type {kind}; write {cast}"
    )
    found = srj_enrich(stream.selectExpr(f"{cast} AS product"), shop.table("products"), {"product": "code"}, how="semi").count()
    assert found == (column == "id")


def test_a_key_that_is_an_array(shop: Store, stream: DataFrame) -> None:
    """An array can't be a key."""
    message = _refused(stream, shop.table("products"), {"list": "id"}, RequestError, **SIMPLE)
    assert message == "expected a key of a simple type, got list of type array<bigint>; name a field of it, or cast it first"


@pytest.mark.parametrize(
    ("expression", "kind"), [("NULL", "void"), ("INTERVAL '1' DAY", "interval day to second"), ("INTERVAL '1' MONTH", None)]
)
def test_a_key_of_a_type_that_no_table_has(shop: Store, stream: DataFrame, expression: str, kind: str | None) -> None:
    """The cast in the message is one that Spark has."""
    message = _refused(stream.selectExpr(f"{expression} AS k"), shop.table("products"), {"k": "id"}, RequestError, **SIMPLE)
    if kind is None:
        assert message == "expected a key of a simple type, got k of type interval month; name a field of it, or cast it first"
        return
    assert f"without loss, got k of type {kind}; write CAST(k AS BIGINT)" in message
    assert stream.selectExpr(f"{expression} AS k").selectExpr("CAST(k AS BIGINT) AS k").schema["k"].dataType.typeName() == "long"


def test_a_key_that_is_a_variant(shop: Store, stream: DataFrame) -> None:
    """By its own name, not by what it is made of."""
    message = _refused(stream.selectExpr("parse_json('1') AS k"), shop.table("products"), {"k": "id"}, RequestError, **SIMPLE)
    assert message == "expected a key of a simple type, got k of type variant; name a field of it, or cast it first"


def test_name_clash_and_the_prefix_that_cures_it(shop: Store, stream: DataFrame) -> None:
    """A name that the stream has already is refused; with a prefix both are there."""
    clashing = stream.selectExpr("id", "'own' AS Name")
    message = _refused(clashing, shop.table("products"), "id", RequestError, columns=["name"])
    assert message == (
        "expected names that the stream does not have, got the table's column 'name' beside the stream's 'Name'; give a prefix "
        "such as "
        "prefix='n_', or choose columns"
    )
    cured = srj_enrich(clashing, shop.table("products"), "id", columns=["name"], prefix="n_")
    assert cured.columns == ["id", "Name", "n_name"]
    assert cured.collect() == [(7, "own", "tea")]


def test_unsupported_column_types_and_the_expressions_that_work(shop: Store, stream: DataFrame) -> None:
    """A type that Spark lacks is refused with an expression that works in its place."""
    advice = {
        True: [
            ("extra", "xml", "", '"extra"::text AS extra', "<a/>"),
            ("place", "point", "", '"place"::text AS place', "(1,2)"),
            ("many", "numeric", " without a precision of at most 38 digits", 'CAST("many" AS numeric(38,10)) AS many', None),
        ],
        False: [
            ("extra", "bit(12)", "", "CAST(`extra` AS UNSIGNED) AS `extra`", 5),
            ("place", "point", "", "ST_AsText(`place`) AS `place`", "POINT(1 2)"),
            ("many", "time", "", "CAST(`many` AS CHAR) AS `many`", "01:02:03"),
        ],
    }
    for name, kind, more, expression, value in advice[shop.is_postgres]:
        message = _refused(stream, shop.table("products"), "id", TableError, columns=[name])
        if shop.is_postgres:
            quoted = repr(expression)
            assert (
                message == f"expected columns of types that Spark has, got {name} of type {kind}{more}; write {quoted} in its place"
            )
        else:
            assert message == (
                f"expected columns of types that srj can read, got {name!r} of type {kind} in table products; leave it out or "
                "write "
                f"{expression!r} in columns"
            )
        [row] = srj_enrich(stream, shop.table("products"), "id", columns=[expression]).select(name).collect()
        assert row[0] == value if value is not None else float(row[0]) == 1.5


def test_columns_that_are_named_twice(shop: Store, stream: DataFrame) -> None:
    """Two results of one name."""
    message = _refused(stream, shop.table("products"), "id", TableError, columns=["name", "upper(name) AS name"])
    if shop.is_postgres:
        assert message == "expected columns with names of their own, got 'name' twice for table products; rename one with AS"
    else:
        assert message == "expected different names of columns for products, got 'name' twice; write AS another_name"


def test_columns_that_differ_in_case_alone(shop: Store, stream: DataFrame) -> None:
    """The database may tell them apart, Spark does not."""
    message = _refused(
        stream,
        shop.table("products"),
        "id",
        RequestError,
        columns=["name", 'upper(name) AS "NAME"' if shop.is_postgres else "upper(name) AS NAME"],
    )
    assert message == "expected different names for the table's columns, got 'name' and 'NAME'; rename one with AS"


def test_an_empty_list_of_columns_adds_none(shop: Store, stream: DataFrame) -> None:
    """It does not mean all of them; a row still needs a match where the join says so."""
    for order in ("input", "any"):
        found = srj_enrich(
            stream.selectExpr("explode(array(7L, 8L)) AS id"), shop.table("products"), "id", columns=[], how="inner", order=order
        )
        assert found.collect() == [(7,)]


OPTIONS: list[tuple[dict[str, Any], str]] = [
    ({"how": "outer"}, "expected how as one of 'left', 'inner', 'semi', 'anti', got 'outer'"),
    ({"how": "iner"}, "expected how as one of 'left', 'inner', 'semi', 'anti', got 'iner'; did you mean 'inner'?"),
    ({"on_multiple": "last"}, "expected on_multiple as one of 'all', 'first', 'error', got 'last'"),
    (
        {"order": "inputs"},
        "expected order as 'input', 'any', Disorder(max=…) or Windows(…), got 'inputs'; did you mean 'input'?",
    ),
    ({"ttl": 0}, "expected ttl as a duration above zero such as '10 min', '500 ms' or seconds, got 0"),
    ({"ttl": "10 minutes"}, "expected ttl as a duration above zero such as '10 min', '500 ms' or seconds, got '10 minutes'"),
    ({"missing_ttl": -1}, "expected missing_ttl as a duration above zero such as '10 min', '500 ms' or seconds, got -1"),
    ({"cache": "0 MB"}, "expected a cache size such as '128 MB', 'auto', '1_000_000 rows' or a number of bytes, got '0 MB'"),
    ({"cache": 1.5}, "expected cache as a size, a Cache or a factory of a cachetools.Cache, got 1.5; try '128 MB'"),
    ({"batch": 0}, "expected batch size as a whole number from 1 to 100000, 'auto' or a range such as (100, 2000), got 0"),
    ({"retries": 2.0}, "expected retries as a whole number from 0 to 100, got 2.0"),
    ({"connect_timeout": None}, "expected connect_timeout as a duration such as '30 s', got None, which would wait for ever"),
    ({"metrics": "yes"}, "expected metrics as one of True, False, got 'yes'"),
    ({"columns": "name"}, "expected columns as a list of names or SQL expressions, got 'name'; write ['name', …]"),
    ({"prefix": 1}, "expected prefix as a text, got 1"),
    ({"order_by": "id"}, "expected order_by only with on_multiple='first', got on_multiple='all'; drop one"),
    ({"how": "semi", "columns": ["name"]}, "expected no columns or prefix with how='semi', which adds no column; drop them"),
    ({"catche": "1 MB"}, "expected a known option, got 'catche'; did you mean 'cache'?"),
    (
        {"config": "/no/such/srj.toml"},
        "expected a TOML file for config, got '/no/such/srj.toml', which can't be read: No such file or directory",
    ),
]


@pytest.mark.parametrize(
    ("options", "sentence"), OPTIONS, ids=[next(iter(options)) + str(number) for number, (options, _) in enumerate(OPTIONS)]
)
def test_bad_options(stream: DataFrame, options: dict[str, Any], sentence: str) -> None:
    """A value that an option can't have, or a name that is none: found before any database is asked."""
    table = Table("postgresql://reader@no-such-host.invalid/shop", "products")
    assert _refused(stream, table, "id", RequestError, **options) == sentence


CONFIGS = [
    ('missing_tll = "1 min"', "expected a known name in {}, got 'missing_tll'; did you mean 'missing_ttl'?"),
    ('[cache]\nsizes = "1 MB"', "expected a known name in [cache] of {}, got 'sizes'; did you mean 'size'?"),
    ("[batch]\nflight = 2", "expected a known name in [batch] of {}, got 'flight'; did you mean 'in_flight'?"),
    ("ttl = 0", "expected ttl as a duration above zero such as '10 min', '500 ms' or seconds, got 0"),
    ("ttl = ", "expected TOML in {}, got a text that is not: Invalid value (at end of document)"),
]


@pytest.mark.parametrize(("text", "sentence"), CONFIGS, ids=[str(number) for number in range(len(CONFIGS))])
def test_bad_toml(stream: DataFrame, tmp_path: Path, text: str, sentence: str) -> None:
    """A name in the file that is none, with the nearest that is; a file that is no TOML."""
    path = tmp_path / "srj.toml"
    path.write_text(text)
    table = Table("postgresql://reader@no-such-host.invalid/shop", "products")
    assert _refused(stream, table, "id", RequestError, config=path) == sentence.format(repr(str(path)))


def test_a_config_file_does_what_the_arguments_do(shop: Store, stream: DataFrame, tmp_path: Path) -> None:
    """The same names, tables for cache and batch; an argument wins over the file."""
    path = tmp_path / "srj.toml"
    path.write_text('columns = ["name"]\nprefix = "p_"\nhow = "anti"\n[cache]\nsize = "1000 rows"\n[batch]\nsize = 10\n')
    found = srj_enrich(stream.select("id"), shop.table("products"), "id", config=path, how="inner")
    assert (found.columns, found.collect()) == (["id", "p_name"], [(7, "tea")])


def test_missing_stream_column(shop: Store, stream: DataFrame) -> None:
    """A key that the stream lacks: the nearest that it has."""
    message = _refused(stream, shop.table("products"), {"text_ids": "code"}, RequestError)
    assert message == "expected a stream column named 'text_ids' for the key, got none; did you mean 'text_id'?"
    message = _refused(stream, shop.table("products"), {"nested.idd": "id"}, RequestError)
    assert message.startswith("expected a stream column named 'nested.idd' for the key, got none; ")


def test_nested_stream_column(shop: Store, stream: DataFrame) -> None:
    """A path into a struct is a key, in both operators."""
    for order in ("input", "any"):
        found = srj_enrich(stream.select("nested"), shop.table("products"), "nested.id", order=order, **SIMPLE)
        assert found.collect() == [((7,), "tea")]


def test_duplicate_stream_column(shop: Store, stream: DataFrame) -> None:
    """Two columns of the key's name, upper and lower case aside."""
    double = stream.selectExpr("id", "text_id AS ID")
    message = _refused(double, shop.table("products"), "id", RequestError)
    assert message == "expected one stream column named 'id', got several; rename all but one of them first"


def test_duplicate_stream_columns_that_are_no_key(shop: Store, stream: DataFrame) -> None:
    """Elsewhere in the stream doubles do no harm in either order: columns go through Python by number."""
    double = stream.selectExpr("id", "1 AS x", "2 AS x")
    for order in ("input", "any"):
        assert srj_enrich(double, shop.table("products"), "id", order=order, **SIMPLE).collect() == [(7, 1, 2, "tea")]


@pytest.mark.parametrize("key", [[], {}, None, "", {"id": ""}, [7]])
def test_a_key_that_is_none(stream: DataFrame, key: Any) -> None:
    """A key must name columns."""
    table = Table("postgresql://reader@no-such-host.invalid/shop", "products")
    assert _refused(stream, table, key, RequestError) == (
        f"expected key as a column name, a list of names or {{'stream column': 'table column'}}, got "
        f"{[key] if key == '' else key!r}; "
        "write names, not Column objects, and at least one"
    )


def test_the_stream_and_the_table_in_the_wrong_order(stream: DataFrame) -> None:
    """They are told apart before anything else is done."""
    with pytest.raises(RequestError, match=r"expected a DataFrame first and the table second, got str first; write srj_enrich\(df"):
        srj_enrich("postgresql://reader@nowhere/shop#products", stream, "id")  # type: ignore[arg-type]  # the mistake


def test_all_columns_by_a_star(shop: Store, stream: DataFrame) -> None:
    """It has no name, and is not needed."""
    message = _refused(stream, shop.table("products"), "id", TableError, columns=["*"])
    assert message == "expected columns of table products one by one, got '*'; leave columns out to have all but the key's"


def test_workers_of_another_python(
    shop: Store, stream: DataFrame, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    """A warning on the driver, before the worker fails for want of a package."""
    srj_enrich(stream, shop.table("products"), "id", **SIMPLE)
    assert not [one for one in recwarn if "PYSPARK_PYTHON" in str(one.message)]
    (tmp_path / "link").symlink_to(sys.prefix)
    monkeypatch.setattr(stream.sparkSession.sparkContext, "pythonExec", str(tmp_path / "link" / "bin" / "python"))
    srj_enrich(stream, shop.table("products"), "id", **SIMPLE)
    assert not [one for one in recwarn if "PYSPARK_PYTHON" in str(one.message)]
    venv.create(tmp_path / "other", symlinks=True)
    other = str(tmp_path / "other" / "bin" / "python")
    monkeypatch.setattr(stream.sparkSession.sparkContext, "pythonExec", other)
    with pytest.warns(
        UserWarning, match=f"workers run '{other}' of {tmp_path}/other, while this is {sys.executable}.*PYSPARK_PYTHON"
    ):
        srj_enrich(stream, shop.table("products"), "id", **SIMPLE)


def test_a_table_described_before_is_enough_while_the_database_is_away(
    shop: Store, stream: DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A foreachBatch function joins anew in each micro-batch, and what is cached needs no database."""
    table = shop.table("products")
    first = srj_enrich(stream, table, "id", **SIMPLE)
    monkeypatch.setattr("srj.session._FRESH_SECONDS", 0.0)
    shop.server.stop()
    try:
        with pytest.warns(UserWarning, match="taken for what it was when it was last described, for now: expected a"):
            again = srj_enrich(stream, table, "id", **SIMPLE)
        assert again.columns == first.columns
        with pytest.raises(ConnectionFailedError):
            srj_enrich(stream, table, "id", columns=["code"])
    finally:
        shop.server.start()


def test_bad_where(shop: Store, stream: DataFrame) -> None:
    """A condition that the database does not understand, in its own words."""
    message = _refused(stream, shop.table("products"), "id", TableError, where="prize > 3", **SIMPLE)
    assert re.fullmatch(r"expected SQL that .* for table products in where 'prize > 3', got: .*prize.*; correct it", message)


def test_several_rows_where_one_is_promised(shop: Store, stream: DataFrame) -> None:
    """on_multiple='first' without an order in which one is the first."""
    shop.run("CREATE TABLE loose (id bigint, v int)")
    message = _refused(stream, shop.table("loose"), "id", TableError, on_multiple="first")
    assert "order_by" in message
    shop.run("INSERT INTO loose VALUES (7, 1), (7, 2)")
    assert srj_enrich(stream.select("id"), shop.table("loose"), "id", on_multiple="first", order_by="v DESC").collect() == [(7, 2)]
    doubled = srj_enrich(stream.select("id"), shop.table("loose"), "id", on_multiple="error")
    with pytest.raises(
        Exception,
        match=r"expected at most one row of loose for a key \(on_multiple='error'\), got 2 for 7; use on_multiple='first' or 'all'",
    ):
        doubled.collect()


def test_a_variable_that_is_not_set(shop: Store, stream: DataFrame) -> None:
    """A reference to a password that is not there names the variable."""
    url = shop.server.url_for(database=shop.name, password="${SRJ_NOT_SET}")
    message = _refused(stream, Table(url, "products"), "id", LookupFailedError)
    assert message == (
        f"expected the environment variable SRJ_NOT_SET that the URL of {shop.server.host} refers to, found none in this "
        "process; set it for "
        "the driver and for executors (spark.executorEnv.SRJ_NOT_SET)"
    )


def test_every_error_is_of_one_family() -> None:
    """One except clause catches them all."""
    assert issubclass(RequestError, ValueError)
    assert not issubclass(TableError, DatabaseError)
