"""``cache="auto"`` beside the best fixed split of the same memory, on six traces, and what its watching costs.

``python -m benchmarks.auto_size``: for each trace it sweeps the cache's share of the memory through srj's core and a PostgreSQL of
its own, then measures the best share and auto. What is compared is open side by side, and takes the same rows in turns: one that
was opened later would meet the machine at another speed. About 25 minutes; the table is in docs/sizing.md.
"""

from __future__ import annotations

import time
from contextlib import ExitStack, closing
from math import exp, log, sqrt
from statistics import geometric_mean, mean, median, stdev
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from srj import Batch
from srj.experiments.split_cell import Bench
from srj.experiments.traces import trace
from tests import servers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import numpy as np

    from srj.experiments.traces import Trace

SHARES = ("6.25 %", "12.5 %", "25 %", "37.5 %", "50 %", "62.5 %", "75 %", "87.5 %", "93.75 %")
WARM = {"Zipf 1": 1_200_000, "moving interval": 1_000_000, "loop": 2_000_000}  # rows before anything is measured
_WARM = 600_000
MEMORY = {"new york flights": 0.5}  # share of the relation
_MEMORY = 0.1
_TURN = 50_000  # rows; an interval
_OPENINGS = 3


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
    sweep: Annotated[float, typer.Option(help="Seconds that each share is measured for.")] = 4.0,
    seconds: Annotated[
        float, typer.Option(help="That the best share and auto are measured for, each, in each of 3 openings.")
    ] = 20.0,
) -> None:
    """Print a row a trace."""
    console = Console()
    console.print(
        "| trace | memory, keys | best share | auto's share | auto / best | turns | watching |\n"
        "| --- | ---: | ---: | ---: | --- | ---: | ---: |"
    )
    server = servers.start_postgres()
    try:
        with console.status("") as status:
            for name, one in traces().items():
                if only.lower() not in name.lower():
                    continue
                keys, memory = one.keys(), MEMORY.get(one.name, _MEMORY)

                def bench(split: str, of: Trace = one, keys: np.ndarray = keys, memory: float = memory) -> Bench:
                    return Bench(server.url, of.relation, keys, memory=memory, split=split, batch=Batch())

                def say(what: str, name: str = name) -> None:
                    status.update(f"{name}: {what}")

                swept, _ = in_turns(SHARES, bench, WARM.get(name, _WARM), sweep, say)
                rates = {share: geometric_mean(of_share) for share, of_share in swept.items()}
                best = max(rates, key=lambda share: rates[share])
                ratios, entries, watching = [], [], []
                for _ in range(_OPENINGS):
                    found, auto = in_turns((best, "auto"), bench, WARM.get(name, _WARM), seconds, say)
                    ratios += [ours / other for ours, other in zip(found["auto"], found[best], strict=True)]
                    entries.append(auto[0])
                    watching.append(auto[1] / sum(_TURN / rate for rate in found["auto"]))
                ratio, low, high = certain(ratios)
                room = memory * one.relation
                console.print(
                    f"| {name} | {room:,.0f} | {best} | {median(entries) / room:.0%} "
                    f"| {ratio:.2f} ({low:.2f} to {high:.2f}) | {len(ratios)} | {mean(watching):.1%} |",
                    soft_wrap=True,
                )
                console.print("  ", {share: round(rate) for share, rate in rates.items()}, entries, soft_wrap=True)
    finally:
        server.remove()


def in_turns(
    splits: Sequence[str], bench: Callable[[str], Bench], warm: int, seconds: float, say: Callable[[str], None]
) -> tuple[dict[str, list[float]], tuple[int, float]]:
    """Rows a second of each in each of its turns; auto's entries at the end, and the seconds that it watched."""
    with ExitStack() as stack:
        benches = {}
        for split in splits:
            say(f"{split} begins")
            benches[split] = stack.enter_context(closing(bench(split)))
            benches[split].throughput(warm)
        timed = Timed(benches["auto"]) if "auto" in benches else None
        rates: dict[str, list[float]] = {split: [] for split in splits}
        end, first = time.monotonic() + seconds * len(splits), 0
        while time.monotonic() < end:
            say(f"{', '.join(splits)}: turn {first + 1}")
            for split in (*splits[first % len(splits) :], *splits[: first % len(splits)]):
                rates[split].append(benches[split].throughput(_TURN))
            first += 1
        if any(one.output != one.plain_join for one in benches.values()):
            raise AssertionError("expected the rows of a plain join, got others")
        return rates, (benches["auto"].entries, timed.seconds) if timed is not None else (0, 0.0)


def certain(ratios: Iterable[float]) -> tuple[float, float, float]:
    """The geometric mean, and between what it lies with 95 %.

    >>> [round(each, 3) for each in certain([0.5, 2.0] * 8)]
    [1.0, 0.704, 1.42]
    """
    logs = [log(ratio) for ratio in ratios]
    middle, error = mean(logs), 1.96 * stdev(logs) / sqrt(len(logs))
    return exp(middle), exp(middle - error), exp(middle + error)


if __name__ == "__main__":
    typer.run(main)
