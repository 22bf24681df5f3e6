"""Names of every spelling, and every kind of relation, on both databases: srj quotes what it is told, and folds nothing."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from srj.databases.base import Question
from srj.errors import TableError
from srj.lookup.describe import describe
from srj.table import DatabaseUrl
from tests import servers
from tests.ground import Ground, open_ground, spec_of
from tests.postgresql_place import refusal

if TYPE_CHECKING:
    from collections.abc import Iterator

# Words of SQL's and of srj's own statements, case, every mark that means something to a server or a driver, other scripts.
NAMES = (
    *("select", "order", "ord", "k", "k0", "t", "srj_keys", "_srj_keys", "srj_c0", "unnest", "JSON_TABLE", "id", "Mixed"),
    *("has space", " leading", 'quo"te', "back`tick", "it's", "do.t", "back\\slash", "semi;colon", "-- x", "/* x */", "#x"),
    *("100%", "%s %%", "%(x)s", "$1", "$$", ":name", "?", "{x}", "[0]", "größe", "列", "e\u0301", "\u00e9", "a\u200bb", "x y\tz"),
)
KEYS = pa.array([1, 9, None], pa.int32())


def _quoted(ground: Ground, name: str) -> str:
    mark = '"' if ground.is_postgres else "`"
    return mark + name.replace(mark, mark * 2) + mark


def test_a_table_a_key_and_a_column_may_have_any_name(ground: Ground) -> None:
    """The longest too; where a key is to have its first row, the order is by the same name."""
    for name in (*NAMES, "x" * (63 if ground.is_postgres else 64)):
        quoted = _quoted(ground, name)
        other = _quoted(ground, f"{name[:50]} 2")
        ground.table(quoted, f"{quoted} int, {other} int", "(1, 5)", "(1, 4)", "(2, 6)")
        assert sorted(ground.join(name, KEYS, name)) == [(0, 4), (0, 5)], name
        if not name.isidentifier():
            columns = [name, f"{name[:50]} 2"]
            first = ground.join(name, KEYS, name, columns=columns, on_multiple="first", order_by=f"{quoted}, {other}")
            assert first == [(0, 1, 4)], name
        ground.sql(f"DROP TABLE {quoted}")


def test_columns_of_all_names_stand_side_by_side(ground: Ground) -> None:
    """Each with its own value. MySQL takes names that differ in case, in accents or in a character of no width for one."""
    names = [name for name in NAMES if ground.is_postgres or name not in {"e\u0301", "\u00e9", "K"}]
    ground.table("all_names", ", ".join(["the_key int", *(f"{_quoted(ground, name)} int" for name in names)]))
    ground.sql(f"INSERT INTO all_names VALUES (1, {', '.join(map(str, range(len(names))))})")
    assert ground.join("all_names", KEYS, "the_key") == [(0, *range(len(names)))]
    assert ground.join("all_names", KEYS, "the_key", columns=names[::-1]) == [(0, *reversed(range(len(names))))]


def test_the_index_that_is_missing_can_be_made_as_the_warning_says(postgres_ground: Ground) -> None:
    """Whatever the names in it."""
    postgres_ground.table("bare", '"a.b" int, "Say ""x""" int, id int')
    postgres_ground.sql("INSERT INTO bare SELECT i, i, i FROM generate_series(1, 2000) i")
    for key in ("a.b", 'Say "x"', "id"):
        (warning,) = spec_of(postgres_ground.url, "bare", key).description.warnings
        columns = re.search(r"create an index on (\(.*?\))(?: of bare)?$", warning)
        assert columns is not None
        postgres_ground.sql(f"CREATE INDEX ON bare {columns[1]}")
        assert spec_of(postgres_ground.url, "bare", key).description.index is not None


def test_a_name_is_that_of_one_table_alone(ground: Ground) -> None:
    """Not of one that is spelt alike but for case or accents."""
    spellings = ("tee", "Tee", "TEE", "teé", "tèe", "tee ")[: 6 if ground.is_postgres else 5]  # MySQL's end in no space
    for number, name in enumerate(spellings):
        ground.table(_quoted(ground, name), f"id int, c{number} int", f"(1, {number})")
    for number, name in enumerate(spellings):
        assert [column.name for column in spec_of(ground.url, name, "id").description.columns] == [f"c{number}"]
        assert ground.join(name, KEYS) == [(0, number)]
    assert "'tEe'" in refusal(lambda: spec_of(ground.url, "tEe", "id")).replace("got tEe", "got 'tEe'")


def test_a_key_column_is_spelt_as_the_table_has_it(ground: Ground) -> None:
    """Else the nearest is named."""
    ground.table("spelt", "id int, v int", "(1, 2)")
    assert refusal(lambda: spec_of(ground.url, "spelt", "ID")).endswith("did you mean 'id'?")
    with pytest.raises(TableError, match="did you mean 'v'"):
        spec_of(ground.url, "spelt", "id", columns=["V"])


def test_every_kind_of_relation_of_postgresql_is_joined(postgres_ground: Ground) -> None:
    """Through the cache and not; a foreign table on another server, with a warning."""
    ground = postgres_ground
    server = ground.server
    ground.table("plain", "id int PRIMARY KEY, v text", "(1, 'one')", "(2, NULL)")
    ground.sql(
        "CREATE VIEW seen AS SELECT * FROM plain; CREATE VIEW seen_again AS SELECT id, v || '!' AS v FROM seen;"
        "CREATE MATERIALIZED VIEW kept AS SELECT * FROM plain; CREATE UNLOGGED TABLE unlogged AS SELECT * FROM plain;"
        "CREATE TABLE parts (id int, v text) PARTITION BY LIST (id); CREATE TABLE part_1 PARTITION OF parts FOR VALUES IN (1);"
        "CREATE TABLE rest PARTITION OF parts DEFAULT; INSERT INTO parts SELECT * FROM plain;"
        "CREATE TABLE above (id int, v text); CREATE TABLE below () INHERITS (above); INSERT INTO below SELECT * FROM plain;"
        "CREATE EXTENSION postgres_fdw;"
        "CREATE SERVER there FOREIGN DATA WRAPPER postgres_fdw "
        f"OPTIONS (host '{server.host}', port '{server.port}', dbname '{ground.name}');"
        f"CREATE USER MAPPING FOR CURRENT_USER SERVER there OPTIONS (user '{server.user}', password '{server.password}');"
        "CREATE FOREIGN TABLE afar (id int, v text) SERVER there OPTIONS (table_name 'plain');"
        "CREATE EXTENSION file_fdw; CREATE SERVER files FOREIGN DATA WRAPPER file_fdw;"
        "CREATE FOREIGN TABLE filed (id int, v text) SERVER files OPTIONS (program 'printf \"1,one\\\\n2,\\\\n\"', format 'csv')"
    )
    for name in ("plain", "seen", "kept", "unlogged", "parts", "part_1", "above", "afar", "filed"):
        assert ground.join(name, pa.array([1, 2, 3], pa.int32())) == ([(0, "one")] if name == "part_1" else [(0, "one"), (1, None)])
    assert ground.join("seen_again", KEYS) == [(0, "one!")]
    for name in ("afar", "filed"):
        (warning,) = spec_of(ground.url, name, "id").description.warnings
        assert f"{name} is a foreign table" in warning


def test_every_kind_of_relation_of_mariadb_is_joined(mariadb_ground: Ground) -> None:
    """Through the cache and not."""
    ground = mariadb_ground
    ground.table("plain", "id int PRIMARY KEY, v varchar(9)", "(1, 'one')", "(2, NULL)")
    ground.sql(
        "CREATE VIEW seen AS SELECT * FROM plain; CREATE ALGORITHM = TEMPTABLE VIEW apart AS SELECT * FROM seen;"
        "CREATE TABLE parts (id int, v varchar(9)) PARTITION BY HASH (id) PARTITIONS 3; INSERT INTO parts SELECT * FROM plain;"
        "CREATE TABLE heap (id int, v varchar(9)) ENGINE = MEMORY; INSERT INTO heap SELECT * FROM plain;"
        "CREATE TABLE old (id int, v varchar(9)) ENGINE = MyISAM; INSERT INTO old SELECT * FROM plain;"
        "CREATE TABLE made (id int, n int, v varchar(9) AS (IF(n = 1, 'one', NULL)) VIRTUAL);"
        "INSERT INTO made (id, n) VALUES (1, 1), (2, 2);"
        "CREATE TABLE past (id int, v varchar(9)) WITH SYSTEM VERSIONING; INSERT INTO past VALUES (1, 'zero'), (2, NULL);"
        "UPDATE past SET v = 'one' WHERE id = 1"
    )
    for name in ("plain", "seen", "apart", "parts", "heap", "old", "made", "past"):
        found = ground.join(name, pa.array([1, 2, 3], pa.int32()), columns=["v"])
        assert found == [(0, "one"), (1, None)], name


def test_a_two_part_name_is_schema_or_database_and_table(ground: Ground) -> None:
    """Whatever is in either; without the first part, where the login looks."""
    odd = 'My "odd" `place`.x %s'
    kind = "SCHEMA" if ground.is_postgres else "DATABASE"
    ground.sql(f"DROP {kind} IF EXISTS {_quoted(ground, odd)}; CREATE {kind} {_quoted(ground, odd)}")
    try:
        place = f"{_quoted(ground, odd)}.{_quoted(ground, odd)}"
        ground.sql(f"CREATE TABLE {place} (id int PRIMARY KEY, v int)")
        description = describe(Question(DatabaseUrl.parse(ground.url), (odd, odd), ("id",)), 10.0)
        assert (description.unique, [column.name for column in description.columns]) == (True, ["v"])
        assert refusal(lambda: spec_of(ground.url, odd, "id"))
    finally:
        ground.sql(f"DROP {kind} {_quoted(ground, odd)} {'CASCADE' if ground.is_postgres else ''}")


@pytest.fixture(scope="module")
def folding() -> Iterator[Ground]:
    """A MariaDB that keeps tables in lower case, as on Windows; one on macOS only compares them so."""
    server = servers.start_mariadb({"lower-case-table-names": 1})
    yield from open_ground(server, "srj_folding")
    server.remove()


def test_a_server_that_folds_the_names_of_tables_finds_them_in_any_case(folding: Ground) -> None:
    """Those of columns are still exact."""
    folding.table("MixedCase", "Id int PRIMARY KEY, V int", "(1, 5)")
    for name in ("MixedCase", "mixedcase", "MIXEDCASE"):
        description = spec_of(folding.url, name, "Id").description
        assert (description.unique, description.index) == (True, "PRIMARY")
        assert folding.join(name, KEYS, "Id") == [(0, 5)]
        assert folding.join(name, KEYS, "Id", on_multiple="first") == [(0, 5)]
    assert refusal(lambda: spec_of(folding.url, "MixedCase", "id")).endswith("did you mean 'Id'?")
