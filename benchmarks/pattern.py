"""What the pattern query says of eight traces, and how long MaxSRD pauses where there is no pattern: the choice of m.

``python -m benchmarks.pattern`` prints the tables of docs/sizing.md; it takes ten seconds.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np

from srj.experiments.traces import trace
from srj.sizing import Watch, hash_keys, reuse_distances
from tests.sizing.traces import intervals, zipf

if TYPE_CHECKING:
    import numpy.typing as npt

BATCH, MEMORY, REPEATS = 5_000, 80_000, 100


def traces() -> dict[str, npt.NDArray[Any]]:
    """Integer keys in the order of their references."""
    return {
        "moving interval (5.4)": intervals([50_000] * 40, [5_000] * 40, 1),
        "intervals, 5,000 then 10,000 keys": intervals([50_000] * 6 + [100_000] * 3, [5_000] * 6 + [10_000] * 3, 1),
        "intervals, 5,000 then 2,000 keys": intervals([50_000] * 10, [5_000] * 6 + [2_000] * 4, 1),
        "zipf 0": zipf(2_000_000, 500_000, 0, 1),
        "zipf 0.6": zipf(2_000_000, 500_000, 0.6, 1),
        "zipf 1": zipf(2_000_000, 500_000, 1, 1),
        "loop of 20,000": np.tile(np.arange(20_000), 50),
        "flights": trace("new york flights").keys(),
    }


def longest_pause(keys: npt.NDArray[Any]) -> float:
    """The most that StackSize grows, as a share, between two rises of MaxSRD with 100 repeated keys between them."""
    distances = reuse_distances(keys)
    new = distances < 0
    stack, repeats = np.cumsum(new), np.cumsum(~new)
    rises = np.flatnonzero(np.diff(np.maximum.accumulate(distances), prepend=-1) > 0)
    ends = np.append(rises[1:] - 1, distances.size - 1)
    growth = stack[ends] / stack[rises] - 1
    return float(growth[repeats[ends] - repeats[rises] >= REPEATS].max(initial=0.0))


def _events(watch: Watch, hashes: npt.NDArray[np.uint64]) -> tuple[list[str], float]:
    events: list[str] = []
    before = (watch.phase, 1)
    start = time.perf_counter()
    for row in range(0, hashes.size, BATCH):
        watch.add(hashes[row : row + BATCH])
        if (watch.phase, watch.searches) != before:
            before = watch.phase, watch.searches
            events.append(f"{row + BATCH:,}: {watch.phase.value} {watch.bound or ''}".strip())
    return events, (time.perf_counter() - start) / hashes.size * 1e9


def main() -> None:
    """Print the table in Markdown."""
    reuse_distances(np.arange(3))  # compiles
    print("| trace | MaxSRD + 1 | longest pause | after so many references | ns a reference |\n| --- | ---: | ---: | --- | ---: |")
    for name, keys in traces().items():
        events, cost = _events(Watch(MEMORY), hash_keys(keys))
        largest = int(reuse_distances(keys).max()) + 1
        print(f"| {name} | {largest:,} | {longest_pause(keys):.3f} | {'; '.join(events)} | {cost:.0f} |")


if __name__ == "__main__":
    main()
