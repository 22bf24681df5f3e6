"""The columnar cache as `srj.cache_policies.simulate` drives it: keys without rows, and a capacity to the entry."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from srj.cache_policies.checked import checked_rule
from srj.errors import RequestError
from srj.lookup.cache import ColumnarCache
from srj.lookup.keys import Keys
from srj.lookup.layout import WAYS
from srj.quantities import shown

if TYPE_CHECKING:
    import numpy.typing as npt

    from srj.cache_policies import Policy

_NO_COLUMNS = pa.schema([])
_NO_ROWS = pa.RecordBatch.from_arrays([], schema=_NO_COLUMNS)
_NO_KEY = np.uint64(2**64 - 1)
_MOST = 2**32  # entries: with more, a hash of 32 bits would leave sets without a key


class BoundedCache(ColumnarCache):
    """A columnar cache of 64-bit keys with exactly so many ways.

    There are whole sets of eight ways, and two of them at least. Those beyond the capacity are closed, one in each set as far as
    possible: they hold a key that is never asked for, and count as taken by an insert that never ends.

    Args:
        capacity: entries held at most.
        policy: with a rule.

    Raises:
        RequestError: the policy has no rule, or the capacity needs more memory than there is.
    """

    def __init__(self, capacity: int, policy: Policy) -> None:
        if policy.rule is not None:
            checked_rule(policy)
        try:
            if capacity > _MOST:
                raise MemoryError
            super().__init__([pa.int64()], _NO_COLUMNS, size_bytes=None, size_rows=capacity, ttl=None, missing_ttl=None,
                             unique=True, policy=policy)  # fmt: skip
        except (MemoryError, OSError, OverflowError):
            raise RequestError(f"expected a capacity that the memory holds, got {shown(capacity)}; give a smaller one") from None
        placement = self._entries.placement
        column, set_ = np.divmod(np.arange(placement.ways - capacity), placement.ways // WAYS)
        closed = set_ * WAYS + WAYS - 1 - column
        placement.records[closed] = _NO_KEY
        placement.tags[closed] = 1
        placement.taken[closed] = 1


class MissCounter:
    """Misses of a sequence of keys from 0 on, part by part; of a batch's missing keys each distinct one is a miss.

    Args:
        capacity, policy: as for `BoundedCache`.
        batch_size: keys of a batch.

    Attributes:
        misses: so far.
    """

    def __init__(self, capacity: int, policy: Policy, batch_size: int) -> None:
        self._cache, self._batch_size = BoundedCache(capacity, policy), batch_size
        self.misses = 0

    def take(self, codes: npt.NDArray[np.int64]) -> None:
        """Take the next keys, from a new batch on: a part that ends within one makes other batches than all at once."""
        for start in range(0, codes.size, self._batch_size):
            batch = codes[start : start + self._batch_size]
            hit = self._cache.lookup(Keys((pa.array(batch),)), 0.0).hit
            if hit.all():
                continue
            missing, first = np.unique(batch[~hit], return_index=True)
            # In the order of their first appearance: what comes last is newest.
            missing = missing[np.argsort(first)]
            self.misses += missing.size
            store(self._cache, missing)


def store(cache: BoundedCache, keys: npt.NDArray[np.int64]) -> None:
    """Store distinct keys, each with one row of no columns."""
    cache.insert(Keys((pa.array(keys),)), np.ones(keys.size, np.int32), _NO_ROWS, 0.0)
