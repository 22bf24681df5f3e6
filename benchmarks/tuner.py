"""The tuner's pick against the full grid of policies and sizes, on traces that it was not made for.

``python -m benchmarks.tuner`` prints the tables of docs/tuning.md. The grid is every usable policy at 20 sizes in full, the tuner's
own simulations for the last step. For each limit of memory the regret is how many more misses the pick has than the best cell
of the grid within the limit; for a price of memory it is how much more it costs than the best of all cells. Each pick is timed
from the keys on, LRU's curve included, and divided by the grid's time; both in seconds of the processor, for others may use the
machine. ``--scale 0.2`` makes the traces shorter.
"""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING

import numpy as np

from srj.experiments.traces import trace
from srj.sizing import reuse_distances
from srj.tuning import KeySequence, Prices, lru_curve, pick, usable
from srj.tuning.simulating import in_full

if TYPE_CHECKING:
    from collections.abc import Iterator

    from srj.tuning import Pick, Trial

SIZES = 20
LIMITS = (6, 11, 16)  # of the sizes
BARS = 0.02, 1 / 20  # regret, share of the grid's time
_SEED = 20


def traces(scale: float) -> Iterator[tuple[str, KeySequence]]:
    """The keys of each trace."""

    def made(number: int) -> int:
        return round(number * scale)

    for skew in (0.0, 0.6, 1.0):
        keys = {"length": made(1_000_000), "distinct": made(100_000), "relation": made(500_000)}
        yield f"zipf {skew:g}", _keys("zipf", skew=skew, seed=_SEED, **keys)
    interval = {"length": made(2_000_000), "relation": made(500_000)}
    yield "moving interval", _keys("moving interval", seed=_SEED, **interval)
    yield "loop", _keys("loop", length=made(1_000_000), relation=made(100_000), distinct=made(50_000))
    yield "flights", _keys("new york flights", length=made(1_000_000))
    yield "latest", _keys("latest", length=made(1_000_000), relation=made(100_000), seed=_SEED)
    shifting = {"length": made(1_000_000), "distinct": made(50_000), "relation": made(200_000)}
    yield "shifting zipf", _keys("shifting zipf", seed=_SEED, **shifting)
    # None of the tuner's numbers was chosen with an eye on these.
    yield "movielens", _keys("movielens")
    yield "hot spot", _keys("hot spot", length=made(1_000_000), relation=made(100_000), seed=_SEED)
    yield "random walk", _keys("random walk", length=made(1_000_000), relation=made(100_000), seed=_SEED)


def _keys(name: str, **parameters: float) -> KeySequence:
    return KeySequence.of(trace(name, **parameters).keys())


def full_grid(keys: KeySequence) -> tuple[list[int], dict[str, list[Trial]], float]:
    """The sizes, each policy's trials at them, and the seconds."""
    sizes = np.unique(np.geomspace(keys.distinct / 100, np.ceil(1.15 * keys.distinct), SIZES).astype(int)).tolist()
    start = time.process_time()
    trials = {policy: [in_full(keys, policy, rows) for rows in sizes] for policy in usable()}
    return sizes, trials, time.process_time() - start


def timed_pick(keys: KeySequence, prices: Prices) -> tuple[Pick, float]:
    """The tuner's answer, and the seconds that it took."""
    start = time.process_time()
    found = pick(keys, lru_curve(keys), prices)
    return found, time.process_time() - start


def lines(name: str, keys: KeySequence) -> Iterator[str]:
    """A trace's rows of the table."""
    sizes, grid, seconds = full_grid(keys)
    cells = [trial for trials in grid.values() for trial in trials]
    for limit in (sizes[at] for at in LIMITS if at < len(sizes)):
        prices = Prices(memory=f"{limit} rows")
        best = min((cell for cell in cells if cell.rows <= limit), key=lambda cell: (cell.misses, cell.rows))
        yield _line(name, f"{limit:,} rows", prices, keys, best, seconds)
    # All keys would cost as much as to miss three in ten references.
    worth = 0.3 * keys.references * Prices().miss_cost / (Prices().bytes_of(keys.distinct) / 1e9)
    prices = Prices(memory_cost=worth)
    best = min(cells, key=lambda cell: float(prices.cost(cell.misses, cell.rows)))
    yield _line(name, "priced", prices, keys, best, seconds)


def _line(name: str, limit: str, prices: Prices, keys: KeySequence, best: Trial, seconds: float) -> str:
    found, took = timed_pick(keys, prices)
    mine = found.best
    regret = float(prices.cost(mine.misses, mine.rows) / prices.cost(best.misses, best.rows)) - 1
    share = took / seconds
    met = "yes" if regret <= BARS[0] and share <= BARS[1] else "no"
    grid = f"{best.policy} {best.rows:,}: {best.misses:,.0f}"
    picked = f"{mine.policy} {mine.rows:,}: {mine.misses:,.0f}"
    return f"| {name} | {limit} | {grid} | {picked} | {regret:+.2%} | {took:.1f} | {seconds:.0f} | 1/{1 / share:.0f} | {met} |"


def main() -> None:
    """Print the table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--scale", type=float, default=1.0, help="of the traces' lengths and keys")
    parser.add_argument("--only", action="append", help="a trace's name; repeat it for more")
    arguments = parser.parse_args()
    reuse_distances(np.arange(3))  # compiles
    print("| trace | limit | the grid's best | the pick | regret | s | grid's s | share | within both bars |")
    print("| --- | ---: | --- | --- | ---: | ---: | ---: | ---: | --- |")
    for name, keys in traces(arguments.scale):
        if not arguments.only or name in arguments.only:
            for line in lines(name, keys):
                print(line, flush=True)


if __name__ == "__main__":
    main()
