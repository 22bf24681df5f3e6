"""Keys of a trace from a Parquet or CSV file, or from a table, piece by piece."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import csv

from srj.errors import RequestError
from srj.quantities import nearest
from srj.tuning.keys import KeySequence

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    Pieces = Iterator[tuple[float | None, Sequence[pa.Array]]]

_KINDS = (".parquet", ".csv")
_BATCH = 1 << 17  # rows
_BLOCK = 1 << 22  # bytes of a CSV file that are read together: longer rows may be refused


def read_trace(
    source: str | Path,
    key: Sequence[str],
    *,
    rows: int | None = None,
    order_by: str | None = None,
    where: str | None = None,
    timeout: float = 30.0,
    progress: Callable[[float | None, int], None] = lambda _share, _rows: None,
) -> KeySequence:
    """Read the keys of a trace in the order of its rows.

    Args:
        source: a Parquet file, a folder of them as Spark writes it, the oldest first, a CSV file with a header, whose empty fields
            are NULL, or ``URL#table``.
        key: the key's columns.
        rows: from the top; None: all.
        order_by: of a table: an SQL ORDER BY list that puts its rows into the stream's order; None: as the server reads them.
        where: of a table: an SQL condition.
        timeout: seconds for each piece of a table.
        progress: called with the share that has been read, None where it is unknown, and the rows so far.

    Raises:
        RequestError: no such file or column, another kind of file, or no key in it.
        DatabaseError: the table can't be read.
    """
    if not key or not all(key):
        raise RequestError("expected the name of a column as the key, got an empty one; name the key's columns")
    if len(set(key)) < len(key):
        raise RequestError(f"expected each column of the key once, got {', '.join(key)}; leave the others out")
    is_table = "://" in str(source)
    if (order_by is not None or where is not None) and not is_table:
        raise RequestError("expected order_by and where only for a table, got a file; leave them out")
    pieces = _of_table(str(source), key, order_by, where, timeout) if is_table else _of_file(Path(source), key)
    remedy = "name another column" if where is None else "correct the condition, or name another column"
    return KeySequence.from_chunks(_first(pieces, rows, progress), remedy)


def _first(pieces: Pieces, most: int | None, progress: Callable[[float | None, int], None]) -> Iterator[Sequence[pa.Array]]:
    done = 0
    for share, columns in pieces:
        kept = columns if most is None else [column.slice(0, most - done) for column in columns]
        done += len(kept[0])
        progress(share, done)
        yield kept
        if most is not None and done >= most:
            return


def _of_file(path: Path, key: Sequence[str]) -> Pieces:
    kind = ".parquet" if path.is_dir() else path.suffix.lower()
    if kind not in _KINDS:
        raise RequestError(
            f"expected a trace that ends with {' or '.join(_KINDS)}, or a table as URL#table, got {path.name!r}; convert it"
        )
    with _readable(path, kind):
        yield from _of_parquet(path, key) if kind == ".parquet" else _of_csv(path, key)


@contextmanager
def _readable(path: Path, kind: str) -> Iterator[None]:
    """Errors that name what can't be read, in one sentence."""
    try:
        yield
    except RequestError:  # a ValueError as well
        raise
    except OSError as error:
        reason = error.strerror or "it can't be read"
        raise RequestError(f"expected a file to read keys from, got {str(path)!r}: {reason}; correct the path") from None
    except pa.ArrowInvalid as error:
        reason = str(error).split("\n")[0]
        if "straddling" in reason:
            reason = f"a row is longer than {_BLOCK >> 20} MiB"
        raise RequestError(f"expected {kind[1:]} in {str(path)!r}, got what can't be read as that: {reason}; convert it") from None
    except ValueError as error:  # a name with NUL, text in another encoding
        raise RequestError(f"expected {kind[1:]} in UTF-8, got {str(path)!r}: {error}; convert it") from None


def _of_parquet(path: Path, key: Sequence[str]) -> Pieces:
    paths, total, done = _files_of(path) if path.is_dir() else [path], 0, 0
    for one in paths:
        with _readable(one, ".parquet"):
            total += pq.read_metadata(one).num_rows
    for one in paths:
        with _readable(one, ".parquet"), pq.ParquetFile(one) as file:
            _check(file.schema_arrow.names, key, one)
            for batch in file.iter_batches(_BATCH, columns=list(key)):
                done += batch.num_rows
                yield done / total, [batch.column(name) for name in key]


def _files_of(folder: Path) -> list[Path]:
    """In the order in which Spark would stream them; what begins with a dot or a line under it is none of the data."""
    paths = (path for path in folder.rglob("*.parquet") if path.is_file())
    found = [path for path in paths if not any(part[0] in "._" for part in path.relative_to(folder).parts)]
    if not found:
        raise RequestError(f"expected a folder with .parquet files, got none in {str(folder)!r}; correct the path")
    return sorted(found, key=lambda path: (path.stat().st_mtime_ns, path))


def _of_csv(path: Path, key: Sequence[str]) -> Pieces:
    total = max(path.stat().st_size, 1)
    # A line's end within quotes is part of the value; without this whether it may be depends on where Arrow's blocks end.
    parsing = csv.ParseOptions(newlines_in_values=True)
    reading = csv.ReadOptions(block_size=_BLOCK)
    with csv.open_csv(path, read_options=reading, parse_options=parsing) as reader:
        _check(reader.schema.names, key, path)
    # As text: a type guessed from the first block may not fit the later ones, and which text it is is all that matters. What is
    # empty has no key; NA, null or NaN are keys like others.
    options = csv.ConvertOptions(
        include_columns=list(key),
        column_types={name: pa.string() for name in key},
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
        null_values=[""],
    )
    with (
        path.open("rb") as file,
        csv.open_csv(file, read_options=reading, parse_options=parsing, convert_options=options) as reader,
    ):
        for batch in reader:
            yield min(file.tell() / total, 1.0), [batch.column(name) for name in key]


def _check(names: list[str], key: Sequence[str], path: Path) -> None:
    for name in key:
        if name not in names:
            raise RequestError(f"expected a column of {path.name!r}, got {name!r}; {nearest(name, names)}")
        if names.count(name) > 1:
            raise RequestError(f"expected one column {name!r} in {path.name!r}, got {names.count(name)}; rename the others")


def _of_table(source: str, key: Sequence[str], order_by: str | None, where: str | None, timeout: float) -> Pieces:
    from srj.databases.base import Question  # noqa: PLC0415  only for a table
    from srj.databases.scanning import scan  # noqa: PLC0415
    from srj.table import Table  # noqa: PLC0415

    table = Table(source)
    question = Question(table.url, table.name, tuple(key), where=where, exists_only=True, order_by=order_by)
    pieces, done = scan(question, timeout), 0

    async def next_piece() -> tuple[int | None, tuple[pa.Array, ...]] | None:
        return await anext(pieces, None)

    # In a thread: a notebook has a loop running already. One loop for all pieces, for the connection belongs to it.
    loop = asyncio.new_event_loop()
    with ThreadPoolExecutor(1) as pool:
        try:
            while (piece := pool.submit(loop.run_until_complete, next_piece()).result()) is not None:
                estimate, columns = piece
                done += len(columns[0])
                yield (None if not estimate else min(done / estimate, 1.0)), columns
        finally:
            pool.submit(loop.run_until_complete, pieces.aclose()).result()
            pool.submit(loop.close).result()
