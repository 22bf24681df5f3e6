"""A batch's keys as whole columns: hashes, distinct keys, Python values."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from srj.lookup.encoding import EncodedKeys, encode_keys

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    import numpy.typing as npt


# The one NaN among the Python values: no NaN equals another, but a dict finds an object by its identity first.
_NAN = float("nan")


@dataclass(frozen=True)
class Keys:
    """n keys, each of one value a key column, none of them NULL.

    Attributes:
        columns: an array a key column, each of length n, of the table's key types (`KeyColumn.type`); every NaN in the same bits,
            and no -0, as `of` makes it.
    """

    columns: tuple[pa.Array, ...]

    @staticmethod
    def of(columns: Sequence[pa.Array]) -> Keys:
        """Keys of any bits: all NaN, of which there are many, become the one that equals itself, and -0 becomes 0.

        So they are to databases.

        >>> keys = Keys.of([pa.array([float("nan"), -float("nan"), 0.0, -0.0])])
        >>> len(keys.distinct()[0]), len(set(keys.values())), len(set(keys.encoded.words.ravel().tolist()))
        (2, 2, 2)
        """
        return Keys(tuple(_with_one_form(column) if pa.types.is_floating(column.type) else column for column in columns))

    def __len__(self) -> int:
        return len(self.columns[0])

    @cached_property
    def encoded(self) -> EncodedKeys:
        """As words and hashes; the cache and the reorder buffer both ask for them."""
        return encode_keys(self.columns)

    def take(self, positions: npt.NDArray[np.int64]) -> Keys:
        """The keys at these positions."""
        indices = pa.array(positions)
        return Keys(tuple(column.take(indices) for column in self.columns))

    def slice(self, start: int, length: int) -> Keys:
        """A part without a copy."""
        return Keys(tuple(column.slice(start, length) for column in self.columns))

    @staticmethod
    def concat(parts: Sequence[Keys]) -> Keys:
        """Several batches of keys as one."""
        if len(parts) == 1:
            return parts[0]
        return Keys(tuple(pa.concat_arrays(columns) for columns in zip(*(part.columns for part in parts), strict=True)))

    def distinct(self) -> tuple[Keys, npt.NDArray[np.int64]]:
        """The distinct keys, and for each of the n keys its position among them.

        A single column of whole numbers or times comes in rising order: an index is searched faster for neighbours. Other keys come
        in the order of their first appearance, for they would take longer to sort than that saves.

        >>> keys, position = Keys((pa.array([7, 3, 7]),)).distinct()
        >>> keys.columns[0].to_pylist(), position.tolist()
        ([3, 7], [1, 0, 1])
        """
        if len(self.columns) == 1 and _is_whole(self.columns[0].type):
            rising, codes = np.unique(_plain(self.columns[0]).to_numpy(), return_inverse=True)
            return Keys((pa.array(rising).view(self.columns[0].type),)), codes
        codes = _codes(self.columns[0])
        for column in self.columns[1:]:
            more = _codes(column)
            # Made dense again after each column, so that the product never overflows.
            codes = _codes(pa.array(codes * (int(more.max(initial=0)) + 1) + more))
        count = int(codes.max(initial=-1)) + 1
        if count == len(self):
            return self, codes
        first = np.empty(count, np.int64)
        first[codes[::-1]] = np.arange(len(self) - 1, -1, -1)
        return self.take(first), codes

    def values(self) -> list[Hashable]:
        """A Python value for each key, equal where the keys are; tuples where there are several columns."""
        lists = [_values(column) for column in self.columns]
        return list(zip(*lists, strict=True)) if len(lists) > 1 else lists[0]


def _is_whole(type_: pa.DataType) -> bool:
    return bool(pa.types.is_integer(type_) or pa.types.is_temporal(type_))


def _plain(column: pa.Array) -> pa.Array:
    """Times as the integers behind them: Python's own are slow to make, and end with the year 9999."""
    if not pa.types.is_temporal(column.type):
        return column
    return column.view(pa.int32() if column.type.bit_width == 32 else pa.int64())


def _with_one_form(column: pa.Array) -> pa.Array:
    column = pc.add(column, pa.scalar(0.0, column.type))  # which makes 0 of -0
    nan = pc.is_nan(column)
    return pc.if_else(nan, pa.scalar(_NAN, column.type), column) if nan.true_count else column


def _values(column: pa.Array) -> list[Any]:
    values: list[Any] = _plain(column).to_pylist()
    if pa.types.is_floating(column.type):
        for position in pc.indices_nonzero(pc.is_nan(column)).to_pylist():
            values[position] = _NAN
    return values


def _codes(column: pa.Array) -> npt.NDArray[np.int64]:
    """Equal values get equal codes, dense and in the order of first appearance."""
    encoded = pc.dictionary_encode(column)
    codes: npt.NDArray[np.int64] = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return codes
