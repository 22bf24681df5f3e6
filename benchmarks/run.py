"""A table of ratios: srj against other ways to the same rows, on this machine, in one run.

Each ratio is the median of alternating pairs (srj, other, srj, other, …) after one pair that does not count; both outputs were
compared before. Above 1, srj is faster.
"""

from __future__ import annotations

import json
import platform
import sys
from enum import Enum, StrEnum
from functools import partial
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

sys.path[0] = str(Path(__file__).resolve().parent.parent)  # a script finds the files in its own folder alone

from benchmarks import hits, misses, one_by_one, orders  # noqa: E402  found through the line above
from benchmarks.pairs import Result, measure  # noqa: E402
from benchmarks.setting import FULL, SMOKE, setting  # noqa: E402

_GROUPS = {module.GROUP: module for module in (hits, misses, one_by_one, orders)}
Group = Enum("Group", {name: name for name in _GROUPS}, type=str)  # type: ignore[misc]  # typer reads its choices from it


class Size(StrEnum):
    """What ``--scale`` takes."""

    full = "full"
    smoke = "smoke"


def main(
    scale: Annotated[Size, typer.Option(help="Full sizes, or tiny ones that only show that it works.")] = Size.full,
    only: Annotated[list[Group] | None, typer.Option(help="Run only these comparisons.")] = None,
    pairs: Annotated[int, typer.Option(min=1, help="Pairs that count; fewer than 7 only to try it out.")] = 7,
    json_file: Annotated[Path | None, typer.Option("--json", help="Also write everything measured to this file.")] = None,
) -> None:
    """Measure srj against other ways to the same rows."""
    console = Console()
    columns = TextColumn("{task.description}"), MofNCompleteColumn(), TimeElapsedColumn()
    results: list[Result] = []
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        preparing = progress.add_task("PostgreSQL, tables, Spark", total=1)
        with setting(FULL if scale is Size.full else SMOKE) as place:
            progress.advance(preparing)
            for name in [group.value for group in only or Group]:
                for contest in _GROUPS[name].contests(place):
                    task = progress.add_task(contest.name, total=pairs + 2)
                    results.append(measure(contest, pairs, partial(progress.advance, task)))
                    console.print(f"{contest.name}: {results[-1].ratio:.2f}")  # in case it does not get to the table
    console.print(_table(results))
    if json_file is not None:
        report = {"machine": _machine(), "scale": scale, "results": [result.record() for result in results]}
        json_file.write_text(json.dumps(report, indent=2))


def _table(results: list[Result]) -> Table:
    table = Table(title="srj against other ways to the same rows", caption="ratio: srj's speed / the other's, median of the pairs")
    for heading in ("comparison", "against"):
        table.add_column(heading)
    for heading in ("srj, rows/s", "other, rows/s", "ratio", "min … max", "bar", "met"):
        table.add_column(heading, justify="right")
    for result in results:
        contest = result.contest
        notes = "".join(f"\n{name} {value:.2f}" for name, value in contest.details.items() if isinstance(value, float))
        table.add_row(
            contest.name + notes,
            contest.against,
            f"{contest.rows / median(result.srj_seconds):,.0f}",
            f"{contest.rows / median(result.other_seconds):,.0f}",
            f"{result.ratio:.2f}",
            f"{min(result.ratios):.2f} … {max(result.ratios):.2f}",
            "" if contest.bar is None else f"{contest.bar:g}",
            {None: "", True: "yes", False: "no"}[result.is_met],
        )
    return table


def _machine() -> dict[str, object]:
    """What the figures depend on."""
    packages = ("srj", "pyspark", "pyarrow", "numpy", "asyncpg")
    return {"python": platform.python_version(), "processor": platform.machine(), **{name: version(name) for name in packages}}


if __name__ == "__main__":
    typer.run(main)
