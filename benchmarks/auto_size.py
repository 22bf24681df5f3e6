"""``cache="auto"`` beside the best fixed split of the same memory, on six traces, and what its watching costs.

``python -m benchmarks.auto_size``: for each trace it sweeps the cache's share of the memory through srj's core and a PostgreSQL of
its own, then runs the best share and auto in turns. About 30 minutes; the table is in docs/sizing.md.
"""

from __future__ import annotations

import time
from contextlib import closing
from statistics import median
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer
from rich.console import Console

from srj import Batch
from srj.experiments.split_cell import Bench
from srj.experiments.traces import trace
from tests import servers

if TYPE_CHECKING:
    import numpy as np

    from srj.experiments.traces import Trace
    from tests.servers import Server

SHARES = ("6.25 %", "12.5 %", "25 %", "37.5 %", "50 %", "62.5 %", "75 %", "87.5 %", "93.75 %")
PAIRS = 7
# That are measured, after as many: more where a second takes more of them.
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


class Run(NamedTuple):
    """What was seen in one.

    Attributes:
        rate: rows a second.
        entries: of the cache in the end.
        watching: share of the time that went into watching keys and deciding.
    """

    rate: float
    entries: int
    watching: float


def run(server: Server, keys: np.ndarray, relation: int, memory: float, split: str, rows: int) -> Run:
    """The second so many rows of a stream."""
    with closing(Bench(server.url, relation, keys, memory=memory, split=split, batch=Batch())) as bench:
        bench.throughput(rows)
        auto, watched = bench.engine._auto, [0.0]  # noqa: SLF001  to time it
        if auto is not None:
            see = auto.see

            def timed(hashes: np.ndarray) -> None:
                begun = time.perf_counter()
                see(hashes)
                watched[0] += time.perf_counter() - begun

            auto.see = timed  # type: ignore[method-assign]
        found = bench.throughput(rows)
        if bench.output != bench.plain_join:
            raise AssertionError("expected the rows of a plain join, got others")
        return Run(found, bench.entries, watched[0] * found / rows)


def main(
    only: Annotated[str, typer.Option(help="A part of the traces' names.")] = "",
    rows: Annotated[int, typer.Option(help="Of each run, after as many; 0: as many as fit the trace.")] = 0,
    pairs: Annotated[int, typer.Option(help="Of a run with the best share and one with auto.")] = PAIRS,
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
                rates = {}
                for share in SHARES:
                    status.update(f"{name}: {share}")
                    rates[share] = run(server, keys, one.relation, memory, share, taken).rate
                best = max(rates, key=lambda share: rates[share])
                ratios = []
                for number in range(pairs):
                    status.update(f"{name}: auto")
                    turns = ("auto", best) if number % 2 else (best, "auto")
                    found = {split: run(server, keys, one.relation, memory, split, taken) for split in turns}
                    ours = found["auto"]
                    ratios.append(ours.rate / found[best].rate)
                room = memory * one.relation
                console.print(
                    f"| {name} | {room:,.0f} | {best} | {ours.entries / room:.0%} "
                    f"| {median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f}) | {ours.watching:.1%} |",
                    soft_wrap=True,
                )
                console.print("  ", {share: round(found) for share, found in rates.items()}, soft_wrap=True)
    finally:
        server.remove()


if __name__ == "__main__":
    typer.run(main)
