"""A column of the user's own file as a trace."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import csv

from srj.errors import RequestError
from srj.experiments.traces.trace import Trace
from srj.quantities import nearest

_KINDS = (".parquet", ".csv")


def file(*, path: str | Path, column: str, length: int | None = None) -> Trace:
    """The values of a column, numbered as they first appear; rows without a value are left out.

    Args:
        path: a Parquet or CSV file with named columns, its rows in the stream's order.
        column: which.
        length: rows from the top; None: all.

    Raises:
        RequestError: no such file or column, or another kind of file.
    """
    path = Path(path)
    if path.suffix.lower() not in _KINDS:
        raise RequestError(f"expected a file that ends with {' or '.join(_KINDS)}, got {path.name!r}; convert it")
    if path.is_dir():
        raise RequestError(f"expected a file to read keys from, got {str(path)!r}, which is a folder; name a file in it")
    try:
        values = _read(path, column)
    except OSError as error:
        raise RequestError(f"expected a file to read keys from, got {str(path)!r}, which can't be read: {error.strerror}") from None
    except pa.ArrowException as error:
        raise RequestError(f"expected {path.suffix[1:]} in {str(path)!r}, got what can't be read as that: {error}") from None
    values = values.slice(0, length).drop_null().combine_chunks()
    try:
        codes = np.asarray(values.dictionary_encode().indices.to_numpy(), np.int64)
    except pa.ArrowException:
        raise RequestError(
            f"expected keys of a plain type in column {column!r} of {str(path)!r}, got {values.type}; name another column"
        ) from None
    if not len(codes):
        raise RequestError(f"expected keys in column {column!r} of {str(path)!r}, got none; name another column")
    return Trace("file", f"column {column} of {path.name}", "your own", len(codes), int(codes.max()) + 1, lambda: [codes])


def _read(path: Path, column: str) -> pa.ChunkedArray:
    if path.suffix.lower() == ".parquet":
        names = pq.read_schema(path).names
        _check(names, column, path)
        return pq.read_table(path, columns=[column]).column(0)
    with csv.open_csv(path) as reader:
        _check(reader.schema.names, column, path)
    # As text, as keys are only numbered: a number read from it could be rounded, and be another's.
    as_text = csv.ConvertOptions(
        include_columns=[column], column_types={column: pa.string()}, null_values=[""], strings_can_be_null=True
    )
    return csv.read_csv(path, convert_options=as_text).column(0)


def _check(names: list[str], column: str, path: Path) -> None:
    if column not in names:
        raise RequestError(f"expected a column of {path.name!r}, got {column!r}; {nearest(column, names)}")
