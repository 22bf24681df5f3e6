"""What the thesis's formulas make of the measured costs: r(k), and the size at which the gain is largest, beside the fastest.

Run it after ``python -m benchmarks.batches``, whose figures it reads: ``python -m benchmarks.batch_gain``.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from benchmarks.batches import IN_FLIGHT, NAMES, PICTURE, SIZES
from srj.lookup.cost import speedup, thesis_gain

if TYPE_CHECKING:
    from collections.abc import Callable

INTERVALS = (1e-6, 1e-3)  # seconds between rows: within a micro-batch, and of a stream that trickles
_NEARLY = 0.95  # of the largest r(k), at the smallest size that counts as the formula's where r no longer grows


def costs_of(result: dict[str, Any]) -> dict[int, float]:
    """C_batch(k), seconds, as one lookup at a time shows it."""
    return {size: size / result["cells"][f"{size} 1"] for size in SIZES}


def ratios_of(costs: dict[int, float]) -> dict[int, float]:
    """r(k), where C_miss is a lookup of one key."""
    return {size: speedup(size, costs[1], cost) for size, cost in costs.items()}


def largest_gain(costs: dict[int, float], interval: float) -> int:
    """The size that the thesis's formula takes for the best."""
    return max(costs, key=lambda size: thesis_gain(size, costs[1], costs[size], interval))


def knee(ratios: dict[int, float]) -> int:
    """The smallest size at which r(k) has nearly grown as far as it does: the thesis's choice where r stays as it is."""
    highest = max(ratios.values())
    return min(size for size, ratio in ratios.items() if ratio >= _NEARLY * highest)


def fastest(result: dict[str, Any], flights: tuple[int, ...] = IN_FLIGHT) -> int:
    """The size with the highest throughput, with any of these numbers in flight."""
    return max(SIZES, key=lambda size: max(result["cells"][f"{size} {number}"] for number in flights))


def tables(results: list[dict[str, Any]]) -> str:
    """r(k), and then the sizes."""
    lines = [
        "| r(k), one in flight | " + " | ".join(f"k = {size:,}" for size in SIZES) + " |",
        "| --- |" + " --- |" * len(SIZES),
    ]
    for one in results:
        ratios = ratios_of(costs_of(one))
        lines.append(f"| {_name(one)} | " + " | ".join(f"{ratios[size]:,.3g}" for size in SIZES) + " |")
    lines += [
        "",
        "| k by | gain, I = 1 us | gain, I = 1 ms | r(k) no longer grows | fastest, one in flight | fastest of all | auto |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    chosen: list[Callable[[dict[str, Any]], int]] = [
        *(lambda one, interval=interval: largest_gain(costs_of(one), interval) for interval in INTERVALS),
        lambda one: knee(ratios_of(costs_of(one))),
        lambda one: fastest(one, (1,)),
        fastest,
        lambda one: one["auto"]["size"],
    ]
    lines += [f"| {_name(one)} | " + " | ".join(f"{choose(one):,}" for choose in chosen) + " |" for one in results]
    return "\n".join(lines)


def _name(result: dict[str, Any]) -> str:
    return f"{NAMES[result['server']]} ({result['regime']})"


def main() -> None:
    """Print both tables."""
    print(tables(json.loads(PICTURE.with_suffix(".json").read_text())))


if __name__ == "__main__":
    main()
