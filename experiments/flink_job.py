"""Apache Flink's lookup join of a stream of keys with a table, as a way to compare with: run by the Python of `make flink`.

It imports nothing of srj, as it runs where srj is not installed. One request in JSON on standard input:

.. code-block:: json

    {"url": "postgresql://user:password@host:port/database", "table": "shop", "key": "id", "keys": "keys.parquet",
     "warm": 1000, "cache_rows": 500, "parallelism": 2, "burst": 5000, "output": "joined.parquet"}

``keys`` has a column ``id`` (int64) in the order of arrival; the first ``warm`` rows only fill the cache; ``cache_rows`` 0 is no
cache; ``output`` null: no rows are wanted. ``columns`` (default: those of the experiments' relation) gives the table's other
columns by name as BIGINT, INT, DOUBLE or STRING. One line of JSON on standard output, of the rows after ``warm``:

.. code-block:: json

    {"rows": 99000, "seconds": 12.3, "delays_ms": {"p50": 7, "p99": 9}, "queries": null, "output": "joined.parquet",
     "version": "2.0.2"}

or ``{"error": one sentence}``. How it is measured:

- The keys are laid out as a CSV file for each parallel subtask, every second row to each of two, as a log of two partitions would
  have them: Flink's Parquet needs Hadoop, and so source, lookup and sink are one chain in one thread, Flink's fastest plan.
- JDBC's lookup is synchronous: one key a query, waited for; Flink's options for asynchronous lookups don't touch it. The cache
  (``lookup.cache`` = PARTIAL) is one for all subtasks of a process, and remembers absent keys.
- One job joins warm and measured rows. SQL stamps each row when it was read and when it had been joined; ``seconds`` are from the
  first stamp of a measured row to the last, so neither the start of Java and of the job nor the first rows count. Java compiles
  as it goes: warm up with some 10,000 rows, even where there is no cache to fill.
- With ``output`` all joined rows are written as CSV inside the measured time, and turned to Parquet after it. Without, only one of
  61 (and those without a match) is written, and the others are thrown away once they are joined with all their columns: where
  nearly all rows are found in the cache that is much faster.
- ``delays_ms`` are those of bursts: of each ``burst`` rows after the warm ones (default 1), from when a subtask reads the first of
  its share until it has joined a row. The stream is as fast as the join, so that each burst begins when the one before has been
  joined. In whole milliseconds as SQL's clock has them; null, with ``delays_why``, where that is too coarse.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote, urlsplit

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

_DIALECTS = {
    "postgresql": ("postgresql", 5432),
    "postgres": ("postgresql", 5432),
    "mysql": ("mysql", 3306),
    "mariadb": ("mysql", 3306),
}
_SHAPE = "postgresql://user:password@host:port/database, or mysql://"
_COLUMNS = {"name": "STRING", "price": "DOUBLE", "quantity": "INT"}  # of the experiments' relation
_DAY = 86_400_000  # milliseconds
_SAMPLED = 61  # one row of so many; a prime, so that it is not always the same subtask's
_COARSE = 5  # milliseconds: below, a clock that counts whole ones says little
_NULL = "\\N"  # in CSV, as an empty text is a value


class JobError(Exception):
    """Why there are no figures, in one sentence without passwords."""


@dataclass(frozen=True)
class Request:
    """What to join; see the module."""

    jdbc: str
    user: str | None
    password: str | None = field(repr=False)
    table: str
    key: str
    keys: str
    warm: int
    cache_rows: int
    parallelism: int
    burst: int
    output: str | None
    columns: Mapping[str, str]


def parse(request: Any) -> Request:
    """Read a request.

    >>> request = {"url": "postgresql://reader:secret@db/shop", "table": "items", "key": "id", "keys": "keys.parquet"}
    >>> parse(request).jdbc, parse(request).cache_rows
    ('jdbc:postgresql://db:5432/shop', 0)

    Raises:
        JobError: it can't be right.
    """
    if not isinstance(request, dict):
        raise JobError(
            f"expected a JSON object with url, table, key and keys, got one of type {type(request).__name__}; correct it"
        )
    texts = {name: _text(request, name) for name in ("url", "table", "key", "keys")}
    output, columns = request.get("output"), request.get("columns") or _COLUMNS
    if output is not None and not isinstance(output, str):
        raise JobError(f"expected a path or null for output, got {output!r}; correct it")
    if not isinstance(columns, dict) or not set(columns.values()) <= {"BIGINT", "INT", "DOUBLE", "STRING"}:
        raise JobError(f"expected columns by name as BIGINT, INT, DOUBLE or STRING, got {columns!r}; cast the others in a view")
    jdbc, user, password = jdbc_url(texts.pop("url"))
    return Request(
        jdbc=jdbc,
        user=user,
        password=password,
        **texts,
        warm=_count(request, "warm", 0, 0),
        cache_rows=_count(request, "cache_rows", 0, 0),
        parallelism=_count(request, "parallelism", 2, 1),
        burst=_count(request, "burst", 1, 1),
        output=output,
        columns=columns,
    )


def jdbc_url(url: str) -> tuple[str, str | None, str | None]:
    """A URL as JDBC has it, without its login; user; password.

    >>> jdbc_url("mariadb://reader:a%2Fb@[::1]/shop")
    ('jdbc:mysql://[::1]:3306/shop', 'reader', 'a/b')

    Raises:
        JobError: it can't be read; what was given is not told, as it may hold a password.
    """
    try:
        parts = urlsplit(url)
        dialect, port = _DIALECTS[parts.scheme]
        host, port = parts.hostname or "", parts.port or port
    except (KeyError, ValueError):
        raise JobError(f"expected a URL of the form {_SHAPE}, got one that can't be read as such; correct it") from None
    if not host or not parts.path.strip("/"):
        raise JobError(f"expected a URL of the form {_SHAPE}, got one without {'a database' if host else 'a host'}; add it")
    place = f"{f'[{host}]' if ':' in host else host}:{port}"
    query = f"?{parts.query}" if parts.query else ""
    user, password = (None if text is None else unquote(text) for text in (parts.username, parts.password))
    return f"jdbc:{dialect}://{place}{parts.path}{query}", user, password


def sentence(error: BaseException, password: str | None) -> str:
    r"""An error as one sentence: of Java's chains of causes the last, and the password masked wherever it stands.

    >>> sentence(ValueError("Failed.\nCaused by: java.sql.SQLException: no table: x, secret\n\tat a.b(C.java:1)"), "secret")
    'expected Flink to join the rows, got: java.sql.SQLException: no table: x, ***'
    """
    text = f"{error}".strip()
    causes = re.findall(r"^\s*Caused by: (.*?)(?=\n\s*(?:at |\.\.\. |Caused by: )|\Z)", text, re.MULTILINE | re.DOTALL)
    if not isinstance(error, JobError):
        told = causes[-1] if causes else f"{type(error).__name__}: {text.splitlines()[0] if text else ''}"
        text = f"expected Flink to join the rows, got: {' '.join(told.split()).rstrip(': ')}"
    for secret in sorted({password or "", quote(password or "", safe="")} - {""}, key=len, reverse=True):
        text = text.replace(secret, "***")
    return text


def statements(request: Request, source: str, sink: str, rows: int) -> list[str]:
    """The job in SQL: the keys, the table and the output as tables, and the join, of so many rows.

    >>> request = parse({"url": "mysql://db/shop", "table": "items", "key": "id", "keys": "k", "cache_rows": 9, "output": "o"})
    >>> print(statements(request, "/keys", "/out", 100)[-1])
    INSERT INTO joined SELECT k.n, k.id, d.`name`, d.`price`, d.`quantity`, k.read_at, CAST(CURRENT_ROW_TIMESTAMP() AS TIME(3))
    FROM (SELECT *, CAST(CURRENT_ROW_TIMESTAMP() AS TIME(3)) AS read_at FROM arriving) AS k
    LEFT JOIN looked_up FOR SYSTEM_TIME AS OF k.arrived AS d ON k.id = d.`id`
    """
    options = {"connector": "jdbc", "url": request.jdbc, "table-name": request.table}
    options |= {"username": request.user} if request.user is not None else {}
    options |= {"password": request.password} if request.password is not None else {}
    if request.cache_rows:
        options |= {"lookup.cache": "PARTIAL", "lookup.partial-cache.max-rows": f"{request.cache_rows}"}
    files = {"connector": "filesystem", "format": "csv", "csv.null-literal": _NULL}
    columns = ", ".join(f"{_name(name)} {kind}" for name, kind in request.columns.items())
    taken = ", ".join(f"d.{_name(name)}" for name in request.columns)
    # Not a TIMESTAMP: as text in CSV that takes several times as long.
    clock = "CAST(CURRENT_ROW_TIMESTAMP() AS TIME(3))"
    join = (
        f"INSERT INTO joined SELECT k.n, k.id, {taken}, k.read_at, {clock}\n"
        f"FROM (SELECT *, {clock} AS read_at FROM arriving) AS k\n"
        f"LEFT JOIN looked_up FOR SYSTEM_TIME AS OF k.arrived AS d ON k.id = d.{_name(request.key)}"
    )
    if request.output is None:
        # The table's column keeps the condition above the join: rows that are not written shall have been looked up. And the first
        # and last rows of each subtask are written, as they give the time, and the first of each burst.
        ends = f"k.n >= {rows - request.parallelism} OR k.n BETWEEN {request.warm} AND {request.warm + request.parallelism - 1}"
        if request.burst > 1:
            ends += f" OR (k.n > {request.warm} AND MOD(k.n - {request.warm}, {request.burst}) < {request.parallelism})"
        join += f"\nWHERE MOD(k.n, {_SAMPLED}) = 0 OR {ends} OR d.{_name(request.key)} IS NULL"
    output = f"n BIGINT, {_name(request.key)} BIGINT, {columns}, read_at TIME(3), joined_at TIME(3)"
    return [
        f"CREATE TABLE arriving (n BIGINT, id BIGINT, arrived AS PROCTIME()) WITH ({_options(files | {'path': source})})",
        f"CREATE TABLE looked_up ({_name(request.key)} BIGINT, {columns}) WITH ({_options(options)})",
        f"CREATE TABLE joined ({output}) WITH ({_options(files | {'path': sink})})",
        join,
    ]


def figures(stamped: pa.Table, rows: int, request: Request, started: int) -> dict[str, Any]:
    """Rows, seconds and delays of what is past ``warm``, from rows with n and their two stamps, milliseconds of the day.

    Args:
        stamped: columns n, read_at and joined_at; those that were written.
        rows: of the whole stream.
        request: what was asked.
        started: milliseconds of the day before any stamp: a job may run over midnight.
    """
    import numpy as np  # noqa: PLC0415  the tests of the rest do without

    number = stamped["n"].to_numpy() - request.warm
    read, joined = ((stamped[name].cast("int32").to_numpy().astype(np.int64) - started) % _DAY for name in ("read_at", "joined_at"))
    measured = number >= 0
    number, read, joined = number[measured], read[measured], joined[measured]
    # Of each burst each subtask has a share, which begins when it reads the first of it.
    shares = number // request.burst * request.parallelism + number % request.parallelism
    _, share = np.unique(shares, return_inverse=True)
    begun = np.full(share.max() + 1, np.iinfo(np.int64).max)
    np.minimum.at(begun, share, read)
    delays = joined - begun[share]
    is_sampled = (number + request.warm) % _SAMPLED == 0
    if request.output is None and request.burst > 1 and is_sampled.any():
        delays = delays[is_sampled]  # without the first ones, which all were written
    p50, p99 = (int(delay) for delay in np.quantile(delays, [0.5, 0.99], method="nearest"))
    told: dict[str, Any] = {"delays_ms": {"p50": p50, "p99": p99}}
    if p50 < _COARSE:
        why = f"SQL's clock has whole milliseconds, and the median delay is less than {_COARSE} of them"
        told = {"delays_ms": None, "delays_why": why}
    return {"rows": rows - request.warm, "seconds": int(joined.max() - read.min()) / 1000, **told}


def run(request: Request) -> dict[str, Any]:
    """Join, and give the figures.

    Raises:
        JobError: it can't be done as asked.
    """
    try:
        import pyarrow.parquet as pq  # noqa: PLC0415
        from pyflink.table import EnvironmentSettings, TableEnvironment  # noqa: PLC0415
        from pyflink.version import __version__  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise JobError(
            f"expected the package {error.name}, which is missing here; run this by the Python that `make flink` tells"
        ) from None
    keys = pq.read_table(request.keys, columns=["id"])
    if keys.num_rows < request.warm + request.parallelism:
        raise JobError(
            f"expected more than {request.warm} keys, and one more for each of {request.parallelism} subtasks, "
            f"got {keys.num_rows}; give more, or warm up with fewer"
        )
    with tempfile.TemporaryDirectory(prefix="srj-flink-") as folder:
        source, sink = Path(folder, "keys"), Path(folder, "joined")
        _lay_out(keys, source, request.parallelism)
        environment = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
        environment.get_config().set("parallelism.default", f"{request.parallelism}")
        environment.get_config().set("table.local-time-zone", "UTC")
        started = int(time.time() * 1000) % _DAY
        for sql in statements(request, source.as_uri(), sink.as_uri(), keys.num_rows):
            result = environment.execute_sql(sql)
        result.wait()
        written = _written(sink, request)
    if request.output is None:
        _check_sampled(written["n"].to_pylist(), keys.num_rows)
    answer = figures(written, keys.num_rows, request, started)
    if request.output is not None:
        pq.write_table(written.drop_columns(["n", "read_at", "joined_at"]), request.output)
    queries = None if request.cache_rows else answer["rows"]
    return {**answer, "queries": queries, "output": request.output, "version": __version__}


def _check_sampled(written: list[int], rows: int) -> None:
    """Each row that is written though the others are not shall be there once."""
    expected = range(0, rows, _SAMPLED)
    sampled = sorted(number for number in written if number % _SAMPLED == 0)
    if sampled != list(expected):
        raise JobError(f"expected each of {len(expected)} sampled rows once, got {len(sampled)}; run it again")


def _lay_out(keys: pa.Table, folder: Path, parallelism: int) -> None:
    """A file for each subtask; columns: the row's number, and its key."""
    import pyarrow as pa  # noqa: PLC0415
    from pyarrow import csv  # noqa: PLC0415

    folder.mkdir()
    ids = pa.array(keys["id"].to_pylist(), pa.int64())
    for subtask in range(parallelism):
        numbers = pa.array(range(subtask, len(ids), parallelism), pa.int64())
        path = folder / f"{subtask}.csv"
        csv.write_csv(pa.table({"n": numbers, "id": ids.take(numbers)}), path, csv.WriteOptions(include_header=False))


def _written(folder: Path, request: Request) -> pa.Table:
    """What the job wrote; each subtask has files of its own, named part-…-SUBTASK-NUMBER."""
    import pyarrow as pa  # noqa: PLC0415
    from pyarrow import csv  # noqa: PLC0415

    kinds = {"BIGINT": pa.int64(), "INT": pa.int32(), "DOUBLE": pa.float64(), "STRING": pa.string()}
    stamp = pa.time32("ms")
    types = {"n": pa.int64(), request.key: pa.int64(), **{name: kinds[kind] for name, kind in request.columns.items()}}
    types |= {"read_at": stamp, "joined_at": stamp}
    parts = [path for path in folder.iterdir() if path.name.startswith("part-") and path.stat().st_size]
    subtasks = len({path.name.split("-")[-2] for path in parts})
    if subtasks != request.parallelism:
        raise JobError(
            f"expected {request.parallelism} subtasks to read a file of keys each, got {subtasks} that did; run it again"
        )
    reading = csv.ReadOptions(column_names=list(types))
    parsing = csv.ParseOptions(newlines_in_values=True)
    converting = csv.ConvertOptions(
        column_types=types, null_values=[_NULL], strings_can_be_null=True, quoted_strings_can_be_null=False
    )
    return pa.concat_tables([csv.read_csv(path, reading, parsing, converting) for path in parts])


def _text(request: Mapping[str, Any], name: str) -> str:
    value = request.get(name)
    if not isinstance(value, str) or not value:
        got = "nothing" if value in (None, "") else f"one of type {type(value).__name__}"  # not the value: a URL has a password
        raise JobError(f"expected a text for {name}, got {got}; add it")
    return value


def _count(request: Mapping[str, Any], name: str, default: int, least: int) -> int:
    value = request.get(name)
    if value is None:
        return default
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise JobError(f"expected a whole number from {least} for {name}, got {value!r}; correct it")
    return value


def _name(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


def _options(options: Mapping[str, str]) -> str:
    return ", ".join(f"'{name}' = '{value.replace(chr(39), chr(39) * 2)}'" for name, value in options.items())


def main(arguments: Sequence[str] = ()) -> None:
    """Answer one request."""
    if arguments:
        print(__doc__)
        return
    # Java and its loggers write to standard output as well; the answer alone shall stand there.
    answers = os.dup(1)
    os.dup2(2, 1)
    password = None
    try:
        request = parse(json.load(sys.stdin))
        password = request.password
        answer = run(request)
    except Exception as error:  # whatever it was, the one who asked is told
        answer = {"error": sentence(error, password)}
    with os.fdopen(answers, "w") as stream:
        print(json.dumps(answer), file=stream)


if __name__ == "__main__":
    main(sys.argv[1:])
