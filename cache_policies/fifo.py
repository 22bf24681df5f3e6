"""FIFO: the entry that came in first leaves first."""

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


class Entered:
    """The vectorised rule: each way keeps the tick at which its entry came in.

    An entry whose rows are fetched again keeps its place; cachetools would put it last.
    """

    @property
    def fields(self) -> Mapping[str, np.dtype[Any]]:
        """One 32-bit tick."""
        return {"entered": np.dtype(np.uint32)}

    def on_hit(self, fields: Fields, ways: npt.NDArray[np.int64], ticks: npt.NDArray[np.uint32]) -> None:
        """A hit changes nothing."""

    def on_insert(self, fields: Fields, ways: npt.NDArray[np.int64], ticks: npt.NDArray[np.uint32]) -> None:
        """In since now."""
        fields["entered"][ways] = ticks

    def victim(self, fields: Fields, tick: int) -> npt.NDArray[np.uint32]:
        """Ticks since it came in; the subtraction wraps, so the tick may too."""
        return ages(tick, fields["entered"])


FIFO = Policy("fifo", exact=cachetools.FIFOCache, rule=Entered())
