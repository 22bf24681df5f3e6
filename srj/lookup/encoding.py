"""From Arrow arrays to the plain numbers that the cache keeps, without a copy where there need be none.

A value is either of fixed width, or a 16-byte view in Arrow's ``string_view`` layout: two words, of which the first holds the
length and four bytes, the second eight more bytes (up to 12 in all) or, for a longer value, where its bytes stand.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from srj.errors import RequestError
from srj.lookup.hashing import hash_long, hash_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy.typing as npt

    U64 = npt.NDArray[np.uint64]
    I64 = npt.NDArray[np.int64]

INLINE = 12  # bytes that a view holds itself
LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_NUMBERS: dict[int, np.dtype[Any]] = {1: np.dtype(np.uint8), 2: np.dtype(np.uint16), 4: np.dtype(np.uint32), 8: np.dtype(np.uint64)}


def is_varying(type_: pa.DataType) -> bool:
    """Whether values of the type differ in length."""
    types = pa.types
    return bool(
        types.is_string(type_)
        or types.is_binary(type_)
        or types.is_large_string(type_)
        or types.is_large_binary(type_)
        or types.is_string_view(type_)
        or types.is_binary_view(type_)
    )


def is_text(type_: pa.DataType) -> bool:
    """Whether it is one of Arrow's string types."""
    return bool(pa.types.is_string(type_) or pa.types.is_large_string(type_) or pa.types.is_string_view(type_))


def byte_width(type_: pa.DataType) -> int:
    """Bytes of a value in the cache's arrays: a view's 16 for types of varying length, one for a boolean.

    >>> byte_width(pa.decimal128(10, 2)), byte_width(pa.string()), byte_width(pa.bool_())
    (16, 16, 1)

    Raises:
        RequestError: the cache can't keep values of this type.
    """
    if is_varying(type_):
        return 16
    if pa.types.is_boolean(type_):
        return 1
    if pa.types.is_primitive(type_) or pa.types.is_decimal(type_) or pa.types.is_fixed_size_binary(type_):
        return int(type_.bit_width) // 8
    raise RequestError(
        f"expected columns of numbers, dates, times, text or bytes for the cache, got the Arrow type {type_}; "
        "cast the column in SQL, for example to text"
    )


def key_words(type_: pa.DataType) -> int:
    """64-bit words of a key column's value."""
    return -(-byte_width(type_) // 8)


def number_type(width: int) -> np.dtype[Any]:
    """The numpy type that moves `width` bytes at a time."""
    return _NUMBERS.get(width) or np.dtype(f"V{width}")


def fixed_values(array: pa.Array) -> npt.NDArray[Any]:
    """The raw values of an array of fixed width; what stands at a NULL is undefined."""
    if pa.types.is_boolean(array.type):
        bits = np.frombuffer(array.buffers()[1] or b"", np.uint8)
        return np.unpackbits(bits, count=array.offset + len(array), bitorder="little")[array.offset :]
    values = np.frombuffer(array.buffers()[1] or b"", number_type(byte_width(array.type)))
    return values[array.offset : array.offset + len(array)]


@dataclass(frozen=True)
class Views:
    """A column of varying length as 16-byte views, its long values side by side.

    Attributes:
        words: (n, 2); the second word of a long value has no meaning yet, all of a NULL is zero.
        long: positions of the values longer than 12 bytes, rising.
        memory: their bytes one after another, as words, padded by at least 16 bytes.
        offsets: where each long value starts in `memory`, and where the last ends: ``long.size + 1``.
    """

    words: U64
    long: I64
    memory: U64
    offsets: I64

    @property
    def lengths(self) -> I64:
        """Bytes of each long value."""
        return np.diff(self.offsets)


def lengths_of(first_words: U64) -> I64:
    """Bytes of the values whose views have these first words."""
    return (first_words & LOW).astype(np.int64)


def views_of(array: pa.Array) -> Views:
    """Read a column of text or bytes."""
    text = is_text(array.type)
    view_type = pa.string_view() if text else pa.binary_view()
    viewed = array if array.type == view_type else array.cast(view_type)
    raw = np.frombuffer(viewed.buffers()[1] or b"", np.uint64)
    words = raw.reshape(-1, 2)[viewed.offset : viewed.offset + len(viewed)]
    if viewed.null_count:
        words = np.where(viewed.is_null().to_numpy(zero_copy_only=False)[:, None], np.uint64(0), words)
    long = np.flatnonzero(lengths_of(words[:, 0]) > INLINE)
    if not long.size:
        return Views(words, long, np.zeros(2, np.uint64), np.zeros(1, np.int64))
    return Views(words, long, *bytes_of_views(words[long], viewed.buffers()[2:]))


def bytes_of_views(words: U64, segments: Sequence[pa.Buffer]) -> tuple[U64, I64]:
    """The bytes that views over `segments` refer to, side by side: memory and offsets as in `Views`."""
    viewed = pa.Array.from_buffers(pa.binary_view(), len(words), [None, pa.py_buffer(words), *segments])
    # The cast puts the bytes side by side, in Arrow's own loop.
    _, offset_buffer, data = viewed.cast(pa.large_binary()).buffers()
    offsets = np.frombuffer(offset_buffer, np.int64)[: len(words) + 1]
    size = int(offsets[-1])
    memory = np.zeros(size // 8 + 3, np.uint64)
    memory.view(np.uint8)[:size] = np.frombuffer(data, np.uint8)[:size]
    return memory, offsets


def owned_values(
    type_: pa.DataType, words: pa.Buffer, count: int, validity: pa.Buffer | None, segments: Sequence[pa.Buffer]
) -> pa.Array:
    """The values whose views over `segments` these are, in memory of their own.

    Args:
        type_: of varying length.
        words: 16 bytes a value.
        count: of values.
        validity: Arrow's bitmap; None: no NULL.
        segments: what long values' views refer to.
    """
    view_type = pa.string_view() if is_text(type_) else pa.binary_view()
    viewed = pa.Array.from_buffers(view_type, count, [validity, words, *segments])
    # Arrow copies views into memory of their own only when the type changes.
    owned_type = (pa.string() if is_text(type_) else pa.binary()) if type_ == view_type else type_
    owned = viewed.cast(owned_type)
    return owned if owned_type == type_ else owned.cast(type_)


def decode_key(type_: pa.DataType, words: U64, segments: Sequence[pa.Buffer]) -> pa.Array:
    """A key column from its words in the cache's records: what `encode_keys` made of it, backwards.

    >>> column = pa.array([3, -4], pa.int16())
    >>> decode_key(column.type, encode_keys([column]).words, []).to_pylist()
    [3, -4]
    """
    words = np.ascontiguousarray(words)
    if is_varying(type_):
        return owned_values(type_, pa.py_buffer(words), len(words), None, segments)
    raw = np.ascontiguousarray(words.view(np.uint8).reshape(len(words), 8 * words.shape[1])[:, : byte_width(type_)])
    buffer = pa.py_buffer(np.packbits(raw.ravel(), bitorder="little") if pa.types.is_boolean(type_) else raw)
    return pa.Array.from_buffers(type_, len(words), [None, buffer])


@dataclass(frozen=True)
class EncodedKeys:
    """n keys as rows of words.

    Attributes:
        words: (n, words of a key); where a value is long, its second word has no meaning.
        hashes: n.
        views: for each key column of varying length, the position of its first word and its views.
    """

    words: U64
    hashes: U64
    views: tuple[tuple[int, Views], ...]

    def __len__(self) -> int:
        return len(self.words)

    @property
    def has_long(self) -> bool:
        """Whether any value stands outside its words."""
        return any(views.long.size for _, views in self.views)


def encode_keys(columns: Sequence[pa.Array], hash_words: Callable[[U64], U64] = hash_rows) -> EncodedKeys:
    """Turn key columns (no NULLs) into words and hashes."""
    count = len(columns[0])
    if len(columns) == 1 and not is_varying(columns[0].type) and byte_width(columns[0].type) == 8:
        words = fixed_values(columns[0]).view(np.uint64).reshape(-1, 1)
        return EncodedKeys(words, hash_words(words), ())
    words = np.zeros((count, sum(key_words(column.type) for column in columns)), np.uint64)
    views: list[tuple[int, Views]] = []
    at = 0
    for column in columns:
        width = key_words(column.type)
        if is_varying(column.type):
            views.append((at, views_of(column)))
            words[:, at : at + 2] = views[-1][1].words
        else:
            _put_fixed(words[:, at : at + width], fixed_values(column))
        at += width
    return EncodedKeys(words, hash_words(_words_to_hash(words, views)), tuple(views))


def _put_fixed(target: U64, values: npt.NDArray[Any]) -> None:
    if values.dtype.kind == "u":
        target[:, 0] = values
    elif values.size:
        padded = np.zeros((values.size, 8 * target.shape[1]), np.uint8)
        padded[:, : values.dtype.itemsize] = values.view(np.uint8).reshape(values.size, -1)
        target[:] = padded.view(np.uint64)


def _words_to_hash(words: U64, views: Sequence[tuple[int, Views]]) -> U64:
    """The words, with a hash of its bytes in place of a long value's second word."""
    if not any(column.long.size for _, column in views):
        return words
    hashed = words.copy()
    for at, column in views:
        hashed[column.long, at + 1] = hash_long(column.memory, column.offsets[:-1], column.lengths)
    return hashed


def heap_place(second_words: U64) -> tuple[I64, I64]:
    """Segment and offset that the second words of long values' views name."""
    return (second_words & LOW).astype(np.int64), (second_words >> _HALF).astype(np.int64)


def heap_word(segment: int, offsets: I64) -> U64:
    """Second words of long values' views."""
    return (offsets.astype(np.uint64) << _HALF) | np.uint64(segment)
