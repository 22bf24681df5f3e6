"""Reuse distances by whole-column arithmetic: previous references, and how many earlier numbers are smaller."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    I32 = npt.NDArray[np.int32]
    I64 = npt.NDArray[np.int64]

_HALF = 16  # bits; NumPy sorts such numbers by their digits, in linear time


def order_by_code(codes: I32, distinct: int) -> I64:
    """The references sorted by key, those of one key in their own order.

    Args:
        codes: each reference's key, a number below `distinct`.
        distinct: how many keys there are.
    """
    order: I64 = np.argsort(codes.astype(np.uint16), kind="stable")
    if distinct > 1 << _HALF:
        high = (codes >> _HALF)[order].astype(np.uint16)
        order = order[np.argsort(high, kind="stable")]
    return order


def previous(codes: I32, order: I64) -> I64:
    """The position of each reference's last one to the same key, -1 for none; `order` is `order_by_code`'s."""
    found = np.full(codes.size, -1, np.int64)
    in_order = codes[order]
    again = np.flatnonzero(in_order[1:] == in_order[:-1])
    found[order[again + 1]] = order[again]
    return found


def count_smaller_before(ranks: I32) -> I32:
    """For each number of a permutation, how many of those that stand before it are smaller.

    The numbers are sorted by their bits, the highest first, each time keeping their order. Who has a 1 where others of his group
    have a 0 finds those of them that stand before him smaller, and this is the first bit that tells: each pair is counted once. A
    pass is a dozen sweeps over the columns; sorting by merging would need a sort in every pass.

    Args:
        ranks: each of 0 ... n - 1 once, int32.

    Example:
        >>> count_smaller_before(np.array([2, 0, 3, 1], np.int32)).tolist()
        [0, 0, 2, 1]
    """
    size = ranks.size
    numbers, counts = ranks.copy(), np.zeros(size, np.int32)
    places = np.arange(size, dtype=np.int32)
    for bit in reversed(range(max(size - 1, 0).bit_length())):
        ones = (numbers >> bit) & 1
        # The groups before this one are whole, so half of their members have a 0; those of this group are counted from its start.
        start = (numbers >> (bit + 1)) << (bit + 1)
        zeros = np.cumsum(ones, dtype=np.int32)
        np.subtract(places, zeros, out=zeros)
        zeros += ones
        zeros -= start >> 1
        counts += ones * zeros
        # A 0 moves behind the zeros before it; a 1 stands behind all 2**bit zeros and the ones before it.
        target = np.where(ones, places + (1 << bit) - zeros, start + zeros)
        moved = np.empty((2, size), np.int32)
        moved[0][target], moved[1][target] = numbers, counts
        numbers, counts = moved
    return counts[ranks]


def distances(before: I64, held: int) -> I64:
    """Reuse distances from the positions of the previous references.

    Every reference since the last one to the same key counts unless its own key came up in between already; that is, if its
    previous reference is older. All references up to the previous one have such, so they need only be counted and taken off again.

    Args:
        before: positions on a time axis on which `held` distinct keys stand first, and then these references; -1: never before.
        held: number of keys referenced earlier.

    Returns:
        The number of other keys since, -1 where there was no earlier reference.
    """
    out = np.full(before.size, -1, np.int64)
    again = np.flatnonzero(before >= 0)
    earlier = before[again]
    present = np.zeros(held + before.size, np.int32)
    present[earlier] = 1
    ranks = (np.cumsum(present, dtype=np.int32) - 1)[earlier]
    first_touches = again - np.arange(again.size)
    out[again] = held + first_touches + count_smaller_before(ranks) - earlier - 1
    return out
