"""How much faster the exact reuse distances are than Mattson's list, on a Zipf trace of 1 M references.

``python -m benchmarks.reuse_distance`` prints the ratios; the list is timed once over the whole trace, which takes a minute or two.
"""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING, Any

import numpy as np

from srj.sizing import reuse_distances
from tests.sizing.mattson import mattson
from tests.sizing.traces import zipf

if TYPE_CHECKING:
    from collections.abc import Callable

REFERENCES, KEYS, SKEW = 1_000_000, 100_000, 1.0
BARS = {"compiled": 100, "NumPy": 10}


def _timed(action: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    result = action()
    return time.perf_counter() - start, result


def main() -> None:
    """Print the table in Markdown."""
    keys = zipf(REFERENCES, KEYS, SKEW, 1)
    reuse_distances(keys[:10], compiled=True)  # compiles
    listed, expected = _timed(lambda: mattson(keys.tolist()))
    print("| form | seconds | times as fast as the list | bar |\n| --- | ---: | ---: | ---: |")
    print(f"| Mattson's list | {listed:.1f} | 1 | |")
    for name, bar in BARS.items():
        runs = [_timed(lambda name=name: reuse_distances(keys, compiled=name == "compiled")) for _ in range(5)]
        if not all(np.array_equal(found, expected) for _, found in runs):
            raise AssertionError(f"{name}: other distances than the list's")
        seconds = statistics.median(seconds for seconds, _ in runs)
        print(f"| {name} | {seconds:.3f} | {listed / seconds:.0f} | {bar} |")


if __name__ == "__main__":
    main()
