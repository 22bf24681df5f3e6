"""A trace in memory: which key each row asked for, as numbers; and a part of its keys for a mini-simulation."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from srj.errors import RequestError
from srj.sizing import hash_keys
from srj.sizing.keys import factorised, mix

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy.typing as npt

    U64 = npt.NDArray[np.uint64]
    I32 = npt.NDArray[np.int32]

_ALL = 2.0**64


@dataclass(frozen=True, eq=False)
class KeySequence:
    """The keys of a stream in the order of its rows.

    Attributes:
        codes: each reference's key, a number below `distinct`, in the order of first references; 4 bytes a reference.
        hashes: each distinct key's 64-bit hash, by which a sample is taken.
        nulls: rows left out because a part of their key is NULL: they ask nothing.

    Example:
        >>> keys = KeySequence.of(np.array(["b", "a", "b"]))
        >>> keys.codes.tolist(), keys.references, keys.distinct
        ([0, 1, 0], 3, 2)
    """

    codes: I32
    hashes: U64
    nulls: int = 0

    @classmethod
    def of(cls, keys: npt.NDArray[Any]) -> KeySequence:
        """From an array of whole numbers or strings, none of them NULL.

        Raises:
            RequestError: keys of another type or shape, or none.
        """
        return cls._of_hashes([hash_keys(keys)], 0)

    @classmethod
    def from_chunks(cls, chunks: Iterable[Sequence[pa.Array]], remedy: str = "name another column") -> KeySequence:
        """From pieces of the key's columns, which may be of any type that Arrow compares; 12 bytes a row are kept meanwhile.

        Raises:
            RequestError: no row has a key; `remedy` says what to do then. Or the pieces' types are such that one key would be two.
        """
        parts, nulls = [], 0
        kinds: dict[int, pa.DataType] = {}
        for columns in chunks:
            for position, other in enumerate(column.type for column in columns):
                one = other if pa.types.is_null(other) else kinds.setdefault(position, other)
                if _kind(one) != _kind(other):
                    raise RequestError(f"expected keys of one type in all pieces, got {one} and {other}; write them anew with one")
            hashes, left_out = _hashed(columns)
            parts.append(hashes)
            nulls += left_out
        return cls._of_hashes(parts, nulls, remedy)

    @classmethod
    def _of_hashes(cls, parts: list[U64], nulls: int, remedy: str = "name another column") -> KeySequence:
        hashes = np.concatenate(parts) if parts else np.zeros(0, np.uint64)
        if not hashes.size:
            raise RequestError(f"expected a trace with at least one key, got none in {nulls:,} rows; {remedy}")
        distinct, codes = factorised(hashes)
        return cls(codes, distinct.to_numpy(zero_copy_only=False), nulls)

    @property
    def references(self) -> int:
        """Rows that have a key."""
        return self.codes.size

    @property
    def distinct(self) -> int:
        """Keys that occur."""
        return self.hashes.size

    def sampled(self, rate: float) -> KeySequence:
        """The references to the keys whose hash is in the first `rate` of all: of each key all or none."""
        if rate >= 1:
            return self
        # Mixed anew: SHARDS takes its sample by the hash itself, and the two shall err independently.
        taken = mix(self.hashes) < np.uint64(rate * _ALL)
        if not taken.any():
            taken[0] = True
        numbers = (np.cumsum(taken, dtype=np.int32) - 1).astype(np.int32)
        return KeySequence(numbers[self.codes[taken[self.codes]]], self.hashes[taken])


def _kind(type_: pa.DataType) -> str:
    """Types of one kind hash what is equal alike."""
    if pa.types.is_dictionary(type_):
        return _kind(type_.value_type)
    kinds = {
        "whole numbers": (pa.types.is_integer, pa.types.is_boolean),
        "decimals": (pa.types.is_decimal,),
        "texts": (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view),
        "bytes": (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary, pa.types.is_binary_view),
        f"timestamps in {getattr(type_, 'unit', '')}": (pa.types.is_timestamp,),
    }
    return next((kind for kind, tests in kinds.items() if any(test(type_) for test in tests)), str(type_))


def _hashed(columns: Sequence[pa.Array]) -> tuple[U64, int]:
    """A hash for each row whose key has no NULL in it, and how many others there are."""
    valid = columns[0].is_valid()
    for column in columns[1:]:
        valid = pc.and_(valid, column.is_valid())
    rows = len(valid)
    columns = [_without_view(column) for column in columns]
    kept = [column.filter(valid) for column in columns]
    hashes = _of_column(kept[0])
    for column in kept[1:]:
        # Mixed between the columns, so that (1, 2) and (2, 1) are two keys.
        hashes = mix(mix(hashes) ^ _of_column(column))
    return hashes, rows - hashes.size


def _without_view(column: pa.Array) -> pa.Array:
    """Arrow filters no views."""
    if pa.types.is_string_view(column.type):
        return column.cast(pa.large_string())
    return column.cast(pa.large_binary()) if pa.types.is_binary_view(column.type) else column


def _of_column(column: pa.Array) -> U64:
    kind = column.type
    if pa.types.is_dictionary(kind):
        column, kind = column.dictionary_decode(), kind.value_type
    if pa.types.is_boolean(kind):
        column = column.cast(pa.int8())
    elif pa.types.is_temporal(kind) and not pa.types.is_interval(kind):
        column = column.cast(pa.int32() if kind.bit_width == 32 else pa.int64())
    if pa.types.is_integer(column.type):
        return hash_keys(column.to_numpy(zero_copy_only=False))
    try:
        encoded = column.dictionary_encode()
        distinct = [_text(value) for value in encoded.dictionary.to_pylist()]
    except (pa.ArrowException, UnicodeError):
        raise RequestError(
            f"expected keys that can be compared, got a column of type {kind} that can't be; name a column of a simple type"
        ) from None
    numbers: npt.NDArray[np.int64] = encoded.indices.to_numpy(zero_copy_only=False)
    return hash_keys(np.array(distinct, object))[numbers]


def _text(value: object) -> str:
    """One text for what a database calls equal: numbers that differ in a zero's sign, or in zeros behind the point."""
    if isinstance(value, bytes):
        return value.decode("latin-1")
    if isinstance(value, float):
        return str(value + 0.0)
    if isinstance(value, Decimal):
        digits = f"{value:f}"
        digits = digits.rstrip("0").rstrip(".") if "." in digits else digits
        return "0" if digits == "-0" else digits
    return str(value)
