"""``cache="auto"`` beside the best fixed split of the same memory, on six traces, and what its watching costs.

``python -m benchmarks.auto_size``: for each trace it sweeps the cache's share of the memory through srj's core and a PostgreSQL of
its own, then measures the best share and auto in turns, each time opened anew. The traces without Zipf take 12 minutes; the table
is in docs/sizing.md.
"""

from __future__ import annotations

import time
from contextlib import closing
from math import comb
from statistics import median
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from srj import Batch
from srj.experiments.split_cell import Bench
from srj.experiments.traces import trace
from tests import servers

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

    from srj.experiments.traces import Trace

SHARES = ("6.25 %", "12.5 %", "25 %", "37.5 %", "50 %", "62.5 %", "75 %", "87.5 %", "93.75 %")
PAIRS = 15
# By which a share is measured, after as many; more where a second takes more.
ROWS = {"Zipf 1": 1_200_000, "moving interval": 1_000_000, "flights": 300_000, "loop": 2_000_000}
_ROWS = 600_000
MEMORY = {"new york flights": 0.5}  # share of the relation
_MEMORY = 0.1


def traces() -> dict[str, Trace]:
    """By what the table calls them."""
    return {
        "Zipf 0": trace("zipf", length=2_000_000, distinct=500_000, relation=500_000, skew=0.0, seed=1),
        "Zipf 0.6": trace("zipf", length=2_000_000, distinct=500_000, relation=500_000, skew=0.6, seed=1),
        "Zipf 1": trace("zipf", length=2_000_000, distinct=500_000, relation=500_000, skew=1.0, seed=1),
        "moving interval": trace("moving interval", seed=1),
        "flights": trace("new york flights"),
        "loop": trace("loop", length=2_000_000, relation=500_000, distinct=30_000),
    }


class Timed:
    """How long watching keys and deciding takes in a bench."""

    def __init__(self, bench: Bench) -> None:
        auto = bench.engine._auto  # noqa: SLF001  to time it
        assert auto is not None  # noqa: S101  for mypy
        self.seconds, see = 0.0, auto.see

        def timed(hashes: np.ndarray, missed: int) -> None:
            begun = time.perf_counter()
            see(hashes, missed)
            self.seconds += time.perf_counter() - begun

        auto.see = timed  # type: ignore[method-assign]


def main(
    only: Annotated[str, typer.Option(help="A part of the traces' names.")] = "",
    rows: Annotated[int, typer.Option(help="By which a share is measured; 0: as many as fit the trace.")] = 0,
    pairs: Annotated[int, typer.Option(help="Of a turn with the best share and one with auto.")] = PAIRS,
) -> None:
    """Print a row a trace."""
    console = Console()
    console.print(
        "| trace | memory, keys | best share | auto's share | auto / best | watching |\n| --- | ---: | ---: | ---: | --- | ---: |"
    )
    server = servers.start_postgres()
    try:
        with console.status("") as status:
            for name, one in traces().items():
                if only.lower() not in name.lower():
                    continue
                keys, memory, taken = one.keys(), MEMORY.get(one.name, _MEMORY), rows or ROWS.get(name, _ROWS)

                def bench(split: str, of: Trace = one, keys: np.ndarray = keys, memory: float = memory) -> closing[Bench]:
                    return closing(Bench(server.url, of.relation, keys, memory=memory, split=split, batch=Batch()))

                rates = {}
                for share in SHARES:
                    status.update(f"{name}: {share}")
                    with bench(share) as alone:
                        alone.throughput(taken)
                        rates[share] = alone.throughput(taken)
                best = max(rates, key=lambda share: rates[share])
                ratios, entries, spent, watched = [], [], 0.0, 0.0
                for number in range(pairs):
                    found = {}
                    for share in (("auto", best), (best, "auto"))[number % 2]:
                        status.update(f"{name}: {share}, {number + 1} of {pairs}")
                        with bench(share) as opened:
                            opened.throughput(taken)
                            timed = Timed(opened) if share == "auto" else None
                            found[share] = opened.throughput(taken)
                            if opened.output != opened.plain_join:
                                raise AssertionError("expected the rows of a plain join, got others")
                            if timed is not None:
                                entries.append(opened.entries)
                                watched, spent = watched + timed.seconds, spent + taken / found[share]
                    ratios.append(found["auto"] / found[best])
                low, high = certain(ratios)
                room = memory * one.relation
                console.print(
                    f"| {name} | {room:,.0f} | {best} | {median(entries) / room:.0%} "
                    f"| {median(ratios):.2f} ({low:.2f} to {high:.2f}) | {watched / spent:.1%} |",
                    soft_wrap=True,
                )
                console.print("  ", {share: round(found) for share, found in rates.items()}, soft_wrap=True)
    finally:
        server.remove()


def certain(ratios: Sequence[float]) -> tuple[float, float]:
    """Between which the median lies with 95 %, whatever the distribution: as many as a fair coin leaves out on each side.

    >>> certain([float(number) for number in range(21)])
    (5.0, 15.0)
    """
    ordered, tail = sorted(ratios), 0
    while 2 * sum(comb(len(ordered), below) for below in range(tail + 1)) <= 0.05 * 2 ** len(ordered):
        tail += 1
    return (ordered[tail - 1], ordered[-tail]) if tail else (ordered[0], ordered[-1])


if __name__ == "__main__":
    typer.run(main)
