"""Exact stack reuse distances: of a whole sequence, and of a stream batch by batch."""

from __future__ import annotations

import importlib.util
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from srj.errors import RequestError
from srj.sizing.keys import factorised
from srj.sizing.stack import ColumnStack

if TYPE_CHECKING:
    import numpy.typing as npt

    from srj.sizing.compiled import CompiledStack

    U64 = npt.NDArray[np.uint64]
    I64 = npt.NDArray[np.int64]

FIRST_TOUCH = -1
"""The distance of a key's first reference, which is infinite."""


def reuse_distances(keys: npt.NDArray[Any], *, compiled: bool | None = None) -> I64:
    """For each reference of a sequence the number of distinct other keys since the last one to the same key.

    An LRU cache of C entries hits if and only if this is less than C (and not `FIRST_TOUCH`).

    Args:
        keys: one-dimensional; whole numbers of any type, or strings.
        compiled: use numba (the extra ``compiled``); True: it must be there, None: where it is installed, False: NumPy alone.

    Returns:
        int64, as many as keys; `FIRST_TOUCH` (-1) for a key's first reference.

    Raises:
        RequestError: keys of another type or shape, or no numba where it must be.

    Example:
        >>> import numpy as np
        >>> reuse_distances(np.array(["a", "b", "b", "c", "a"])).tolist()
        [-1, -1, 0, -1, 2]
    """
    distinct, codes = factorised(keys)
    if _compiled(compiled):
        return _compiled_stack().add(codes.astype(np.uint64))
    return ColumnStack().add_codes(np.arange(len(distinct), dtype=np.uint64), codes)


class StackDistances:
    """Exact reuse distances of a stream, batch by batch; the memory is bounded by the number of distinct keys.

    Up to 150 bytes a key when compiled, some 30 and the batch's own without. However the stream is cut into batches, the distances
    are the same.

    Args:
        compiled: as in `reuse_distances`.

    Raises:
        RequestError: no numba where it must be.

    Example:
        >>> import numpy as np
        >>> stack = StackDistances()
        >>> stack.add(np.array([7, 8, 8], np.uint64)).tolist(), stack.add(np.array([9, 7], np.uint64)).tolist(), len(stack)
        ([-1, -1, 0], [-1, 2], 3)
    """

    def __init__(self, *, compiled: bool | None = None) -> None:
        self._stack = _compiled_stack() if _compiled(compiled) else ColumnStack()

    def __len__(self) -> int:
        return len(self._stack)

    def add(self, keys: U64) -> I64:
        """Distances of the next references.

        Args:
            keys: their keys as 64-bit words: numbers, or hashes (`hash_keys`); two keys of one hash are taken for the same.

        Returns:
            As `reuse_distances`.
        """
        if keys.dtype != np.uint64 or keys.ndim != 1:
            raise RequestError(f"expected a one-dimensional array of uint64, got {keys.ndim} of {keys.dtype}; see hash_keys")
        return self._stack.add(keys)

    def forget_from(self, threshold: int) -> None:
        """Forget the keys that are not less than this, as if they had never been; SHARDS lowers its rate so."""
        keys = self._stack.keys()
        self._stack.load(keys[keys < np.uint64(threshold)])

    def keys(self) -> U64:
        """The keys seen, the one not referenced for longest first."""
        return self._stack.keys()


@cache
def _has_numba() -> bool:
    return importlib.util.find_spec("numba") is not None


def _compiled(wanted: bool | None) -> bool:
    if wanted and not _has_numba():
        raise RequestError("expected numba for compiled=True, which is not installed; run: pip install 'srj[compiled]'")
    return _has_numba() if wanted is None else wanted


def _compiled_stack() -> CompiledStack:
    from srj.sizing.compiled import CompiledStack  # noqa: PLC0415  importing numba takes half a second

    return CompiledStack()
