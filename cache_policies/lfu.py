"""LFU: the entry that was used least often since it came in leaves first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import cachetools
import numpy as np

from srj.cache_policies.ages import ages
from srj.cache_policies.policy import Policy

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

    from srj.cache_policies.policy import Fields

_MOST = np.uint32(0xFFFF)
_HALF = np.uint32(16)


class Uses:
    """The vectorised rule: each way counts its entry's uses; of equal counts the one used longest ago leaves, as in the exact form.

    An entry whose rows are fetched again, after its time to live or by a second process, keeps its count, and that is one use more.

    A number of 32 bits has to hold both: counts above 65,535, and ages above 65,535 ticks, count as that.
    """

    @property
    def fields(self) -> Mapping[str, np.dtype[Any]]:
        """A count, and the tick of the last use."""
        return {"uses": np.dtype(np.uint32), "last_use": np.dtype(np.uint32)}

    def on_hit(self, fields: Fields, ways: npt.NDArray[np.int64], ticks: npt.NDArray[np.uint32]) -> None:
        """One use more."""
        np.add.at(fields["uses"], ways, np.uint32(1))
        fields["last_use"][ways] = ticks

    def on_insert(self, fields: Fields, ways: npt.NDArray[np.int64], ticks: npt.NDArray[np.uint32]) -> None:
        """An insert is a use."""
        fields["uses"][ways] = 1
        fields["last_use"][ways] = ticks

    def victim(self, fields: Fields, tick: int) -> npt.NDArray[np.uint32]:
        """Few uses first, then ticks since the last one."""
        rarity = _MOST - np.minimum(fields["uses"], _MOST)
        age = np.minimum(ages(tick, fields["last_use"]), _MOST)
        order: npt.NDArray[np.uint32] = (rarity << _HALF) | age
        return order


LFU = Policy("lfu", exact=cachetools.LFUCache, rule=Uses())
