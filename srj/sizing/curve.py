"""Miss-ratio curves: what share of the references an LRU cache of each size would miss, and which size to choose."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from srj.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    F64 = npt.NDArray[np.float64]
    I64 = npt.NDArray[np.int64]

_AS_GOOD = 0.01  # of the best advantage; a knee less sharp than this is none


@dataclass(frozen=True, eq=False)
class MissRatioCurve:
    """Miss ratio of an LRU cache over its size, a line through points; it never rises.

    Attributes:
        sizes: entries, ascending from 0.
        ratios: misses as a share of all references at each of them, from 1 down to the share of first touches.
        references: how many it was made from; the weight in a sum.

    Example:
        >>> import numpy as np
        >>> from srj.sizing import reuse_distances
        >>> curve = MissRatioCurve.from_distances(reuse_distances(np.tile(np.arange(50), 10)))
        >>> curve.at([10, 49, 50, 1000]).round(3).tolist(), curve.bound(), curve.knee()
        ([1.0, 1.0, 0.1, 0.1], 50, 50)
    """

    sizes: F64
    ratios: F64
    references: float

    @classmethod
    def from_distances(cls, distances: I64) -> MissRatioCurve:
        """The exact curve.

        Args:
            distances: of all references, as from `reuse_distances`.
        """
        distances = np.asarray(distances, np.int64)
        counts = np.bincount(distances[distances >= 0])
        return cls.from_counts(counts.astype(np.float64), distances.size - int(counts.sum()))

    @classmethod
    def from_counts(cls, counts: F64, never: float, unit: float = 1.0) -> MissRatioCurve:
        """The curve of a histogram of distances.

        Args:
            counts: references at each distance 0, 1, 2, ... times `unit`; they may be weights. The first may be negative, as
                SHARDS' adjustment can make it.
            never: references that no size makes a hit.
            unit: other keys that one step of the distance stands for.
        """
        total = float(counts.sum()) + never
        if total <= 0:
            return cls(np.zeros(1), np.ones(1), 0.0)
        # A size has more hits than the next smaller one only where a distance is counted; a few points carry a long histogram.
        bends = np.flatnonzero(counts)
        steps = np.unique(np.concatenate([np.zeros(1, np.int64), bends, bends + 1]))
        hits = np.concatenate([np.zeros(1), np.cumsum(counts)])[steps]
        ratios = np.minimum.accumulate(np.clip(1 - hits / total, 0, 1))
        return cls(steps * unit, ratios, total)

    def at(self, sizes: npt.ArrayLike) -> F64:
        """Miss ratios at these sizes, in entries; beyond the last point that of the last."""
        return np.interp(np.asarray(sizes, np.float64), self.sizes, self.ratios)

    @property
    def floor(self) -> float:
        """The miss ratio of a cache without bounds: the share of first touches."""
        return float(self.ratios[-1])

    def bound(self, slack: float = 0.0) -> int:
        """The least size at which at most `slack` (a share of all references) is missed that a larger cache would hit.

        With 0 it is one more than the largest distance: more cache buys nothing.
        """
        # Rounding in a sum of shares is no miss.
        enough = np.flatnonzero(self.ratios <= self.floor + slack + 1e-12)[0]
        if enough == 0:
            return 0
        left, right = enough - 1, enough
        fall = self.ratios[left] - self.ratios[right]
        part = (self.ratios[left] - self.floor - slack) / fall if slack else 1.0
        return int(np.ceil(self.sizes[left] + min(part, 1.0) * (self.sizes[right] - self.sizes[left]) - 1e-9))

    def working_set(self, share: float = 0.99) -> int:
        """The least size that has this share of the hits that a cache without bounds would have."""
        if not 0 <= share <= 1:
            raise RequestError(f"expected share as a number from 0 to 1, got {share}")
        return self.bound((1 - share) * (float(self.ratios[0]) - self.floor))

    def knee(self, most: int | None = None) -> int:
        """The size at which a further entry begins to buy less than the entries of the whole cache do on average.

        It is what one would buy at the price at which nothing and all are worth the same: the size with the largest advantage
        of its hits over those of that share of the whole. This is where the line from the curve's one end to the other, moved
        downwards, leaves the curve: the tangent of its lower hull, so that a step below a plateau is found too. Of sizes
        that are as good within 1 % of the curve's fall it is the largest; a straight line has no knee, all of it is worth its
        price.

        Args:
            most: sizes beyond this many entries are not to be had; None: there is no such bound.

        Returns:
            Entries; 0 where no size has any hits.
        """
        whole = self.bound() if most is None else min(most, self.bound())
        points = np.append(self.sizes[self.sizes < whole], float(whole))
        ratios = self.at(points)
        fall = float(ratios[0] - ratios[-1])
        if fall <= 0:
            return 0
        advantage = (ratios[0] - ratios) / fall - points / whole
        return int(np.ceil(points[np.flatnonzero(advantage >= advantage.max() - _AS_GOOD)[-1]]))

    def scaled(self, factor: float) -> MissRatioCurve:
        """The curve of all keys where this is that of one in `factor` of them, as when they were divided by their hash."""
        return MissRatioCurve(self.sizes * factor, self.ratios, self.references * factor)

    def stretched(self, factor: float) -> MissRatioCurve:
        """The curve of a cache that needs so many times the entries, as one does whose keys can't stand anywhere."""
        return MissRatioCurve(self.sizes * factor, self.ratios, self.references)

    def __add__(self, other: MissRatioCurve) -> MissRatioCurve:
        return combined([self, other])

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, MissRatioCurve):
            return NotImplemented
        return (
            self.references == other.references
            and np.array_equal(self.sizes, other.sizes)
            and np.array_equal(self.ratios, other.ratios)
        )

    __hash__ = None  # type: ignore[assignment]  # it holds arrays


def combined(curves: Sequence[MissRatioCurve]) -> MissRatioCurve:
    """The mean of curves, weighted with their references: parts of a stream that have caches of the same size each.

    So are partitions with a cache for each, and periods of one stream. Parts that share one cache are no sum of their curves; when
    keys were divided by their hash, that of one part `scaled` by the number of parts is it.

    Raises:
        RequestError: no curves.
    """
    if not curves:
        raise RequestError("expected at least one curve, got none")
    total = sum(curve.references for curve in curves)
    sizes = np.unique(np.concatenate([curve.sizes for curve in curves]))
    if total <= 0:
        return curves[0]
    ratios = sum((curve.at(sizes) * (curve.references / total) for curve in curves), np.zeros(sizes.size))
    return MissRatioCurve(sizes, np.minimum.accumulate(ratios), total)
