"""AET: a miss-ratio curve from reuse times alone (Hu and others, USENIX ATC 2016); no distances, so a cheap second opinion."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from srj.quantities import whole_number
from srj.sizing.counting import order_by_code, previous
from srj.sizing.curve import MissRatioCurve
from srj.sizing.keys import factorised

if TYPE_CHECKING:
    import numpy.typing as npt

    U64 = npt.NDArray[np.uint64]
    I64 = npt.NDArray[np.int64]
    F64 = npt.NDArray[np.float64]

_NEVER = -1
_POINTS = 4096  # of a curve


def reuse_times(keys: npt.NDArray[Any]) -> I64:
    """For each reference the number of references since the last one to the same key; -1 for a key's first.

    Args:
        keys: one-dimensional; whole numbers of any type, or strings.

    Example:
        >>> import numpy as np
        >>> reuse_times(np.array(["a", "b", "b", "a"])).tolist()
        [-1, -1, 1, 3]
    """
    distinct, codes = factorised(keys)
    before = previous(codes, order_by_code(codes, len(distinct)))
    return np.where(before < 0, _NEVER, np.arange(codes.size) - before)


def aet_curve(times: I64, weight: float = 1.0) -> MissRatioCurve:
    """The curve that these reuse times make likely.

    With P(t) the share of references whose reuse time is beyond t, an entry sinks in an LRU cache by P(t) places in the step at t
    after its last use. So it leaves a cache of C entries after the time T for which the sum of P over 0 ... T - 1 is C, and
    P(T) is missed.
    It takes O(N) and assumes that keys are as if in random order otherwise; for exact figures there is `reuse_distances`.

    Args:
        times: as from `reuse_times`.
        weight: references that each stands for.

    Example:
        >>> import numpy as np
        >>> aet_curve(reuse_times(np.tile(np.arange(50), 100))).at([25, 49, 50]).round(2).tolist()
        [1.0, 1.0, 0.01]
    """
    if not times.size:
        return MissRatioCurve(np.zeros(1), np.ones(1), 0.0)
    finite = np.sort(times[times >= 0])
    beyond = 1 - np.arange(finite.size + 1) / times.size  # P between the i-th finite time and the next
    sunk = np.concatenate([np.zeros(1), np.cumsum(np.diff(finite, prepend=0) * beyond[:-1])])
    # At a finite time P falls; where several are equal the last says how far.
    last = np.flatnonzero(np.append(finite[1:] != finite[:-1], np.full(min(finite.size, 1), True)))  # noqa: FBT003
    sizes = np.concatenate([np.zeros(1), sunk[last + 1]])
    ratios = np.concatenate([np.ones(1), beyond[last + 1]])
    return _as_line(sizes, ratios, times.size * weight)


def _as_line(sizes: F64, ratios: F64, references: float) -> MissRatioCurve:
    """A point for each fall: until one entry less than its size the ratio is still the one before."""
    held = np.maximum(sizes[1:] - 1, sizes[:-1])
    points = np.concatenate([sizes[:1], np.stack([held, sizes[1:]], 1).ravel()])
    heights = np.concatenate([ratios[:1], np.stack([ratios[:-1], ratios[1:]], 1).ravel()])
    if points.size > _POINTS:
        chosen = np.unique(np.concatenate([np.linspace(0, points.size - 1, _POINTS).astype(np.int64), np.zeros(1, np.int64)]))
        points, heights = points[chosen], heights[chosen]
    return MissRatioCurve(points, np.minimum.accumulate(heights), references)


class ReuseTimes:
    """Reuse times of a stream from a reservoir: references, all as likely to be in it, watched until their keys come again.

    As many references are a key's last as are a first, so the time until the next reference has the distribution that AET wants;
    those whose keys have not come again are counted as never. The memory is that of the reservoir, whatever the stream.

    Args:
        size: references in the reservoir.
        seed: of the random choice.

    Raises:
        RequestError: a size that is none.

    Example:
        >>> import numpy as np
        >>> times = ReuseTimes(1_000)
        >>> for start in range(0, 100_000, 10_000):
        ...     times.add(np.arange(start, start + 10_000).astype(np.uint64) % np.uint64(500))
        >>> times.curve().at([400, 500]).round(1).tolist()
        [1.0, 0.0]
    """

    def __init__(self, size: int = 16_384, seed: int = 0) -> None:
        whole_number("size", size, 1, 2**40)
        self._rng = np.random.default_rng(seed)
        self._keys = np.zeros(size, np.uint64)
        self._starts = np.zeros(size, np.int64)
        self._times = np.full(size, _NEVER, np.int64)
        self.references = 0

    def add(self, keys: U64) -> None:
        """Take the next references: their keys as 64-bit words, numbers or hashes."""
        distinct, codes = factorised(keys)
        order = order_by_code(codes, len(distinct))
        in_order = codes[order]
        self._see_again(distinct.to_numpy(zero_copy_only=False), order[np.flatnonzero(np.diff(in_order, prepend=-1))])
        again = np.flatnonzero(in_order[1:] == in_order[:-1])
        following = np.full(codes.size, _NEVER, np.int64)
        following[order[again]] = order[again + 1] - order[again]
        slots, rows = self._choose(codes.size)
        self._keys[slots], self._starts[slots], self._times[slots] = keys[rows], self.references + rows, following[rows]
        self.references += codes.size

    def curve(self) -> MissRatioCurve:
        """The miss-ratio curve of all references so far."""
        filled = min(self.references, self._times.size)
        return aet_curve(self._times[:filled], self.references / max(filled, 1))

    def _see_again(self, distinct: U64, first: I64) -> None:
        """Close those watched whose keys are in this batch."""
        filled = min(self.references, self._times.size)
        waiting = np.flatnonzero(self._times[:filled] == _NEVER)
        if not waiting.size or not distinct.size:
            return
        order = np.argsort(distinct)
        at = np.searchsorted(distinct, self._keys[waiting], sorter=order)
        at[at == distinct.size] = 0
        match = distinct[order[at]] == self._keys[waiting]
        seen = waiting[match]
        self._times[seen] = self.references + first[order[at[match]]] - self._starts[seen]

    def _choose(self, count: int) -> tuple[I64, I64]:
        """The slots that references of this batch take, and which of them; of several in one slot the last."""
        size = self._times.size
        numbers = self.references + np.arange(count)
        slots = np.where(numbers < size, numbers, (self._rng.random(count) * (numbers + 1)).astype(np.int64))
        rows = np.flatnonzero(slots < size)
        newest = rows.size - 1 - np.unique(slots[rows][::-1], return_index=True)[1]
        return slots[rows[newest]], rows[newest]
