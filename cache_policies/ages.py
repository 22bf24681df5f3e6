"""Ticks since a use."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt


def ages(tick: int, since: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    """Ticks from each of some ticks until `tick`, which may have wrapped; 0 where that is the earlier one.

    A process that was held up may set the common tick back a little: what was used since then is new, not 2**32 ticks old.

    >>> ages(2, np.array([1, 2, 3, 2**32 - 1], np.uint32)).tolist()
    [1, 0, 0, 3]
    """
    age = (np.uint32(tick & 0xFFFFFFFF) - since).view(np.int32)
    return np.maximum(age, 0, out=age).view(np.uint32)
