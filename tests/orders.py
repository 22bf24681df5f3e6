"""What the tests of order constraints share: numbered rows, and slow, independent definitions of what a constraint promises."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from srj import Disorder, Windows

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from srj.lookup.order import Order


def maximum_scrambling_distance(left: Sequence[int]) -> int:
    """Definition 8 to the letter: over all pairs in the wrong order, the rows that leave after the first up to the second.

    >>> maximum_scrambling_distance([1, 2, 0, 3])
    2
    """
    rows = np.array(left, np.int64)
    most = 0
    for earlier in range(len(rows)):
        overtaken = np.flatnonzero(rows[earlier + 1 :] < rows[earlier])
        if len(overtaken):
            most = max(most, int(overtaken[-1]) + 1)
    return most


def windows_of(rows: Sequence[int], size: int, slide: int) -> list[set[int]]:
    """What each count window over these rows holds."""
    return [set(rows[begin : begin + size]) for begin in range(0, len(rows), slide)]


def assert_kept(order: Order, keys: Sequence[int], left: Sequence[int]) -> None:
    """No row lost or doubled, none before an older one of its key, and the constraint kept."""
    assert sorted(left) == list(range(len(keys)))
    last_of: dict[int, int] = {}
    for row in left:
        assert last_of.get(keys[row], -1) < row
        last_of[keys[row]] = row
    distance = maximum_scrambling_distance(left)
    if order == "input":
        assert distance == 0
    elif isinstance(order, Disorder):
        assert distance <= order.max
    elif isinstance(order, Windows):
        for size, slide in order.windows:
            assert windows_of(left, size, slide) == windows_of(range(len(left)), size, slide)


def arrowed(batches: list[list[int]], **more: list[list[int]]) -> Iterator[tuple[pa.RecordBatch, tuple[pa.Array]]]:
    """Batches with numbered rows."""
    start = 0
    for number, keys in enumerate(batches):
        columns: dict[str, Any] = {name: pa.array(values[number], pa.int64()) for name, values in more.items()}
        yield (
            pa.record_batch({"row": pa.array(range(start, start + len(keys)), pa.int64()), **columns}),
            (pa.array(keys, pa.int64()),),
        )
        start += len(keys)
