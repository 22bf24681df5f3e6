"""What runs inside Spark's Python workers: the core between Arrow batches in and Arrow batches out. No pyspark here."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from srj.errors import SrjError
from srj.lookup.describe import describe
from srj.lookup.engine import engine_for
from srj.lookup.operator import Operator

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt
    import pandas as pd

    from srj.lookup.joined import Joined

# What leaves in one Arrow batch: a batch of keys with very many or very large matches is cut.
_MOST_ROWS = 50_000
_MOST_BYTES = 64_000_000
_METRICS_TYPE = pa.list_(pa.int64())


class _ArrowRows:
    """Whole stream rows as record batches."""

    def take(self, rows: pa.RecordBatch, positions: npt.NDArray[np.int64]) -> pa.RecordBatch:
        return rows.take(pa.array(positions))

    def nbytes(self, rows: pa.RecordBatch) -> int:
        return int(rows.nbytes)


def in_order(fingerprint: str, payload: bytes, how: str, several: bool, batches: Iterator[Any]) -> Iterator[pa.Array]:
    """The key-only operator: key columns in, a struct of the matches and the metrics out, row by row in the same order.

    Args:
        fingerprint, payload: of the `LookupSpec`.
        how: left, inner, semi or anti.
        several: the matches of a row are a list of structs; else one struct, or NULL.
        batches: an array a batch, or a tuple of arrays where the key has several columns.
    """
    keys = ((batch,) if isinstance(batch, pa.Array) else tuple(batch) for batch in batches)
    with engine_for(fingerprint, payload) as engine:
        operator = Operator(engine)
        for joined in operator.in_order(keys):
            metrics: list[int] | None = operator.take_metrics()
            for _, piece in joined.pieces(_MOST_ROWS, _MOST_BYTES):
                matches = _matched(piece) if how in ("semi", "anti") else _lists(piece) if several else _structs(piece)
                yield pa.StructArray.from_arrays([matches, _metrics_column(len(matches), metrics)], names=["matches", "metrics"])
                metrics = None


def out_of_order(
    fingerprint: str, payload: bytes, how: str, key_count: int, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The whole-row operator: stream rows with the key columns appended in, stream rows with table columns and metrics out.

    Where a batch may have no output (any `how` but left), one more row, a copy of a stream row, carries the metrics; its last
    column is not NULL, which is how it is told apart and removed.
    """
    carrier: list[pa.RecordBatch] = []

    def split(batch: pa.RecordBatch) -> tuple[pa.RecordBatch, tuple[pa.Array, ...]]:
        own = batch.num_columns - key_count
        stream = batch.select(range(own))
        if not carrier and batch.num_rows:
            carrier.append(stream.slice(0, 1))
        return stream, tuple(batch.columns[own:])

    with engine_for(fingerprint, payload) as engine:
        operator = Operator(engine)
        for stream, joined in operator.out_of_order(map(split, batches), _ArrowRows()):
            for begin, piece in joined.pieces(_MOST_ROWS, _MOST_BYTES):
                kept, rows = _rows(stream.slice(begin, len(piece.counts)), piece, how)
                if kept.num_rows:
                    yield _with_metrics(kept, rows, operator.take_metrics() if how == "left" else None)
        if how != "left" and carrier:
            nulls = pa.RecordBatch.from_arrays([pa.nulls(1, field.type) for field in operator.columns], schema=operator.columns)
            yield _with_metrics(carrier[0], nulls, operator.take_metrics())


def _rows(stream: pa.RecordBatch, joined: Joined, how: str) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """The stream rows and table rows that leave, side by side."""
    positions: npt.NDArray[np.int64] | None
    if how == "left":
        positions, rows = joined.outer()
    elif how == "inner":
        positions, rows = joined.inner()
    else:
        positions, rows = ((joined.counts > 0) == (how == "semi")).nonzero()[0], joined.source.select([])
    return stream if positions is None else stream.take(pa.array(positions)), rows


def out_of_order_pandas(
    fingerprint: str,
    payload: bytes,
    how: str,
    key_count: int,
    schema: pa.Schema,
    zone: str,
    frames: Iterator[pd.DataFrame],
) -> Iterator[pd.DataFrame]:
    """`out_of_order` over pandas frames, whose columns have the same names.

    Integers with NULLs stay Python objects: as floats they would lose digits.

    Args:
        fingerprint, payload, how, key_count: as for `out_of_order`.
        schema: of the frames that come in.
        zone: the session's time zone, in whose local time Spark hands instants to pandas.
        frames: stream rows with the key columns appended.
    """
    instants = [field.name for field in schema if pa.types.is_timestamp(field.type) and field.type.tz is not None]

    def batch(frame: pd.DataFrame) -> pa.RecordBatch:
        # ambiguous=False as Spark does on the way back: the hour that comes twice a year is taken for the second.
        zoned = {name: frame[name].dt.tz_localize(zone, ambiguous=False) for name in instants}
        return pa.RecordBatch.from_pandas(frame.assign(**zoned), schema=schema, preserve_index=False)

    for joined in out_of_order(fingerprint, payload, how, key_count, map(batch, frames)):
        yield joined.to_pandas(integer_object_nulls=True)


def describe_there(question: bytes, timeout: float, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Describe a table from a worker, for a driver that can't connect itself: one row with the pickled outcome."""
    for _ in batches:
        pass
    try:
        outcome: object = describe(pickle.loads(question), timeout)  # noqa: S301  the driver's own
    except SrjError as error:
        outcome = error
    yield pa.record_batch({"outcome": pa.array([pickle.dumps(outcome)], pa.binary())})


def _structs(joined: Joined) -> pa.Array:
    _, rows = joined.outer()
    missing = joined.counts == 0
    mask = pa.array(missing) if missing.any() else None
    if not rows.num_columns:
        return pa.array(np.ones(len(missing), bool), mask=missing)
    return pa.StructArray.from_arrays(rows.columns, names=_field_names(rows), mask=mask)


def _lists(joined: Joined) -> pa.Array:
    _, rows = joined.inner()
    offsets = np.zeros(len(joined.counts) + 1, np.int32)
    np.cumsum(joined.counts, out=offsets[1:])
    values = (
        pa.StructArray.from_arrays(rows.columns, names=_field_names(rows))
        if rows.num_columns
        else pa.array(np.ones(offsets[-1], bool))
    )
    return pa.ListArray.from_arrays(pa.array(offsets), values)


def _field_names(rows: pa.RecordBatch) -> list[str]:
    """Numbered, as the driver declares them: Spark matches a struct's fields by name, and fills in NULL where one is missing."""
    return [f"c{position}" for position in range(rows.num_columns)]


def _matched(joined: Joined) -> pa.Array:
    return pa.array(joined.counts > 0)


def _with_metrics(stream: pa.RecordBatch, rows: pa.RecordBatch, metrics: list[int] | None) -> pa.RecordBatch:
    columns = [*stream.columns, *rows.columns, _metrics_column(stream.num_rows, metrics)]
    return pa.RecordBatch.from_arrays(columns, names=[f"c{position}" for position in range(len(columns))])


def _metrics_column(length: int, metrics: list[int] | None) -> pa.Array:
    """The metrics on the first row, NULL on the others: four bytes a row."""
    if metrics is None or length == 0:
        return pa.nulls(length, _METRICS_TYPE)
    offsets = np.full(length + 1, len(metrics), np.int32)
    offsets[0] = 0
    valid = np.zeros((length + 7) // 8, np.uint8)
    valid[0] = 1
    values = pa.array(metrics, pa.int64())
    return pa.Array.from_buffers(_METRICS_TYPE, length, [pa.py_buffer(valid), pa.py_buffer(offsets)], length - 1, children=[values])
