"""Traces: independent Zipf references, loops, and figure 5.4's intervals."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    I64 = npt.NDArray[np.int64]


def zipf(count: int, distinct: int, skew: float, seed: int) -> I64:
    """The i-th most frequent key as likely as 1 / i ** skew; keys in no order."""
    rng = np.random.default_rng(seed)
    shares = np.cumsum(1 / np.arange(1, distinct + 1) ** skew)
    return rng.permutation(distinct)[np.searchsorted(shares / shares[-1], rng.random(count))]


def intervals(lengths: list[int], keys: list[int], seed: int) -> I64:
    """One interval after the other, each uniform on so many keys of its own."""
    rng = np.random.default_rng(seed)
    starts = np.cumsum([0, *keys[:-1]])
    parts = [start + rng.integers(0, size, length) for start, size, length in zip(starts, keys, lengths, strict=True)]
    return np.concatenate(parts)
