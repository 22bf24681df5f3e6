"""Values at the ends of types: dates that are in no calendar or beyond Spark's, infinities, NaN; as columns and as keys."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from srj import LookupFailedError
from srj.databases.postgresql_wire import OTHER_DATES
from tests.ground import join
from tests.type_walk import FORMS, described, fetch, plain, walk

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.ground import Ground

_DAY = 86_400_000_000
_UTC = pa.timestamp("us", "UTC")
_LOCAL = pa.timestamp("us")
_INT32, _INT64 = (-(2**31), 2**31 - 1), (-(2**63), 2**63 - 1)
# Days since 1970: the first and the last of PostgreSQL's, of Spark's and of MySQL's years, and their neighbours.
_DAYS = (*_INT32, -2_440_589, -2_440_588, -719_163, -719_162, -1, 0, 2_932_896, 2_932_897, 2_145_042_905, 2_145_042_906)
_MICROS = (*_INT64, *(day * _DAY - step for day in (-2_440_588, -719_162, 0, 2_932_897) for step in (0, 1)), _INT64[1] - 10**15)
_FAR = ("infinity", "-infinity", "4713-11-24 BC", "0001-12-31 BC", "10000-01-01")
_NEAR = ("0001-01-01 00:00Z", "9999-12-31 23:59:59.999999Z")
_LATE = ("294276-12-31 23:59:59",)


@pytest.mark.parametrize(
    ("kind", "far", "near"),
    [
        ("date", (*_FAR, "5874897-12-31"), ("0001-01-01", "9999-12-31")),
        ("timestamp", (*_FAR, *_LATE), _NEAR),
        ("timestamptz", (*_FAR, *_LATE), _NEAR),
        ("numeric(5,1)", ("NaN",), ("-9999.9", "9999.9", "0.04")),
    ],
)
@pytest.mark.parametrize("is_list", [False, True], ids=["value", "list"])
def test_what_spark_has_not_is_an_error_with_the_expression_that_works(
    postgres_ground: Ground, kind: str, far: Sequence[str], near: Sequence[str], is_list: bool
) -> None:
    """It is taken literally, and gives what it gives in the database; other rows of the table are joined as they are."""
    ground = postgres_ground
    values = [*far, *near]
    literals = [f"'{{{value},NULL}}'" if is_list else f"'{value}'" for value in values]
    rows = ", ".join(f"({number}, {literal})" for number, literal in enumerate(literals))
    ground.sql(f'DROP TABLE IF EXISTS odd; CREATE TABLE odd (id int PRIMARY KEY, "the X" {kind}{"[]" if is_list else ""})')
    ground.sql(f"SET timezone = 'UTC'; INSERT INTO odd VALUES {rows}")
    good = list(range(len(far), len(values)))
    with described(ground, "left", ["the X"], "odd", "id") as spec:
        assert _asked(spec, good) == [tuple(map(plain, row)) for row in fetch(ground, _own('"the X"', good))]
        advice = {_refusal(spec, number) for number in range(len(far))}
    assert len(advice) == 1
    (instead,) = advice
    everything = list(range(len(values)))
    with described(ground, "left", [instead], "odd", "id") as spec:
        found = _asked(spec, everything)
    assert found == [tuple(map(plain, row)) for row in fetch(ground, _own(instead, everything))]
    assert [value is None for _, value in found] == [not is_list] * len(far) + [False] * len(near)


def _own(column: str, numbers: Sequence[int]) -> str:
    return f"SELECT id - {numbers[0]}, {column} FROM odd WHERE id >= {numbers[0]} ORDER BY id"


def _asked(spec: Any, numbers: Sequence[int]) -> list[tuple[Any, ...]]:
    return walk(spec, "left", range(len(numbers)), [pa.array(numbers, pa.int32())])


def _refusal(spec: Any, number: int) -> str:
    with pytest.raises(LookupFailedError, match="in column the X, ") as caught:
        walk(spec, "left", [0], [pa.array([number], pa.int32())], FORMS[:1])
    advice = re.search(r"; write (.*) in its place", str(caught.value))
    assert advice is not None
    return advice[1]


@pytest.mark.parametrize("zone", ["Pacific/Kiritimati", "Etc/GMT+12"])
def test_the_expression_does_not_depend_on_the_sessions_zone(postgres_ground: Ground, zone: str) -> None:
    """The last microsecond of 9999 in UTC is kept, and the next is not."""
    postgres_ground.sql("SET timezone = 'UTC'; DROP TABLE IF EXISTS odd; CREATE TABLE odd (id int, x timestamptz)")
    postgres_ground.sql("INSERT INTO odd VALUES (0, '9999-12-31 23:59:59.999999Z'), (1, '10000-01-01Z'), (2, '0001-01-01 00:00Z')")
    url = f"{postgres_ground.url}?timezone={zone}"
    with postgres_ground.engine("odd", url=url, columns=[f"{OTHER_DATES.format('x')} AS x"]) as engine:
        assert [row[1] is None for row in join(engine, pa.array([0, 1, 2], pa.int32()))] == [False, True, False]


@pytest.mark.parametrize(
    ("kind", "arrow", "numbers"),
    [("date", pa.date32(), _DAYS), ("timestamp", _LOCAL, _MICROS), ("timestamptz", _UTC, _MICROS)],
)
def test_keys_beyond_the_years_of_either_side_find_their_rows_or_nothing(
    postgres_ground: Ground, kind: str, arrow: pa.DataType, numbers: Sequence[int]
) -> None:
    """Those that PostgreSQL itself refuses are counted as impossible; infinity in the table is no key's."""
    values = [_moment(postgres_ground, kind, number) for number in numbers]
    held = [f"({at}, {value})" for at, value in enumerate(values) if value is not None]
    postgres_ground.sql(f"DROP TABLE IF EXISTS far; CREATE TABLE far (n int, k {kind} UNIQUE)")
    postgres_ground.sql(f"INSERT INTO far VALUES {', '.join(held)}, (-1, 'infinity'), (-2, '-infinity')")
    expected = [(plain(at), plain(at)) for at, value in enumerate(values) if value is not None]
    integers = pa.array(numbers, pa.int32() if kind == "date" else pa.int64())
    with described(postgres_ground, "inner", ["n"], "far", "k") as spec:
        found = walk(spec, "inner", range(len(numbers)), [integers.view(arrow)], impossible=values.count(None))
    assert found == sorted(expected, key=repr)
    assert 0 < values.count(None) < len(values)


def _moment(ground: Ground, kind: str, number: int) -> str | None:
    """The SQL of a date or a time by its number since 1970; None where PostgreSQL has none."""
    if kind == "date":
        sql = f"date '1970-01-01' + ({number})"
    else:
        days, micros = divmod(number, _DAY)
        sql = f"({kind} '1970-01-01 00:00Z' AT TIME ZONE 'UTC' + ({days}) * interval '1 day' + {micros} * interval '1 microsecond')"
        sql = sql if kind == "timestamptz" else sql.replace(" AT TIME ZONE 'UTC'", "")
        sql = f"{sql} AT TIME ZONE 'UTC'" if kind == "timestamptz" else sql
    try:
        ground.sql(f"SELECT ({sql})::text")
    except Exception:
        return None
    return sql


_ZEROS = "SET sql_mode = 'ALLOW_INVALID_DATES', time_zone = '+00:00'; "
_NO_DAYS = ("0000-00-00", "2024-05-00", "2024-00-01", "0000-05-01", "2024-02-31", "2023-02-29", "1900-02-29")
_GOOD_DAYS = ("0001-01-01", "2024-02-29", "2000-02-29", "9999-12-31")


@pytest.mark.parametrize("kind", ["date", "datetime(6)"])
def test_dates_that_are_in_no_calendar_arrive_as_null_and_are_no_keys(mariadb_ground: Ground, kind: str) -> None:
    """Beside good ones; as text they are what the database has."""
    ground = mariadb_ground
    rows = ", ".join(f"({number}, '{day}', '{day}')" for number, day in enumerate((*_NO_DAYS, *_GOOD_DAYS)))
    ground.sql("DROP TABLE IF EXISTS zeros")
    ground.sql(f"{_ZEROS}CREATE TABLE zeros (id int PRIMARY KEY, k {kind} NULL, v {kind} NULL, KEY (k))")
    ground.sql(f"{_ZEROS}INSERT INTO zeros VALUES {rows}")
    numbers = range(len(_NO_DAYS) + len(_GOOD_DAYS))
    no_days = len(_NO_DAYS)
    own = fetch(ground, f"SELECT id, IF(id < {no_days}, NULL, v), CAST(v AS CHAR) FROM zeros ORDER BY id")
    with described(ground, "left", ["v", "CAST(v AS CHAR) AS text"], "zeros", "id") as spec:
        found = walk(spec, "left", numbers, [pa.array(numbers, pa.int32())])
    assert sorted(found) == sorted(tuple(map(plain, row)) for row in own)
    arrow = pa.date32() if kind == "date" else _LOCAL
    integers = pa.array(_DAYS, pa.int32()) if kind == "date" else pa.array(_MICROS, pa.int64())
    with described(ground, "inner", ["id"], "zeros", "k") as spec:
        good = pa.array(_GOOD_DAYS).cast(pa.timestamp("us")).cast(arrow)
        impossible = sum(not -719_162 <= number // (1 if kind == "date" else _DAY) <= 2_932_896 for number in integers.to_pylist())
        found = walk(spec, "inner", range(4 + len(integers)), [good, integers.view(arrow)], impossible=impossible)
    assert [row for row in found if row[0] < 4] == [(plain(at), plain(no_days + at)) for at in range(4)]
    assert {id_ for _, id_ in found} <= {plain(no_days + at) for at in range(4)}
    assert impossible > 2


@pytest.mark.parametrize(
    ("expression", "advice"),
    [
        ("day + 1 AS later", "CASE WHEN (day + 1) >= "),
        ('n * 2.00::numeric(5,2) AS "Twice"', "CAST(NULLIF((n * 2.00::numeric(5,2)), 'NaN') AS numeric(5,2)) AS \"Twice\""),
        ("ARRAY[day, day] -- both\n AS days", "(ARRAY[day, day] -- both\n)::text[] AS days"),
        ("ARRAY[ARRAY[n]]::text[] AS numbers", "array_to_json((ARRAY[ARRAY[n]]::text[]))::text AS numbers"),
    ],
)
def test_what_to_write_for_an_expression_is_made_of_the_expression(postgres_ground: Ground, expression: str, advice: str) -> None:
    """Its name alone is no column of the table; the message is taken literally here too."""
    ground = postgres_ground
    ground.sql("DROP TABLE IF EXISTS odd; CREATE TABLE odd (id int, day date, n numeric(5,2))")
    ground.sql("INSERT INTO odd VALUES (0, 'infinity', 'NaN'), (1, '2024-02-29', 3)")
    with described(ground, "left", [expression], "odd", "id") as spec, pytest.raises(LookupFailedError) as caught:
        walk(spec, "left", [0], [pa.array([0], pa.int32())], FORMS[:1])
    found = re.search(r"; write (.*) in its place", str(caught.value), re.DOTALL)
    assert found is not None
    assert found[1].startswith(advice)
    with described(ground, "left", [found[1]], "odd", "id") as spec:
        answer = _asked(spec, [0, 1])
    assert answer == [tuple(map(plain, row)) for row in fetch(ground, f"SELECT id, {found[1]} FROM odd ORDER BY id")]
