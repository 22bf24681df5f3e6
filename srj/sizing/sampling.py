"""SHARDS: reuse distances of a sample of the keys, which are those of all, scaled (Waldspurger and others, FAST 2015)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from srj.errors import RequestError
from srj.sizing.curve import MissRatioCurve
from srj.sizing.reuse_distance import StackDistances

if TYPE_CHECKING:
    import numpy.typing as npt

    U64 = npt.NDArray[np.uint64]
    I64 = npt.NDArray[np.int64]
    F64 = npt.NDArray[np.float64]

_ALL = 1 << 64
_MAP = 22  # bits; a map of so many places counts some ten million keys, 4 MB
_KEEP = 7 / 8  # of the keys allowed are kept when they are too many, so that an eighth can come until the next time

EXACT_KEYS = 100_000
"""A sample resolves no sizes near 1 / rate, so below about this many distinct keys all are taken."""


def check_hashes(hashes: object) -> None:
    """Refuse what are no hashes of keys.

    Raises:
        RequestError: it is no array of them.
    """
    if not isinstance(hashes, np.ndarray) or hashes.dtype != np.uint64 or hashes.ndim != 1:
        what = f"{hashes.ndim} of {hashes.dtype}" if isinstance(hashes, np.ndarray) else type(hashes).__name__
        raise RequestError(f"expected a one-dimensional array of uint64, got {what}; see srj.sizing.hash_keys")


class Shards:
    """A miss-ratio curve of a stream, from the keys whose hash is below a threshold.

    A key is always taken or never, so a sample of a share R of the keys has the distances of all, times R. It is exact until
    `exact` distinct keys have been seen; then the threshold falls to `rate`, and whenever more than `keys` are held, those with the
    largest hashes are dropped and the threshold falls to them. Counts made so far are then scaled to the new rate. The rate is
    looked at between batches, so the memory is bounded by `keys` and one batch's.

    Args:
        rate: share of the keys to take, above 0, at most 1; None: all, until `keys` says otherwise.
        keys: most keys to hold; None: no bound but the rate.
        exact: distinct keys until which all are taken, not more than `keys`; 0: sample from the start.
        counted: count the distinct keys of the whole stream too, in a map of 4 MB. How many keys a sample has is a matter of chance
            (one in a hundred of 200,000: 2,000, give or take 45), and so is the scale of its distances; the true number takes
            that error away.
        compiled: as in `reuse_distances`.

    Raises:
        RequestError: a number out of range.

    Example:
        >>> import numpy as np
        >>> from srj.sizing import hash_keys
        >>> shards = Shards(keys=2_000)
        >>> for batch in np.split(np.random.default_rng(1).integers(0, 10_000, 200_000), 20):
        ...     _ = shards.add(hash_keys(batch))
        >>> 0.1 < shards.rate < 0.25, 9_500 < shards.distinct < 10_500, shards.held <= 2_000
        (True, True, True)
        >>> abs(float(shards.curve().at(5_000)) - 0.52) < 0.03
        True
    """

    def __init__(
        self,
        rate: float | None = None,
        *,
        keys: int | None = None,
        exact: int = EXACT_KEYS,
        counted: bool = True,
        compiled: bool | None = None,
    ) -> None:
        if rate is not None and not 0 < rate <= 1:
            raise RequestError(f"expected rate as a number above 0 and at most 1, got {rate}")
        if keys is not None and keys < 1:
            raise RequestError(f"expected keys as a whole number of at least 1, got {keys}")
        self._stack = StackDistances(compiled=compiled)
        self._rate, self._keys = rate or 1.0, keys
        self._exact = exact if keys is None else min(exact, keys)
        self._threshold = _ALL
        self._counts, self._first = np.zeros(1), 0.0  # references to sampled keys, by distance, and first ones
        self._seen = np.zeros(1 << _MAP, np.bool_) if counted else None
        self.references = 0.0
        self._lower_when_full()

    @property
    def rate(self) -> float:
        """The share of the keys that is taken now."""
        return self._threshold / _ALL

    @property
    def held(self) -> int:
        """Keys in the sample."""
        return len(self._stack)

    @property
    def distinct(self) -> float:
        """About how many distinct keys the stream had; exact while all are taken."""
        if self._seen is None or self._threshold == _ALL:
            return self.held / self.rate
        # Linear counting: of m places, n keys leave about m * exp(-n / m) empty. A full map says nothing.
        empty = self._seen.size - np.count_nonzero(self._seen)
        return float(self._seen.size * np.log(self._seen.size / empty)) if empty else self.held / self.rate

    def add(self, hashes: U64, references: int | None = None) -> tuple[I64, F64]:
        """Take the next references.

        Args:
            hashes: of their keys, from `hash_keys` or as evenly spread.
            references: how many there were, where those of keys outside the sample were left out.

        Returns:
            The places in `hashes` of those in the sample, and the distance of each, scaled; -1 for a first touch.

        Raises:
            RequestError: no hashes.
        """
        check_hashes(hashes)
        self.references += hashes.size if references is None else references
        if self._seen is not None:
            # The last bits: the threshold looks at the first.
            self._seen[hashes & np.uint64(self._seen.size - 1)] = True
        rows = np.arange(hashes.size) if self._threshold == _ALL else np.flatnonzero(hashes < np.uint64(self._threshold))
        found = self._stack.add(hashes[rows])
        counts = np.bincount(found + 1, minlength=1)
        again = counts[1:]
        if again.size > self._counts.size:
            self._counts = np.concatenate([self._counts, np.zeros(max(again.size, 2 * self._counts.size) - self._counts.size)])
        self._counts[: again.size] += again
        self._first += float(counts[0])
        distances = np.maximum(found / self.rate, -1)
        self._lower_when_full()
        return rows, distances

    def lower(self, rate: float) -> None:
        """Go on with this share of the keys, if it is less than now."""
        threshold = max(int(rate * _ALL), 1)
        if threshold >= self._threshold:
            return
        ratio = threshold / self._threshold
        before = self.held
        self._stack.forget_from(threshold)
        self._counts = _shrunk(self._counts, ratio)
        self._first *= self.held / max(before, 1)
        self._threshold = threshold

    def fade(self, share: float) -> None:
        """Let all references so far count only so much: the curve then follows a stream that changes. The keys stay known."""
        self._counts *= share
        self._first *= share
        self.references *= share

    def forget_keys(self) -> None:
        """Forget when keys came last. What has been counted stays; a first touch of each of those held is taken off beforehand."""
        self._first -= self.held
        self._stack.forget_from(0)

    def curve(self, *, adjusted: bool = True) -> MissRatioCurve:
        """The miss-ratio curve of all references so far, faded ones for as much as they count.

        Args:
            adjusted: if the sample has more or fewer references than its share, which happens when a frequent key is in it or not,
                take the difference for references of distance 0 (SHARDS-adj). With skewed keys the error is ten times less.
        """
        counts = np.trim_zeros(self._counts, "b")
        counts = counts.copy() if counts.size else np.zeros(1)
        share = self.held / max(self.distinct, 1.0) or self.rate
        if adjusted:
            counts[0] += self.references * share - (counts.sum() + self._first)
        return MissRatioCurve.from_counts(counts, self._first, 1 / share)

    def beyond(self, distance: float, *, first: bool = False) -> float:
        """References to sampled keys with a greater (finite) distance, as a share of all references to sampled keys.

        Args:
            distance: in other keys.
            first: count first touches too.
        """
        taken = float(self._counts.sum()) + self._first
        far = float(self._counts[int(distance * self.rate) + 1 :].sum()) + (self._first if first else 0.0)
        return far / max(taken, 1.0)

    def _lower_when_full(self) -> None:
        if self.held >= self._exact:
            self.lower(self._rate)
        if self._keys is not None and self.held > self._keys:
            # The least hash that goes; hashes are spread evenly, so it is also the new rate.
            hashes = np.partition(self._stack.keys(), int(_KEEP * self._keys))
            self.lower(int(hashes[int(_KEEP * self._keys)]) / _ALL)


def _shrunk(counts: F64, ratio: float) -> F64:
    """The histogram for a lower rate: distances and counts times `ratio`; what falls between two distances is divided."""
    places = np.arange(counts.size) * ratio
    low = places.astype(np.int64)
    part = places - low
    size = int(low[-1]) + 2
    lower: F64 = np.bincount(low, weights=counts * (1 - part) * ratio, minlength=size).astype(np.float64)
    lower += np.bincount(low + 1, weights=counts * part * ratio, minlength=size)
    return lower
