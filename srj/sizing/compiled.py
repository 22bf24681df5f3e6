"""The exact distances compiled by numba: a hash table of keys, and a Fenwick tree over the positions of their last references.

Positions are bits, 64 to a word, and the tree counts whole words, so that for a million positions it is 64 KB and stays in the
processor's cache. When the positions are used up those still in use are renumbered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numba
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    U64 = npt.NDArray[np.uint64]
    I64 = npt.NDArray[np.int64]

_LEAST = 1024  # positions of a new tree; a power of two
_ROOM = 4  # positions for each key after renumbering, so that three references a key pass until the next time


def _compile(function: Callable[..., Any]) -> Callable[..., Any]:
    try:
        return numba.njit(cache=True, nogil=True)(function)
    except RuntimeError:  # no folder to keep compiled code in
        return numba.njit(nogil=True)(function)


def _take(keys, out, names, last, owner, bits, tree, held, now):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    """Distances of keys until positions or table are full: how many were done, keys held, next position."""
    mask = np.uint64(names.size - 1)
    one, words, positions = np.uint64(1), bits.size, owner.size
    most = names.size // 2
    for row in range(keys.size):
        if now == positions or held == most:
            return row, held, now
        key = keys[row]
        slot = (key ^ (key >> np.uint64(32))) * np.uint64(0x9E3779B97F4A7C15)
        slot = (slot ^ (slot >> np.uint64(29))) & mask
        while last[slot] >= 0 and names[slot] != key:
            slot = (slot + one) & mask
        new_word, old = now >> 6, last[slot]
        if old < 0:
            names[slot] = key
            held += 1
            out[row] = -1
            old_word = -1
        else:
            old_word = old >> 6
            # The bits up to and with the old position, by adding pairs, fours and bytes: numba has no population count.
            below = bits[old_word] << np.uint64(63 - (old & 63))
            below -= (below >> one) & np.uint64(0x5555555555555555)
            below = (below & np.uint64(0x3333333333333333)) + ((below >> np.uint64(2)) & np.uint64(0x3333333333333333))
            below = (below + (below >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
            newer = held - np.int64((below * np.uint64(0x0101010101010101)) >> np.uint64(56))
            index = old_word
            while index > 0:
                newer -= tree[index]
                index &= index - 1
            out[row] = newer
            bits[old_word] ^= one << np.uint64(old & 63)
        if old_word != new_word:
            if old_word >= 0:
                index = old_word + 1
                while index <= words:
                    tree[index] -= 1
                    index += index & -index
            index = new_word + 1
            while index <= words:
                tree[index] += 1
                index += index & -index
        bits[new_word] |= one << np.uint64(now & 63)
        last[slot] = now
        owner[now] = slot
        now += 1
    return keys.size, held, now


def _in_order(names, owner, bits, now, out):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    """The keys held, that of the oldest last reference first."""
    found = 0
    for position in range(now):
        if bits[position >> 6] >> np.uint64(position & 63) & np.uint64(1):
            out[found] = names[owner[position]]
            found += 1
    return found


take = _compile(_take)
in_order = _compile(_in_order)


class CompiledStack:
    """The keys referenced so far, in the order of their last references; see `srj.sizing.StackDistances`."""

    def __init__(self) -> None:
        self.load(np.empty(0, np.uint64))

    def __len__(self) -> int:
        return self._held

    def load(self, keys: U64) -> None:
        """Forget all, then take these distinct keys, the oldest first."""
        positions = _LEAST
        while positions < _ROOM * keys.size:
            positions *= 2
        self._names = np.zeros(positions, np.uint64)
        self._last = np.full(positions, -1, np.int32)
        self._owner = np.zeros(positions, np.int32)
        self._bits = np.zeros(positions // 64, np.uint64)
        self._tree = np.zeros(positions // 64 + 1, np.int32)
        self._held = self._now = 0
        self._take(keys, np.empty(keys.size, np.int64))

    def keys(self) -> U64:
        """The keys held, the oldest first."""
        out = np.empty(self._held, np.uint64)
        in_order(self._names, self._owner, self._bits, self._now, out)
        return out

    def add(self, keys: U64) -> I64:
        """Distances of the next references."""
        out = np.empty(keys.size, np.int64)
        done = 0
        while True:
            done += self._take(keys[done:], out[done:])
            if done == keys.size:
                return out
            self.load(self.keys())

    def _take(self, keys: U64, out: I64) -> int:
        done, self._held, self._now = take(
            keys, out, self._names, self._last, self._owner, self._bits, self._tree, self._held, self._now
        )
        return int(done)
