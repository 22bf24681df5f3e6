"""Tables that change while they are asked, and SQL of the user's that would mean something else; on real servers, without Spark."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from srj import LookupFailedError, TableError
from tests.ground import Ground, join

_MOVED = r"(?:column id of table moving to stay of type|the key columns of table moving at \S+ to keep their character sets)"


@pytest.mark.parametrize(
    ("before", "after", "value"),
    [
        ("int", "numeric(10,3)", "2.125"),
        ("int", "float8", "2.7"),
        ("date", "timestamp", "'2024-01-01 10:11:12'"),
        ("int", "text", "'2x'"),
        ("text", "char(5)", "'2'"),
    ],
)
def test_a_column_whose_type_changes_in_mid_stream_is_an_error_never_a_rounded_value(
    postgres_ground: Ground, before: str, after: str, value: str
) -> None:
    """2.125 is not 2."""
    postgres_ground.table("changing", f"id int PRIMARY KEY, v {before}", "(1, NULL)", "(2, NULL)")
    with postgres_ground.engine("changing") as engine:
        join(engine, pa.array([1]))
        postgres_ground.sql(f"ALTER TABLE changing DROP COLUMN v, ADD v {after}; UPDATE changing SET v = {value}")
        with pytest.raises(LookupFailedError):
            join(engine, pa.array([2]))


def test_digits_that_are_added_in_mid_stream_are_never_dropped(postgres_ground: Ground) -> None:
    """Nor in lists. What fits the type described is read as before."""
    postgres_ground.table("longer", "id int PRIMARY KEY, v numeric(5,1), l numeric(5,1)[]", "(1, 1.5, '{1.5}')")
    with postgres_ground.engine("longer", columns=["v"]) as one, postgres_ground.engine("longer", columns=["l"]) as lists:
        assert join(one, pa.array([1])) == [(0, Decimal("1.5"))]
        assert len(join(lists, pa.array([1]))) == 1
        postgres_ground.sql(
            "ALTER TABLE longer ALTER v TYPE numeric(8,3), ALTER l TYPE numeric(8,3)[]; "
            "INSERT INTO longer VALUES (2, 2.5, '{2.5,NULL}'), (3, 2.125, '{2.5,2.125}')"
        )
        assert join(one, pa.array([2])) == [(0, Decimal("2.5"))]
        assert len(join(lists, pa.array([2]))) == 1
        for engine in (one, lists):
            with pytest.raises(LookupFailedError, match=r"decimal\(5,1\) in column [vl], got .* start the query again"):
                join(engine, pa.array([3]))


@pytest.mark.parametrize(
    ("before", "after", "keys", "options"),
    [
        ("int", "bigint", [1, 2], {}),
        ("int", "bigint", [1, 2], {"how": "semi"}),
        ("int", "bigint", [1, 2], {"on_multiple": "first", "order_by": "v"}),
        ("float8", "float4", [1.1, 2.1], {}),
        ("text", "extras.citext", ["a", "B"], {}),
        ("text", "char(5)", ["a", "b"], {}),
        ("numeric(10,2)", "float8", [Decimal("1.10"), Decimal("2.10")], {}),
        ("numeric(10,2)", "numeric(10,3)", [Decimal("1.10"), Decimal("2.10")], {}),
        ("numeric(10,2)", "numeric", [Decimal("1.10"), Decimal("2.10")], {"how": "semi"}),
        ("timestamp", "timestamptz", [datetime(2024, 1, 1), datetime(2024, 1, 2)], {}),  # noqa: DTZ001  the type has none
    ],
)
def test_a_key_whose_type_changes_in_mid_stream_is_an_error_never_a_row_that_matches_nothing(
    postgres_ground: Ground, before: str, after: str, keys: list[Any], options: dict[str, Any]
) -> None:
    """At the next lookup: on connections that are open, and on new ones."""
    postgres_ground.sql("CREATE SCHEMA IF NOT EXISTS extras; CREATE EXTENSION IF NOT EXISTS citext SCHEMA extras")
    _refuses_moved_keys(postgres_ground, f"id {before} PRIMARY KEY", f"ALTER id TYPE {after}", keys, options)


@pytest.mark.parametrize(
    ("before", "after", "keys", "options"),
    [
        ("int", "varchar(10)", [1, 2], {}),
        ("int", "varchar(10)", [1, 2], {"how": "semi"}),
        ("int", "bigint", [1, 2], {"on_multiple": "first", "order_by": "v"}),
        ("mediumint", "int", [1, 2], {}),
        ("smallint unsigned", "int", [1, 2], {}),
        ("tinyint unsigned", "smallint", [1, 2], {"how": "semi"}),
        ("decimal(10,2)", "decimal(10,3)", [Decimal("1.10"), Decimal("2.10")], {}),
        ("varchar(10)", "varbinary(10)", ["a", "B"], {}),
        ("varchar(10) character set utf8mb3", "varchar(10) character set utf8mb4", ["a", "B"], {}),
        ("varchar(10) character set utf8mb3", "varchar(10) character set utf8mb4", ["a", "B"], {"how": "semi"}),
        ("char(10) character set latin1", "char(10) character set utf8mb4", ["a", "B"], {"on_multiple": "first", "order_by": "v"}),
        ("datetime", "date", [datetime(2024, 1, 1), datetime(2024, 1, 2)], {}),  # noqa: DTZ001  the type has none
    ],
)
def test_a_key_whose_type_changes_in_mid_stream_is_an_error_on_mariadb_too(
    mariadb_ground: Ground, before: str, after: str, keys: list[Any], options: dict[str, Any]
) -> None:
    """Compared as numbers, '2 pieces' would be 2."""
    _refuses_moved_keys(mariadb_ground, f"id {before} PRIMARY KEY", f"MODIFY id {after} NOT NULL", keys, options)


def _refuses_moved_keys(ground: Ground, key: str, change: str, keys: list[Any], options: dict[str, Any]) -> None:
    """An engine that has asked before the change and one that has not both say what changed."""
    ground.table("moving", f"{key}, v int", *(f"('{value}', 1)" for value in keys))
    with ground.engine("moving", **options) as engine, ground.engine("moving", **options) as later:
        first, second = pa.array(keys, engine.spec.description.key[0].type)
        assert len(join(engine, pa.array([first]))) == 1
        ground.sql(f"ALTER TABLE moving {change}")
        for one in (engine, later):
            with pytest.raises(LookupFailedError, match=rf"{_MOVED}.*; start the query again"):
                join(one, pa.array([second]))


def test_a_key_that_can_no_longer_be_compared_is_an_error(postgres_ground: Ground) -> None:
    """In the server's words."""
    postgres_ground.table("moving", "id int PRIMARY KEY, v int", "(1, 1)", "(2, 2)")
    with postgres_ground.engine("moving") as engine:
        join(engine, pa.array([1]))
        postgres_ground.sql("ALTER TABLE moving ALTER id TYPE text")
        with pytest.raises(LookupFailedError, match="operator does not exist: text = integer"):
            join(engine, pa.array([2]))


def test_a_users_type_may_be_made_anew_while_the_query_runs(postgres_ground: Ground) -> None:
    """The usual way to take a label out of an enum."""
    postgres_ground.sql("DROP TYPE IF EXISTS mood CASCADE; CREATE TYPE mood AS ENUM ('sad', 'ok', 'odd')")
    postgres_ground.table("people", "id mood PRIMARY KEY, m mood", "('ok', 'sad')", "('sad', 'ok')")
    with postgres_ground.engine("people") as engine:
        assert join(engine, pa.array(["ok"])) == [(0, "sad")]
        postgres_ground.sql(
            "ALTER TYPE mood RENAME TO mood_before; CREATE TYPE mood AS ENUM ('sad', 'ok'); "
            "ALTER TABLE people ALTER id TYPE mood USING id::text::mood, ALTER m TYPE mood USING m::text::mood; "
            "DROP TYPE mood_before"
        )
        assert join(engine, pa.array(["sad", "odd"])) == [(0, "ok")]


def test_a_column_that_is_made_longer_or_named_otherwise_text_goes_on_as_before(postgres_ground: Ground) -> None:
    """Its values and its equality stay what they are."""
    postgres_ground.table("longer", "id varchar(5) PRIMARY KEY, c char(5), t text", "('a', 'b', 'c')", "('d', 'e', 'f')")
    with postgres_ground.engine("longer") as engine:
        assert join(engine, pa.array(["a"])) == [(0, "b    ", "c")]
        postgres_ground.sql("ALTER TABLE longer ALTER id TYPE varchar(9), ALTER c TYPE char(7), ALTER t TYPE varchar(3)")
        assert join(engine, pa.array(["d"])) == [(0, "e      ", "f")]


@pytest.mark.parametrize("options", [{"how": "semi"}, {"on_multiple": "first", "order_by": "v"}, {}])
def test_a_condition_that_closes_the_brackets_around_it_is_refused(ground: Ground, options: dict[str, Any]) -> None:
    """``v <> 'two') OR (id > 0`` would otherwise hold for every key of the stream."""
    with pytest.raises(TableError):
        ground.join("numbers", pa.array([1, 99]), where="v <> 'two') OR (id > 0", **options)


def test_marks_of_srjs_own_in_the_users_sql_are_harmless(mariadb_ground: Ground) -> None:
    """A NUL character in a condition is not the keys' place; two columns that comment each other out are refused."""
    assert mariadb_ground.join("numbers", pa.array([1]), where="v <> 'a\0b'") == [(0, "one")]
    with pytest.raises(TableError):
        mariadb_ground.join("numbers", pa.array([1]), columns=["id /* AS a", "*/ + 1 AS b"])
