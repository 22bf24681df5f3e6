"""Hashes of keys, and comparison of long values, eight bytes at a time for a whole batch.

A key is a row of 64-bit words (see `srj.lookup.encoding`). Its hash must be the same in every process that shares a
cache, so Python's own randomised hash is not used.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    U64 = npt.NDArray[np.uint64]
    I64 = npt.NDArray[np.int64]

# Beyond this many bytes a loop over words costs more numpy calls than the few rows so long are worth.
LONG_LOOP = 256
_MULTIPLIERS = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
_SHIFTS = (np.uint64(32), np.uint64(29), np.uint64(32))
_WORD = np.uint64(64)


def mix(words: U64) -> U64:
    """Scramble 64-bit words one to one, so that every bit of the result depends on every bit of the word.

    >>> bool(mix(np.array([1, 2], np.uint64))[0] == mix(np.array([1], np.uint64))[0])
    True
    """
    mixed = words >> _SHIFTS[0]
    mixed ^= words
    mixed *= _MULTIPLIERS[0]
    mixed ^= mixed >> _SHIFTS[1]
    mixed *= _MULTIPLIERS[1]
    mixed ^= mixed >> _SHIFTS[2]
    return mixed


def hash_rows(words: U64) -> U64:
    """One hash for each row of an (n, words) array."""
    hashes = mix(words[:, 0])
    for position in range(1, words.shape[1]):
        hashes ^= words[:, position]
        hashes = mix(hashes)
    return hashes


def load_words(memory: U64, offsets: I64) -> U64:
    """The eight bytes at each byte offset of `memory`, which ends with at least 16 bytes of padding."""
    at = offsets >> 3
    shift = ((offsets & 7) << 3).astype(np.uint64)
    low: U64 = memory[at] >> shift
    # A shift by 64 gives 0 in numpy, which is what an aligned offset needs.
    low |= memory[at + 1] << (_WORD - shift)
    return low


def _tail_mask(left: I64) -> U64:
    """All ones where at least 8 bytes are left, else ones for the bytes that are."""
    bits = (np.clip(left, 0, 8) << 3).astype(np.uint64)
    return ~np.uint64(0) >> (_WORD - bits)


def hash_long(memory: U64, offsets: I64, lengths: I64) -> U64:
    """Hashes of byte strings that stand in `memory`."""
    hashes = lengths.astype(np.uint64)
    active = np.flatnonzero(lengths <= LONG_LOOP)
    done = 0
    while active.size:
        left = lengths[active] - done
        hashes[active] = mix(hashes[active] ^ (load_words(memory, offsets[active] + done) & _tail_mask(left)))
        done += 8
        active = active[left > 8]
    data = memory.view(np.uint8)
    for row in np.flatnonzero(lengths > LONG_LOOP).tolist():
        digest = blake2b(data[offsets[row] : offsets[row] + lengths[row]].data, digest_size=8).digest()
        hashes[row] = int.from_bytes(digest, "little")
    return hashes


def equal_long(left: U64, left_offsets: I64, right: U64, right_offsets: I64, lengths: I64) -> npt.NDArray[np.bool_]:
    """Whether byte strings of equal lengths, which stand in two memories, are equal."""
    equal = np.ones(lengths.size, np.bool_)
    active = np.flatnonzero(lengths <= LONG_LOOP)
    done = 0
    while active.size:
        difference = load_words(left, left_offsets[active] + done) ^ load_words(right, right_offsets[active] + done)
        rest = lengths[active] - done
        same = (difference & _tail_mask(rest)) == 0
        equal[active] = same
        done += 8
        active = active[same & (rest > 8)]
    left_bytes, right_bytes = left.view(np.uint8), right.view(np.uint8)
    for row in np.flatnonzero(lengths > LONG_LOOP).tolist():
        a, b, length = int(left_offsets[row]), int(right_offsets[row]), int(lengths[row])
        equal[row] = np.array_equal(left_bytes[a : a + length], right_bytes[b : b + length])
    return equal
