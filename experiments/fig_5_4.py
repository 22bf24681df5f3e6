"""Figure 5.4: how is memory best divided between the cache and the rows that wait, where the stream's keys move on?

The thesis: a fixed share for the cache, or a cache without a bound, gains nothing beyond some memory; the bound that the pattern
query finds carries up to 4 times as many rows as the fixed shares, and 3 times as many as a cache without a bound. A stream of 40
intervals, each uniform over 1 % of the relation of its own. About 10 minutes at small scale.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from srj.experiments import rate_figure as figure
from srj.experiments import split_cell
from srj.experiments.experiment import Experiment
from srj.experiments.split_cell import SPLITS, SplitCell

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matplotlib.axes import Axes

    from srj.experiments.experiment import Cell, Finding, Scale
    from srj.experiments.ledger import Record

_MEMORY = (0.02, 0.04, 0.08, 0.16)
_LOOKUPS = ("one at a time", "several")
_AS_GOOD = 0.97


def cells(scale: Scale) -> list[Cell]:
    """Each split at each memory, with lookups as the thesis has them and as srj does."""
    if scale == "smoke":
        return split_cell.cells_of(scale, *({"split": split, "memory": 0.08} for split in ("20 %", "unbounded", "auto")))
    points = itertools.product(_MEMORY, _LOOKUPS, SPLITS)
    return split_cell.cells_of(scale, *({"memory": memory, "lookups": how, "split": split} for memory, how, split in points))


def check(records: Sequence[Record]) -> list[Finding]:
    """Whether ours is never worse, and how much better it is at most."""
    claims = (
        "no other split has more than 1.03 times the throughput of srj's",
        "srj's carries 4 times as many rows as a fixed split",
        "srj's carries 3 times as many rows as a cache without a bound",
    )
    open_ = [finding for claim in claims if (finding := figure.missing(records, claim)) is not None]
    if open_:
        return open_
    worst, at = _extreme(records, "throughput", SPLITS[:-1], least=True)
    fixed, of_fixed = _extreme(records, "rate", SPLITS[:3], least=False)
    unbounded, of_unbounded = _extreme(records, "rate", SPLITS[3:4], least=False)
    return [
        figure.verdict(claims[0], worst >= _AS_GOOD, f"at the least {worst:.2f} times, {at}"),
        figure.verdict(claims[1], fixed >= 0.9 * 4, f"at most {fixed:.1f} times, {of_fixed}"),
        figure.verdict(claims[2], unbounded >= 0.9 * 3, f"at most {unbounded:.1f} times, {of_unbounded}"),
    ]


def plot(records: Sequence[Record], axes: Axes) -> None:
    """Rates by memory; one lookup at a time is dashed."""
    for number, split in enumerate(SPLITS):
        for lookups, line in zip(_LOOKUPS, ("--", "-"), strict=True):
            points = sorted(
                (100 * _cell(one).memory, figure.rate(one))
                for one in figure.finished(records)
                if (_cell(one).split, _cell(one).lookups) == (split, lookups)
            )
            if points:
                axes.plot(*zip(*points, strict=True), f"o{line}", color=f"C{number}", label=f"{split}, {lookups}")
    figure.finish(axes, "memory, % of the relation")


def _extreme(records: Sequence[Record], what: str, splits: Sequence[str], *, least: bool) -> tuple[float, str]:
    """The least, or the largest, ratio of srj's figure to that of one of these splits, and where it is."""
    ratios = []
    for own in records:
        if _cell(own).split != "auto":
            continue
        for other in records:
            there = _cell(other)
            if there.split in splits and (there.memory, there.lookups) == (_cell(own).memory, _cell(own).lookups):
                where = f"of {there.split} with {there.memory:.0%} of the relation, lookups {there.lookups}"
                ratios.append((float(own.figures[what]) / float(other.figures[what]), where))
    return min(ratios) if least else max(ratios)


def _cell(record: Record) -> SplitCell:
    cell: Mapping[str, object] = record.cell
    return SplitCell(**cell)  # type: ignore[arg-type]  # as JSON kept it


EXPERIMENT = Experiment(
    name="fig_5_4",
    title="Figure 5.4: dividing the memory between cache and queue",
    question="How is memory best divided between the cache and the rows that wait, where the stream's keys move on?",
    claim="the pattern query's bound carries 4 times as many rows as fixed shares, 3 times as many as a cache without a bound.",
    cells=cells,
    run=split_cell.run,
    check=check,
    plot=plot,
    label=split_cell.label,
    headline=split_cell.headline,
)
