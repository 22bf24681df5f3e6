"""The exact distances without a compiler, a batch at a time by whole-column arithmetic."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from srj.sizing.counting import distances, order_by_code, previous
from srj.sizing.keys import factorised

if TYPE_CHECKING:
    import numpy.typing as npt

    U64 = npt.NDArray[np.uint64]
    I32 = npt.NDArray[np.int32]
    I64 = npt.NDArray[np.int64]


class ColumnStack:
    """The keys referenced so far, in the order of their last references; see `srj.sizing.StackDistances`.

    A batch costs some passes over its own references and a few over the keys held, so batches of less than a hundredth of the keys
    are slow.
    """

    def __init__(self) -> None:
        self.load(np.empty(0, np.uint64))

    def __len__(self) -> int:
        return self._names.size

    def load(self, keys: U64) -> None:
        """Forget all, then take these distinct keys, the oldest first."""
        order = np.argsort(keys)
        self._names: U64 = keys[order]
        self._last: I64 = order.astype(np.int64)
        self._in_use = np.ones(keys.size, np.bool_)

    def keys(self) -> U64:
        """The keys held, the oldest first."""
        return self._names[np.argsort(self._last)]

    def add(self, keys: U64) -> I64:
        """Distances of the next references."""
        distinct, codes = factorised(keys)
        return self.add_codes(distinct.to_numpy(zero_copy_only=False), codes)

    def add_codes(self, distinct: U64, codes: I32) -> I64:
        """The same for keys as numbers: distinct keys in the order of their first references, and each reference's number."""
        order = order_by_code(codes, distinct.size)
        before = previous(codes, order)
        first = np.flatnonzero(before < 0)
        held = len(self)
        before[before >= 0] += held
        at = np.searchsorted(self._names, distinct)
        known = np.zeros(distinct.size, np.bool_)
        inside = np.flatnonzero(at < held)
        known[inside] = self._names[at[inside]] == distinct[inside]
        old = self._last[at[known]]
        ranks = np.cumsum(self._in_use) - 1
        before[first[known]] = ranks[old]
        self._in_use[old] = False
        self._move(distinct, at, known, _last_of_each(codes, order))
        return distances(before, held)

    def _move(self, distinct: U64, at: I64, known: npt.NDArray[np.bool_], last: I64) -> None:
        """Put the batch's keys on top, in the order of their last references."""
        if self._in_use.size > 2 * len(self) + distinct.size:
            self._last = np.cumsum(self._in_use)[self._last] - 1
            self._in_use = self._in_use[self._in_use]
        places = np.empty(distinct.size, np.int64)
        places[np.argsort(last)] = self._in_use.size + np.arange(distinct.size)
        self._last[at[known]] = places[known]
        self._in_use = np.concatenate([self._in_use, np.ones(distinct.size, np.bool_)])
        new = np.flatnonzero(~known)
        new = new[np.argsort(distinct[new])]
        self._names = np.insert(self._names, at[new], distinct[new])
        self._last = np.insert(self._last, at[new], places[new])


def _last_of_each(codes: I32, order: I64) -> I64:
    """The position of each key's last reference."""
    in_order = codes[order]
    return order[np.flatnonzero(np.append(in_order[1:] != in_order[:-1], np.full(min(codes.size, 1), True)))]  # noqa: FBT003
