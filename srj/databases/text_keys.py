"""Keys that are text: which of them a column can hold, and uuids in one spelling; see `srj.databases.conversion`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    from srj.databases.base import KeyColumn

_UUID = "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$"
# What databases take as well: upper case, hyphens left out, braces (in pairs: hence the two forms).
_LOOSE_UUID = r"^(?:[0-9a-f]{4}(?:-?[0-9a-f]{4}){7}|\{[0-9a-f]{4}(?:-?[0-9a-f]{4}){7}\})$"
_UUID_GROUPS = r"^(.{8})(.{4})(.{4})(.{4})(.{12})$"
_FIRST_BYTE_BEYOND_ASCII = 0x80
_FIRST_BYTE_BEYOND_BMP = 0xF0

# Keys in the column's type, NULL where they are NULL or impossible, and which are impossible; None: none is.
Converted = tuple[pa.Array, "npt.NDArray[np.bool_] | None"]


def drop(array: pa.Array, impossible: pa.BooleanArray) -> Converted:
    """NULL where the mask is set; the mask's own NULLs (NULL keys) are no hits."""
    mask: npt.NDArray[np.bool_] = pc.fill_null(impossible, False).to_numpy(zero_copy_only=False)  # noqa: FBT003
    if not mask.any():
        return array, None
    return pc.if_else(pa.array(mask), pa.scalar(None, array.type), array), mask


def _cast(array: pa.Array, key: KeyColumn) -> pa.Array:
    return array if array.type == key.type else array.cast(key.type)


def convert_text(array: pa.Array, key: KeyColumn) -> Converted:
    """Drop text with characters that the column can't hold; the bytes of all texts at once usually say that there is none."""
    array, impossible = _drop_broken(_cast(array, key))
    array, unstorable = _drop_unstorable(array, key)
    return array, _either(impossible, unstorable)


def _drop_broken(array: pa.Array) -> Converted:
    """Drop text that is no UTF-8: Spark's strings may hold any bytes, a database's none but characters."""
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        return drop(array, _not_decodable(array))
    return array, None


def _not_decodable(array: pa.Array) -> pa.BooleanArray:
    """Which texts are no UTF-8; Arrow only tells whether one is, so each beyond ASCII is tried by itself."""

    def fails(text: bytes) -> bool:
        try:
            text.decode()
        except UnicodeDecodeError:
            return True
        return False

    return _beyond_ascii(array, lambda texts: [fails(text) for text in texts.cast(pa.binary()).to_pylist()])


def _drop_unstorable(array: pa.Array, key: KeyColumn) -> Converted:
    """Drop text with a character that the key column can't hold."""
    limits, patterns, impossible = key.limits, [], None
    if (limits.no_nul or limits.bmp_only or limits.encoding) and (data := array.buffers()[2]) is not None:
        offsets = np.frombuffer(array.buffers()[1], np.int32, len(array) + 1, 4 * array.offset)
        text = data.slice(offsets[0], offsets[-1] - offsets[0])
        if limits.no_nul and b"\0" in text.to_pybytes():
            patterns.append("\0")
        if limits.bmp_only and text.size and np.frombuffer(text, np.uint8).max() >= _FIRST_BYTE_BEYOND_BMP:
            patterns.append(r"[\x{10000}-\x{10FFFF}]")
        if limits.encoding and text.size and np.frombuffer(text, np.uint8).max() >= _FIRST_BYTE_BEYOND_ASCII:
            array, impossible = drop(array, _not_encodable(array, limits.encoding))
    if not patterns:
        return array, impossible
    array, unstorable = drop(array, pc.match_substring_regex(array, "|".join(patterns)))
    return array, _either(impossible, unstorable)


def _either(one: npt.NDArray[np.bool_] | None, other: npt.NDArray[np.bool_] | None) -> npt.NDArray[np.bool_] | None:
    if one is None or other is None:
        return other if one is None else one
    return one | other


def _not_encodable(array: pa.Array, encoding: str) -> pa.BooleanArray:
    """Which texts an encoding has no bytes for; Arrow knows UTF-8 alone, so each text beyond ASCII is tried by itself."""

    def fails(text: str) -> bool:
        try:
            text.encode(encoding)
        except UnicodeEncodeError:
            return True
        return False

    return _beyond_ascii(array, lambda texts: [fails(text) for text in texts.to_pylist()])


def _beyond_ascii(array: pa.Array, fails: Callable[[pa.Array], list[bool]]) -> pa.BooleanArray:
    """Which texts fail; those in ASCII never do and are not asked."""
    beyond = pc.invert(pc.string_is_ascii(array)).fill_null(False)  # noqa: FBT003
    mask: npt.NDArray[np.bool_] = beyond.to_numpy(zero_copy_only=False).copy()
    mask[mask] = fails(array.filter(beyond))
    return pa.array(mask)


def convert_uuid(array: pa.Array, key: KeyColumn) -> Converted:
    """To lower-case text with hyphens, so that one uuid is one key; text that is no UTF-8 has no match."""
    array = _cast(array, key)
    canonical = pc.match_substring_regex(array, _UUID)
    if pc.all(canonical).as_py() in {True, None}:
        return array, None
    lower = pc.ascii_lower(array)
    array, impossible = drop(lower, pc.invert(pc.match_substring_regex(lower, _LOOSE_UUID)))
    digits = pc.replace_substring_regex(array, "[-{}]", "")
    return pc.replace_substring_regex(digits, _UUID_GROUPS, r"\1-\2-\3-\4-\5"), impossible
