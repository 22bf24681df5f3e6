"""Keys as numbers: dense codes for a whole sequence, hashes that are the same in every batch."""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from srj.errors import RequestError

if TYPE_CHECKING:
    import numpy.typing as npt

    U64 = npt.NDArray[np.uint64]
    I32 = npt.NDArray[np.int32]

_MULTIPLIERS = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
_INCREMENT = np.uint64(0x9E3779B97F4A7C15)
_LONG = 64  # characters; NumPy would give as many as the longest text has to each of them
_SHIFTS = (np.uint64(30), np.uint64(27), np.uint64(31))


def mix(words: U64) -> U64:
    """Scramble 64-bit words one to one (splitmix64), so that a threshold on the result takes an even sample of any keys."""
    mixed = words + _INCREMENT
    mixed ^= mixed >> _SHIFTS[0]
    mixed *= _MULTIPLIERS[0]
    mixed ^= mixed >> _SHIFTS[1]
    mixed *= _MULTIPLIERS[1]
    mixed ^= mixed >> _SHIFTS[2]
    return mixed


def factorised(keys: npt.NDArray[Any]) -> tuple[pa.Array, I32]:
    """The distinct keys in the order of their first references, and each reference's number among them.

    Args:
        keys: one-dimensional; whole numbers of any type, or strings.

    Raises:
        RequestError: keys of another type or shape.
    """
    array = np.asarray(keys)
    if array.shape == (0,):  # NumPy takes an empty list for one of floating point
        array = array.astype(np.int64)
    if array.ndim != 1 or array.dtype.kind not in "iuUTO":
        raise RequestError(f"expected a one-dimensional array of whole numbers or strings, got {array.ndim} of {array.dtype}")
    try:
        encoded = pa.array(array if array.dtype.kind in "iu" else array.astype(object)).dictionary_encode()
    except (pa.ArrowException, UnicodeError) as error:
        raise RequestError(f"expected whole numbers or strings, got keys that Arrow refuses: {error}") from error
    distinct = encoded.dictionary
    if encoded.null_count or not (pa.types.is_integer(distinct.type) or pa.types.is_string(distinct.type)):
        raise RequestError(f"expected whole numbers or strings, none of them NULL, got {distinct.type}; leave the NULL keys out")
    codes: I32 = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int32, copy=False)
    return distinct, codes


def hash_keys(keys: npt.NDArray[Any]) -> U64:
    """A 64-bit hash of each key, the same in every batch and process; what `StackDistances`, `Shards` and `Watch` take.

    Args:
        keys: one-dimensional; whole numbers of any type, or strings.

    Raises:
        RequestError: keys of another type or shape.

    Example:
        >>> import numpy as np
        >>> hashes = hash_keys(np.array(["N14228", "N24211", "N14228"]))
        >>> hashes.dtype.name, bool(hashes[0] == hashes[2]), bool(hashes[0] == hashes[1])
        ('uint64', True, False)
    """
    array = np.asarray(keys)
    if array.ndim == 1 and array.dtype.kind in "iu":
        # Of either sign and any width the same number has the same hash.
        return mix(array.astype(np.int64 if array.dtype.kind == "i" else np.uint64).view(np.uint64))
    distinct, codes = factorised(array)
    if pa.types.is_integer(distinct.type):
        return hash_keys(distinct.to_numpy(zero_copy_only=False))[codes]
    texts = distinct.to_pylist()
    long = [number for number, text in enumerate(texts) if len(text) > _LONG]
    digests = [blake2b(texts[number].encode(), digest_size=8).digest() for number in long]
    for number in long:
        texts[number] = ""
    hashes = _hash_texts(texts)
    hashes[long] = np.frombuffer(b"".join(digests), "<u8")
    return hashes[codes]


def _hash_texts(texts: list[str]) -> U64:
    """Two characters at a time over all texts that are so long: how far NumPy pads them with NUL is a matter of the batch."""
    hashes = np.fromiter(map(len, texts), np.uint64, len(texts))
    lengths = hashes.copy()
    width = int(lengths.max(initial=0))
    width += width % 2
    words = np.array(texts, f"<U{max(width, 2)}").view(np.uint64).reshape(len(texts), -1)
    for column in range(words.shape[1]):
        active = np.flatnonzero(lengths > np.uint64(2 * column))
        hashes[active] = mix(hashes[active] ^ words[active, column])
    return hashes
