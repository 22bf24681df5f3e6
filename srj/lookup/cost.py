"""What a lookup of k keys costs: learned from lookups, and what the thesis's formulas make of it.

The cost of a batch is taken for a straight line, C_batch(k) = a + b k: a round trip, a statement and perhaps a scan of the table,
whatever k is, and then so much a key.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    F64 = npt.NDArray[np.float64]

_SIZES = 18  # classes of sizes, by powers of two: up to 2**17 keys
_MEMORY = 8.0  # lookups of a class that count at a time
_FORGET = 0.98  # what all classes keep of their weight with each lookup of any class
_FORGOTTEN = 0.3  # a class with less weight is not looked at
_NONSENSE = 1e9  # keys and seconds beyond are none
_SURE = 5.0  # weight of all classes from which on the line is believed
_OUTLIER = 3.0  # a lookup that takes so many times what is expected counts as that many times
_CHANGE = 2.0  # and one that takes so many times as long, or as short, is a sign of another regime
_SIGNS = 3  # so many of which, one after the other, are believed


class Line(NamedTuple):
    """C_batch(k) = fixed + each * k, in seconds; neither is negative."""

    fixed: float
    each: float

    def __call__(self, keys: float) -> float:
        """Seconds for so many keys.

        >>> Line(0.1, 0.001)(100)
        0.2
        """
        return self.fixed + self.each * keys

    def size(self, excess: float) -> float:
        """The smallest number of keys at which a key costs at most 1 + `excess` times what it costs in an endless batch.

        >>> Line(0.1, 0.001).size(0.02), Line(0.1, 0.0).size(0.02)
        (5000.0, inf)
        """
        return self.fixed / (self.each * excess) if self.each > 0 else float("inf")

    def within(self, seconds: float) -> float:
        """The most keys that are answered in so many seconds; below 1 if not even one is.

        >>> round(Line(0.1, 0.001).within(0.3))
        200
        """
        return (seconds - self.fixed) / self.each if self.each > 0 else float("inf") if seconds >= self.fixed else 0.0


class CostModel:
    """C_batch(k) of one table as lookups show it: recent ones count more, and single slow ones little.

    Lookups are gathered in classes of sizes, for each of which means are kept that forget; through these a line is laid.

    Args:
        memory: `WORDS` numbers that hold a model, which several processes may use at once, or zeros; None: one's own. Who
            writes while another does may undo the other's lookup, which is one of many.

    Example:
        >>> model = CostModel()
        >>> for keys in (100, 1000, 100, 1000):
        ...     _ = model.observe(keys, 0.05 + keys * 1e-5)
        >>> line = model.line()
        >>> round(line.fixed, 6), round(line.each, 9)
        (0.05, 1e-05)
    """

    WORDS = 3 * _SIZES + 2

    def __init__(self, memory: F64 | None = None) -> None:
        self.attach(np.zeros(self.WORDS) if memory is None else memory)
        self._signs = 0

    def attach(self, memory: F64) -> None:
        """Go on in other memory, and with what it holds."""
        self._classes = memory[:-2].reshape(_SIZES, 3)  # weight, keys, seconds
        self._latest = memory[-2:]  # the latest line through several classes

    def detach(self) -> None:
        """Go on with a copy of the memory."""
        self._classes, self._latest = self._classes.copy(), self._latest.copy()

    def forget(self) -> None:
        """Begin anew."""
        self._classes[:], self._latest[:], self._signs = 0.0, 0.0, 0

    def observe(self, keys: int, seconds: float, *, is_steady: bool = True) -> bool:
        """Learn from a lookup of at least one key.

        Args:
            keys, seconds: what was asked, and how long it took.
            is_steady: as many lookups as before were under way with it. Of these, several that belong to another regime make all
                else forgotten.

        Returns:
            Whether that was so.
        """
        line, classes, is_change = self.line(), self._classes, False
        if line is not None and self.is_sure:
            ratio = seconds / max(line(keys), 1e-9)
            sign = int(ratio > _CHANGE) - int(ratio < 1 / _CHANGE) if is_steady else 0
            self._signs = self._signs + sign if sign and sign * self._signs >= 0 else sign
            if abs(self._signs) >= _SIGNS:
                self._signs = 0
                classes[:, 0] = 0.0
                is_change = True
            elif is_steady:
                seconds = min(seconds, _OUTLIER * line(keys))
        classes[:, 0] *= _FORGET
        mine = classes[min(keys.bit_length(), _SIZES) - 1]
        weight = min(mine[0] + 1.0, _MEMORY) if mine[0] > _FORGOTTEN else 1.0
        mine[1:] += (np.array([keys, seconds]) - mine[1:]) / weight
        mine[0] = weight
        return is_change

    def _refuse_nonsense(self) -> None:
        """Forget all where a number is none that could have been observed: a map may hold anything after its disk has failed."""
        for part in (self._classes, self._latest):
            if not ((part >= 0) & (part <= _NONSENSE)).all():
                self.forget()

    def line(self) -> Line | None:
        """The line; None before there was a lookup. While all have been of one size it is the one before, made higher or lower.

        One through several sizes is kept in the memory, to be the one before.
        """
        self._refuse_nonsense()
        known = self._classes[self._classes[:, 0] > _FORGOTTEN]
        before = Line(*self._latest.tolist())
        if not len(known):
            return before if any(before) else None
        # Relative errors: a large batch's is no more worth than a small one's.
        keys, seconds = known[:, 1], np.maximum(known[:, 2], 1e-9)
        weights = np.sqrt(known[:, 0]) / seconds
        if len(known) == 1:
            scale = float(seconds[0]) / before(float(keys[0])) if any(before) else 0.0
            return Line(before.fixed * scale, before.each * scale) if scale else Line(0.0, float(seconds[0] / keys[0]))
        # Weighted least squares of fixed + each * keys.
        weights = weights**2
        total, of_keys, of_squares = weights.sum(), weights @ keys, weights @ keys**2
        of_seconds, of_products = weights @ seconds, weights @ (keys * seconds)
        spread = total * of_squares - of_keys**2
        each = float((total * of_products - of_keys * of_seconds) / spread) if spread > 0 else 0.0
        fixed = float((of_seconds - each * of_keys) / total)
        if each < 0:
            fixed, each = float(np.average(seconds, weights=known[:, 0])), 0.0
        elif fixed < 0:
            fixed, each = 0.0, float(np.average(seconds / keys, weights=known[:, 0]))
        if self.is_sure:
            self._latest[:] = fixed, each
        return Line(fixed, each)

    @property
    def is_known(self) -> bool:
        """Whether a line has been believed at any time."""
        return bool(self._latest.any())

    @property
    def is_sure(self) -> bool:
        """Whether it has seen lookups of several sizes, and enough of them that the line is no accident."""
        weights = self._classes[:, 0]
        return bool(np.count_nonzero(weights > _FORGOTTEN) > 1 and weights.sum() > _SURE)


def speedup(keys: int, miss: float, batch: float) -> float:
    """r(k) = k C_miss / C_batch(k): how many times as fast a batch of k keys is as k lookups of one key (thesis, 4.3.2.2).

    >>> speedup(100, miss=0.001, batch=0.005)
    20.0
    """
    return keys * miss / batch


def thesis_gain(keys: int, miss: float, batch: float, interval: float) -> float:
    """Seconds by which a missing row's mean wait is shorter in a batch of k than one by one, by the thesis's formula.

    gain(k) = (k + 1) C_miss / 2 - k C_miss / r(k) - k I, where k C_miss / r(k) is C_batch(k) (thesis, 4.3.2.2).

    Args:
        keys: k.
        miss, batch: C_miss and C_batch(k), seconds.
        interval: I, seconds between rows.

    >>> round(thesis_gain(3, miss=0.010, batch=0.012, interval=0.001), 6)  # 4 * 5 ms - 12 ms - 3 ms
    0.005
    """
    return (keys + 1) * miss / 2 - batch - keys * interval


def exact_gain(keys: int, miss: float, batch: float, interval: float) -> float:
    """The same with the exact means: of (i - 1) I and of (k - i) I for i from 1 to k, which make the last term (k - 1) I.

    >>> exact_gain(1, miss=0.010, batch=0.010, interval=0.001)  # a batch of one is no batch
    0.0
    """
    return (keys + 1) * miss / 2 - batch - (keys - 1) * interval
