"""How many more misses each policy's rule has in the columnar cache than its exact form; what HEEB gains from a model.

``python -m benchmarks.rule_misses`` prints the tables of docs/policies.md; it takes half a minute.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from srj.cache_policies import simulate
from srj.cache_policies.models import Autoregressive
from tests.policies.sequences import sequence, temperatures

REFERENCES = 10_000
# Sizes away from a loop's working set, which is 700 keys; `NEAR` has those at it.
CAPACITIES = {
    "zipf": (303, 600, 1500),
    "loop": (300, 500, 1201),
    "shifting": (300, 600, 1200),
    "flights": (400, 800, 1600),
    "movielens": (300, 500, 800),
}
# Extra misses as a share of all references, at most.
BARS = {"lru": 0.005, "fifo": 0.005, "clock": 0.01, "sieve": 0.01, "lfu": 0.01}
# LRU where the capacity is this many times a working set that is asked for again and again: the most that it may miss.
NEAR = {
    "loop": {1.0: 0.115, 1.1: 0.0115, 1.25: 0.0028},
    "interval": {1.0: 0.020, 1.2: 0.0015, 1.5: 0.00005},
}
# Melbourne's temperatures in tenths of a degree: X = 5.59 + 0.72 * (yesterday's X) + noise of 4.23 degrees.
MELBOURNE = {"constant": 55.9, "phi": 0.72, "sigma": 42.3, "low": 0, "high": 450}
_WORKING_SET, _NEAR_BATCH = 5000, 1000


def extra(name: str, capacity: int, policy: str) -> float:
    """Extra misses as a share; batches of a tenth of the capacity, for in larger ones repeated keys hit anyway."""
    return _extra(sequence(name)[:REFERENCES], capacity, policy, capacity // 10)


def extra_near(name: str, ratio: float) -> float:
    """The same for LRU at so many times the working set, in batches of 1,000 keys."""
    return _extra(_near(name), round(ratio * _WORKING_SET), "lru", _NEAR_BATCH)


@cache
def _near(name: str) -> np.ndarray:
    """A loop of ten rounds, or six intervals, one after the other, with five references a key at random."""
    if name == "loop":
        return np.tile(np.arange(_WORKING_SET), 10)
    rng = np.random.default_rng(1)
    return np.concatenate([_WORKING_SET * number + rng.integers(0, _WORKING_SET, 5 * _WORKING_SET) for number in range(6)])


def _extra(keys: np.ndarray, capacity: int, policy: str, batch_size: int) -> float:
    exact = simulate(keys, capacity, policy)
    rule = simulate(keys, capacity, policy, vectorised=True, batch_size=batch_size)
    return (rule.misses - exact.misses) / len(keys)


def main() -> None:
    """Print the three tables in Markdown."""
    print("| keys | capacity | exact LRU misses | " + " | ".join(BARS) + " |\n| --- | ---: | ---: |" + " ---: |" * len(BARS))
    for name, capacities in CAPACITIES.items():
        for capacity in capacities:
            exact = simulate(sequence(name)[:REFERENCES], capacity, "lru").miss_ratio
            numbers = [extra(name, capacity, policy) for policy in BARS]
            print(f"| {name} | {capacity:,} | {exact:.3f} | " + " | ".join(f"{number:+.4f}" for number in numbers) + " |")
    print("| LRU's extra misses, capacity / working set | measured | at most |\n| --- | ---: | ---: |")
    for name, bars in NEAR.items():
        for ratio, bar in bars.items():
            print(f"| {name}, {ratio:.2f} | {extra_near(name, ratio):+.4f} | {bar:g} |")
    print("| capacity | OPT | HEEB, AR(1) | HEEB, independent | PROB | LRU |\n| ---: |" + " ---: |" * 5)
    model = Autoregressive(**MELBOURNE)
    for capacity in (25, 50, 75, 100, 150, 200):
        found = [simulate(temperatures(), capacity, name, **more).misses
                 for name, more in (("opt", {}), ("heeb", {"model": model}), ("heeb", {}), ("prob", {}), ("lru", {}))]  # fmt: skip
        print(f"| {capacity} | " + " | ".join(f"{number:,}" for number in found) + " |")


if __name__ == "__main__":
    main()
