"""What runs inside Spark's Python workers: the core between Arrow batches in and Arrow batches out. No pyspark here."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from srj.databases.lists import shown
from srj.errors import RequestError, SrjError
from srj.lookup.describe import describe
from srj.lookup.engine import engine_for
from srj.lookup.operator import Operator
from srj.lookup.reorder_buffer import NEVER
from srj.lookup.restorer import Restorer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt
    import pandas as pd

    from srj.databases.base import Column
    from srj.lookup.joined import Joined
    from srj.lookup.reorder_buffer import Leaving
    from srj.operators.passage import Passage

# What leaves in one Arrow batch: a batch of keys with very many or very large matches is cut.
_MOST_ROWS = 50_000
_MOST_BYTES = 64_000_000
_METRICS_TYPE = pa.list_(pa.int64())


class _ArrowRows:
    """Whole stream rows as record batches, with their positions as the last column if the order is by a column's."""

    def __init__(self, time: int | None = None) -> None:
        self._time = time

    def take(self, rows: pa.RecordBatch, positions: npt.NDArray[np.int64]) -> pa.RecordBatch:
        return rows.take(pa.array(positions))

    def concat(self, parts: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
        return pa.concat_batches(parts)

    def nbytes(self, rows: pa.RecordBatch) -> int:
        return int(rows.nbytes)

    def positions(self, rows: pa.RecordBatch) -> npt.NDArray[np.int64]:
        column = rows.column(rows.num_columns - 1)
        if column.null_count:
            raise RequestError("expected a position in every row, got NULL; fill it in, or leave position out of Windows")
        return np.asarray(column)

    def times(self, rows: pa.RecordBatch) -> npt.NDArray[np.int64] | None:
        if self._time is None:
            return None
        return np.asarray(rows.column(self._time).view(pa.int64()).fill_null(NEVER))


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
        operator, columns = Operator(engine), engine.spec.description.columns
        for joined in operator.in_order(keys):
            metrics: list[int] | None = operator.take_metrics()
            for _, piece in joined.pieces(_MOST_ROWS, _MOST_BYTES):
                matches = _matched(piece) if how in ("semi", "anti") else (_lists if several else _structs)(piece, columns)
                yield pa.StructArray.from_arrays([matches, _metrics_column(len(matches), metrics)], names=["matches", "metrics"])
                metrics = None


def out_of_order(fingerprint: str, payload: bytes, passage: bytes, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The whole-row operator: stream rows and key columns in; stream rows, table columns, punctuation and metrics out.

    Where a batch may have no output (any `how` but left), one more row, a copy of a stream row, carries the metrics; its last
    column is not NULL, which is how it is told apart and removed.

    Args:
        fingerprint, payload: of the `LookupSpec`.
        passage: a pickled `Passage`.
        batches: of the partition.
    """
    told: Passage = pickle.loads(passage)  # noqa: S301  the driver's own
    carrier: list[pa.RecordBatch] = []

    def split(batch: pa.RecordBatch) -> tuple[pa.RecordBatch, tuple[pa.Array, ...]]:
        if not carrier and batch.num_rows:
            carrier.append(batch.select(range(told.columns)).slice(0, 1))
        first_behind = told.columns + told.keys
        own = [*range(told.columns), *range(first_behind, batch.num_columns)]
        return batch.select(own), tuple(batch.columns[told.columns : first_behind])

    with engine_for(fingerprint, payload) as engine:
        operator, columns = Operator(engine), engine.spec.description.columns
        for leaving in operator.out_of_order(map(split, batches), _ArrowRows(told.time), told.order):
            stream = leaving.rows.select(range(told.columns))
            marks = _Marks(leaving, _time_type(stream, told)) if told.punctuate else None
            for begin, piece in leaving.joined.pieces(_MOST_ROWS, _MOST_BYTES):
                part = slice(begin, begin + len(piece.counts))
                positions, rows = _rows(piece, told.how)
                kept = stream.slice(begin, len(piece.counts))
                if positions is not None:
                    kept = kept.take(pa.array(positions))
                if kept.num_rows:
                    more = [] if marks is None else marks.columns(part, positions)
                    yield _with_metrics(
                        kept, [*shown(rows, columns).columns, *more], operator.take_metrics() if told.how == "left" else None
                    )
        if told.how != "left" and carrier:
            kinds = [*(column.type for column in columns), *(_mark_types(carrier[0], told) if told.punctuate else [])]
            yield _with_metrics(carrier[0], [pa.nulls(1, kind) for kind in kinds], operator.take_metrics())


def _rows(joined: Joined, how: str) -> tuple[npt.NDArray[np.int64] | None, pa.RecordBatch]:
    """Which stream rows leave (None: each once), and the table rows beside them."""
    if how == "left":
        return joined.outer()
    if how == "inner":
        return joined.inner()
    return ((joined.counts > 0) == (how == "semi")).nonzero()[0], joined.source.select([])


@dataclass(frozen=True)
class _Marks:
    """Punctuation of stream rows that leave.

    Attributes:
        leaving: the rows.
        kind: the type of their event time; None: none is told.
    """

    leaving: Leaving[pa.RecordBatch]
    kind: pa.DataType | None

    def columns(self, part: slice, positions: npt.NDArray[np.int64] | None) -> list[pa.Array]:
        """Of some of the rows, each as often as it leaves: its number, all that has left, the oldest time that has not."""
        leaving = self.leaving
        numbers, below = leaving.arrivals[part], leaving.all_left_below()[part]
        positions = np.arange(len(numbers)) if positions is None else positions
        # A row has not left before the last of its matches has.
        unfinished = np.append(positions[1:] == positions[:-1], False)
        numbers, below = numbers[positions], below[positions]
        columns = [pa.array(numbers), pa.array(np.where(unfinished, np.minimum(below, numbers), below))]
        if self.kind is not None and leaving.times is not None:
            own, since = leaving.times[part][positions], leaving.pending_since()[part][positions]
            since = np.where(unfinished, np.minimum(since, own), since)
            columns.append(pa.array(since, mask=since == NEVER).view(self.kind))
        return columns


def _time_type(stream: pa.RecordBatch, told: Passage) -> pa.DataType | None:
    return None if told.time is None else stream.schema.field(told.time).type


def _mark_types(stream: pa.RecordBatch, told: Passage) -> list[pa.DataType]:
    kind = _time_type(stream, told)
    return [pa.int64(), pa.int64(), *([] if kind is None else [kind])]


def restore_order(
    kept: list[int], partition: int, row: int, below: int, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Rows in the order of their arrival, from those of a punctuated join.

    Args:
        kept: which columns go on.
        partition, row, below: which are the punctuation.
        batches: of the partition; rows of several input partitions may be mixed.
    """
    restorers: dict[int, Restorer] = {}
    names = [f"c{number}" for number in range(len(kept))]
    for batch in batches:
        if any(batch.column(mark).null_count for mark in (partition, row, below)):
            raise RequestError(
                "expected the punctuation of a join in every row, got NULL; restore the order before such rows are added"
            )
        partitions = np.asarray(batch.column(partition))
        for number in np.unique(partitions).tolist():
            mine = batch if (partitions == number).all() else batch.filter(pa.array(partitions == number))
            if mine.num_rows:
                marks = np.asarray(mine.column(below))
                rows = mine.select(kept).rename_columns(names)
                yield restorers.setdefault(number, Restorer()).add(rows, np.asarray(mine.column(row)), int(marks.max()))
    for restorer in restorers.values():
        yield restorer.rest()


def out_of_order_pandas(
    fingerprint: str,
    payload: bytes,
    passage: bytes,
    schema: pa.Schema,
    zone: str,
    frames: Iterator[pd.DataFrame],
) -> Iterator[pd.DataFrame]:
    """`out_of_order` over pandas frames, whose columns have the same names.

    Integers with NULLs stay Python objects: as floats they would lose digits.

    Args:
        fingerprint, payload, passage: as for `out_of_order`.
        schema: of the frames that come in.
        zone: the session's time zone, in whose local time Spark hands instants to pandas.
        frames: stream rows with the key columns appended.
    """
    instants = [field.name for field in schema if pa.types.is_timestamp(field.type) and field.type.tz is not None]

    def batch(frame: pd.DataFrame) -> pa.RecordBatch:
        # ambiguous=False as Spark does on the way back: the hour that comes twice a year is taken for the second.
        zoned = {name: frame[name].dt.tz_localize(zone, ambiguous=False) for name in instants}
        return pa.RecordBatch.from_pandas(frame.assign(**zoned), schema=schema, preserve_index=False)

    for joined in out_of_order(fingerprint, payload, passage, map(batch, frames)):
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


def _structs(joined: Joined, columns: Sequence[Column]) -> pa.Array:
    rows = shown(joined.outer()[1], columns)
    missing = joined.counts == 0
    mask = pa.array(missing) if missing.any() else None
    if not rows.num_columns:
        return pa.array(np.ones(len(missing), bool), mask=missing)
    return pa.StructArray.from_arrays(rows.columns, names=_field_names(rows), mask=mask)


def _lists(joined: Joined, columns: Sequence[Column]) -> pa.Array:
    rows = shown(joined.inner()[1], columns)
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


def _with_metrics(stream: pa.RecordBatch, more: list[pa.Array], metrics: list[int] | None) -> pa.RecordBatch:
    columns = [*stream.columns, *more, _metrics_column(stream.num_rows, metrics)]
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
