"""The join of a table with the keys of a stream: as srj's workers make it, without Spark, and as the database itself does."""

from __future__ import annotations

import asyncio
import itertools
import os
import pickle
import tempfile
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any
from uuid import UUID

import asyncpg
import pyarrow as pa
import pymysql

from srj import Batch, Cache
from srj.databases.conversion import check_key_type
from srj.lookup import engine as engines
from srj.lookup.metrics import METRICS
from srj.lookup.shared_cache import SharedCache
from srj.operators.passage import Passage
from srj.operators.worker import in_order, out_of_order
from tests.ground import spec_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from srj.databases.typing import TypeEntry
    from srj.lookup.spec import LookupSpec
    from tests.ground import Ground

HOWS = ("left", "inner", "semi", "anti")
FORMS = ("in order", "out of order")
PASSWORD = "SRJ_TYPES_PASSWORD"  # noqa: S105  the name of a variable
_QUICK = Batch(max_wait="1 ms")  # between batches nothing comes that would be worth waiting for
_FLOATING = (pa.float32(), pa.float64())


@dataclass(frozen=True)
class TypeCase:
    """Values of a type, which a table holds and a stream asks for.

    Attributes:
        entry: the type's entry in the type table.
        sql: the type as the column declares it.
        values: what the table's rows hold; their edges first.
        streams: types of the stream's column; values that one can't hold are not in that stream.
        probes: what the stream asks for besides, which a column of type `probed_as` holds.
        impossible: what it asks for besides, which only `streams` hold.
        counted: of probes and what is impossible, what srj knows to be no value of the column; default: all that is impossible.
        probed_as: the SQL type in which the database's own join has the keys; default: the column's.
        equal: the database's own comparison, where that is not ``=`` alone.
        is_column: whether the values are to come back, or are keys alone.
    """

    entry: TypeEntry
    sql: str
    values: tuple[Any, ...]
    streams: tuple[pa.DataType, ...] = ()
    probes: tuple[Any, ...] = ()
    impossible: tuple[Any, ...] = ()
    counted: tuple[Any, ...] | None = None
    probed_as: str = ""
    equal: str = "walked.k = stream.k"
    is_column: bool = True

    @property
    def keys(self) -> list[Any]:
        """What the stream asks for: some of it twice, and NULL. Numbers of the rows, and more, where the values can be no keys."""
        if not self.streams:
            return [*range(2 * len(self.values)), None]
        return [*self.values, None, *self.probes, *self.values[:3], *self.impossible, None]

    def impossible_among(self, positions: Sequence[int]) -> int:
        """How many of the keys at these positions are to be counted as impossible."""
        counted = [plain(one) for one in (self.impossible if self.counted is None else self.counted)]
        return sum(plain(self.keys[at]) in counted for at in positions)


def literal(value: Any, *, is_postgres: bool) -> str:
    """A Python value as SQL."""
    if value is None:
        return "NULL"
    if isinstance(value, bytes):
        return f"'\\x{value.hex()}'" if is_postgres else f"x'{value.hex()}'"
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, list):
        return literal(f"{{{','.join(map(_element, value))}}}", is_postgres=True)
    if isinstance(value, float):
        return f"'{value!r}'" if is_postgres else repr(value)
    if isinstance(value, int):
        return str(value)
    if isinstance(value, Decimal):
        return "'NaN'" if value.is_nan() else format(value, "f")
    text = value.isoformat(" ") if isinstance(value, datetime) else str(value)
    if not is_postgres:
        return "'" + text.removesuffix("+00:00").replace("\\", "\\\\").replace("'", "''") + "'"
    return "E'" + text.replace("\\", "\\\\").replace("'", "''") + "'"


def _element(value: Any) -> str:
    """An element of PostgreSQL's array literals."""
    if value is None:
        return "NULL"
    text = f"\\x{value.hex()}" if isinstance(value, bytes) else str(value)
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def plain(value: Any, arrow: pa.DataType | None = None) -> Any:
    """A value in a form in which two drivers' values are alike."""
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, float) or arrow in _FLOATING:
        return repr(float(value))
    if isinstance(value, int | Decimal):
        return str(value) if value != value else Fraction(value)  # noqa: PLR0124  NaN alone is not itself
    if isinstance(value, datetime):
        return value.replace(tzinfo=None)
    if isinstance(value, list):
        return [plain(one) for one in value]
    return bytes(value) if isinstance(value, memoryview) else str(value) if isinstance(value, UUID) else value


def fill(ground: Ground, case: TypeCase) -> None:
    """Make the table, two rows for some of its keys, and the stream's keys as another; both of the type's values."""
    kind = case.sql if case.streams else "int"
    held = [*case.values, *case.values[::3], None]
    keys = held if case.streams else range(len(held))
    value_type = case.sql if case.is_column else "int"
    values = [*reversed(held)] if case.is_column else [None] * len(held)
    ground.sql("DROP TABLE IF EXISTS walked; DROP TABLE IF EXISTS stream")
    null = "" if ground.is_postgres else " NULL"
    ground.sql(f"CREATE TABLE walked (n int, k {kind}{null}, v {value_type}{null})")
    ground.sql(f"CREATE TABLE stream (pos int, k {case.probed_as or kind}{null})")
    if case.sql != "BLOB" and not case.sql.startswith("TEXT"):  # whose indexes want a length: asked without one
        ground.sql("CREATE INDEX walked_k ON walked (k)")
    setting = "" if ground.is_postgres else "SET time_zone = '+00:00'; "
    rows = [(number, key, value) for number, (key, value) in enumerate(zip(keys, values, strict=True))]
    ground.sql(f"{setting}INSERT INTO walked VALUES {_rows(rows, ground)}")
    asked = case.keys
    known = len(asked) - len(case.impossible) - 1
    stream = [(at, None if known <= at < len(asked) - 1 else key) for at, key in enumerate(asked)]
    ground.sql(f"{setting}INSERT INTO stream VALUES {_rows(stream, ground)}")


def _rows(rows: Sequence[tuple[Any, ...]], ground: Ground) -> str:
    return ", ".join(f"({', '.join(literal(value, is_postgres=ground.is_postgres) for value in row)})" for row in rows)


def own_join(ground: Ground, how: str, columns: Sequence[str], positions: Sequence[int], equal: str) -> list[tuple[Any, ...]]:
    """What the database answers: (position, value, …) of each row, for the stream's rows at these positions."""
    where = f"pos IN ({', '.join(map(str, positions))})"
    if how in ("semi", "anti"):
        exists = f"EXISTS (SELECT 1 FROM walked WHERE {equal})"
        sql = f"SELECT pos FROM stream WHERE {'NOT ' if how == 'anti' else ''}{exists} AND {where}"
    else:
        selected = ", ".join(["pos", *columns])
        sql = f"SELECT {selected} FROM stream {how.upper()} JOIN walked ON {equal} WHERE {where}"
    return sorted((tuple(map(plain, row)) for row in fetch(ground, sql)), key=repr)


def fetch(ground: Ground, sql: str) -> list[tuple[Any, ...]]:
    """The rows of a statement as the drivers, rather than srj, read them."""
    return asyncio.run(_fetch_postgres(ground, sql)) if ground.is_postgres else _fetch_mysql(ground, sql)


async def _fetch_postgres(ground: Ground, sql: str) -> list[tuple[Any, ...]]:
    connection = await asyncpg.connect(ground.url)
    try:
        return [tuple(row) for row in await connection.fetch(sql)]
    finally:
        await connection.close()


def _fetch_mysql(ground: Ground, sql: str) -> list[tuple[Any, ...]]:
    server = ground.server
    login = {"host": server.host, "port": server.port, "user": server.user, "password": server.password}
    with pymysql.connect(
        **login, ssl_disabled=True, database=ground.name, charset="utf8mb4", init_command="SET time_zone = '+00:00'"
    ) as connection:
        cursor = connection.cursor()
        cursor.execute(sql)
        return list(cursor.fetchall())


@contextmanager
def described(
    ground: Ground, how: str, columns: Sequence[str] | None, table: str = "walked", key: str = "k", **options: Any
) -> Iterator[LookupSpec]:
    """The lookup as the driver describes it, its password a variable's; its engines are closed afterwards."""
    os.environ[PASSWORD] = ground.server.password
    before = set(engines._engines)
    try:
        url = ground.server.url_for(password=f"${{{PASSWORD}}}", database=ground.name)
        yield spec_of(url, table, key, how=how, columns=None if columns is None else list(columns), batch=_QUICK, **options)
    finally:
        for name in set(engines._engines) - before:
            engines._engines.pop(name).close()
        del os.environ[PASSWORD]


def stream_of(keys: Sequence[Any], arrow: pa.DataType) -> tuple[list[int], list[pa.Array]]:
    """The keys that a stream's column of this type can hold, by their positions, and its batches, which are of several lengths."""
    kept = [(at, key) for at, key in enumerate(keys) if holds(arrow, key)]
    array = pa.array([key for _, key in kept], arrow)
    cuts = [0, 1, len(kept) // 3 + 1, len(kept)]
    return [at for at, _ in kept], [array.slice(low, high - low) for low, high in itertools.pairwise(cuts)]


def holds(arrow: pa.DataType, key: Any) -> bool:
    """Whether a stream's column of this type can hold a value."""
    try:
        (back,) = pa.array([key], arrow).to_pylist()
    except (pa.ArrowException, OverflowError, ValueError):
        return False
    return key is None or plain(back) == plain(key)


def walk(
    spec: LookupSpec,
    how: str,
    positions: Sequence[int],
    batches: Sequence[pa.Array],
    forms: Sequence[str] = FORMS,
    impossible: int | None = None,
) -> list[tuple[Any, ...]]:
    """What srj answers, in order and out of order, cold and once more: all four must be alike, and the second ask nothing.

    In order the cache is this process's own; out of order it is a map, in which another worker finds what the first has asked.

    Args:
        spec, how: the lookup.
        positions, batches: as `stream_of` makes them.
        forms: whether in order, out of order, or both.
        impossible: how many keys are to be counted as impossible; None: whatever it be.

    Returns:
        (position, value, …) of each row.
    """
    for column in spec.description.key:
        check_key_type(batches[0].type, column, column.name)
    payload, fingerprint = pickle.dumps(spec), spec.fingerprint()
    several = not spec.description.unique and how in ("left", "inner")
    found = []
    for form in forms:
        name = f"{form}{fingerprint}"
        with _executor() if form == "out of order" else nullcontext():
            for is_warm in (False, True):
                if form == "in order":
                    rows, metrics = _in_order(name, payload, how, several, len(spec.columns), positions, batches)
                else:
                    rows, metrics = _out_of_order(name, payload, how, positions, batches)
                    _leave(name)
                assert metrics["rows"] == len(positions)
                assert impossible is None or metrics["impossible_keys"] == impossible
                assert not is_warm or (metrics["batches"], metrics["misses"], metrics["uncached"]) == (0, 0, 0)
                found.append([tuple(map(plain, row)) for row in rows])
    assert found[1] == found[0]
    results = [sorted(rows, key=repr) for rows in found]
    assert all(result == results[0] for result in results[1:])
    return results[0]


@contextmanager
def _executor() -> Iterator[None]:
    """Workers that start here share their caches."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["SPARK_LOCAL_DIRS"] = folder
        try:
            yield
        finally:
            del os.environ["SPARK_LOCAL_DIRS"]


def _leave(name: str) -> None:
    """The worker ends; what it has put into its cache stays for others, unless the cache is a factory's."""
    engine = engines._engines[name]
    if isinstance(engine.spec.settings.cache, Cache):
        assert isinstance(engine._cache, SharedCache)
        engines._engines.pop(name).close()


_Rows = tuple[list[tuple[Any, ...]], dict[str, int]]


def _in_order(
    fingerprint: str, payload: bytes, how: str, several: bool, columns: int, positions: Sequence[int], batches: Sequence[pa.Array]
) -> _Rows:
    out = list(in_order(fingerprint, payload, how, several, iter(batches)))
    matches = [match for array in out for match in array.field("matches").to_pylist()]
    metrics = _summed([one for array in out for one in array.field("metrics").to_pylist()])
    assert len(matches) == len(positions)
    rows: list[tuple[Any, ...]] = []
    for position, match in zip(positions, matches, strict=True):
        if how in ("semi", "anti"):
            rows += [(position,)] if match == (how == "semi") else []
        else:
            found = match if several else [match] if match is not None else []
            rows += [(position, *one.values()) for one in found]
            rows += [(position, *[None] * columns)] if not found and how == "left" else []
    return rows, metrics


def _out_of_order(fingerprint: str, payload: bytes, how: str, positions: Sequence[int], batches: Sequence[pa.Array]) -> _Rows:
    starts = [sum(map(len, batches[:number])) for number in range(len(batches))]
    whole = [
        pa.record_batch([pa.array(positions[start : start + len(keys)], pa.int64()), keys], names=["pos", "key"])
        for start, keys in zip(starts, batches, strict=True)
    ]
    passage = Passage(how=how, columns=1, keys=1, order="any", punctuate=False, time=None)  # type: ignore[arg-type]  # one of HOWS
    rows: list[tuple[Any, ...]] = []
    metrics: list[list[int] | None] = []
    for batch in out_of_order(fingerprint, payload, pickle.dumps(passage), iter(whole)):
        columns = [column.to_pylist() for column in batch.columns]
        metrics += columns[-1]
        rows += [row[:-1] for row in zip(*columns, strict=True) if how == "left" or row[-1] is None]
    return rows, _summed(metrics)


def _summed(metrics: Sequence[list[int] | None]) -> dict[str, int]:
    taken = [one for one in metrics if one is not None]
    return {name: sum(values) for name, values in zip(METRICS, zip(*taken, strict=True), strict=True)}
