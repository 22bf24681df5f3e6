"""LRU: the entry that was used longest ago leaves first."""

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


class LastUse:
    """The vectorised rule: each way keeps the tick of its last use."""

    @property
    def fields(self) -> Mapping[str, np.dtype[Any]]:
        """One 32-bit tick."""
        return {"last_use": np.dtype(np.uint32)}

    def on_hit(self, fields: Fields, ways: npt.NDArray[np.int64], ticks: npt.NDArray[np.uint32]) -> None:
        """Used now."""
        fields["last_use"][ways] = ticks

    def on_insert(self, fields: Fields, ways: npt.NDArray[np.int64], ticks: npt.NDArray[np.uint32]) -> None:
        """An insert is a use."""
        fields["last_use"][ways] = ticks

    def victim(self, fields: Fields, tick: int) -> npt.NDArray[np.uint32]:
        """Ticks since the last use; the subtraction wraps, so the tick may too."""
        return ages(tick, fields["last_use"])


LRU = Policy("lru", exact=cachetools.LRUCache, rule=LastUse())
