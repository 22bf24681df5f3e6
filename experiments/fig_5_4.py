"""Figure 5.4: how is memory best divided between the cache and the rows that wait, where the stream's keys move on?

The thesis: a fixed share for the cache, or a cache without a bound, gains nothing beyond some memory; the bound that the pattern
query finds carries up to 4 times as many rows as the fixed shares, and 3 times as many as a cache without a bound. A stream of 40
intervals, each uniform over 1 % of the relation of its own. Its own setting is lookups one at a time in a relation without an
index, where a lookup costs a scan whatever it asks, so that rows that can wait save lookups. About 40 minutes at small scale.
"""

from __future__ import annotations

from math import comb
from statistics import geometric_mean
from typing import TYPE_CHECKING, cast

from srj.experiments import rate_figure as figure
from srj.experiments import split_cell
from srj.experiments.experiment import Experiment, Finding
from srj.experiments.split_cell import AS_GOOD, SPLITS, SplitCell

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from matplotlib.axes import Axes
    from matplotlib.gridspec import SubplotSpec

    from srj.experiments.experiment import Cell, Scale
    from srj.experiments.ledger import Record
    from srj.experiments.split_cell import Split

_MEMORY = (0.02, 0.04, 0.08, 0.16)
_THESIS = {"lookups": "one at a time", "indexed": False}
_SETTINGS = (_THESIS, {"lookups": "one at a time"}, {"lookups": "several"})
_NAMED = 2  # lost cells of a panel that its legend has room for
_SAME_UNIT = 0.02  # of a percent's memory, by which roundings differ
_BY_CHANCE = 0.1  # at most, that any of the divisions which are said to be better is no better


def cells(scale: Scale) -> list[Cell]:
    """Each memory, with lookups as the thesis has them, one at a time on an index, and as srj has them."""
    if scale == "smoke":
        return split_cell.cells_of(scale, {"memory": 0.08, **_THESIS}, {"memory": 0.08})
    return split_cell.cells_of(scale, *({"memory": memory, **setting} for setting in _SETTINGS for memory in _MEMORY))


def check(records: Sequence[Record]) -> list[Finding]:
    """Whether ours is never worse, and how much better it is at most."""
    claims = (
        "no other division has more than 1.03 times the throughput of srj's",
        "in the thesis's setting srj's has up to 4 times the throughput of a fixed division",
        "in the thesis's setting srj's has up to 3 times the throughput of a cache without a bound",
    )
    open_ = [finding for claim in claims if (finding := figure.missing(records, claim)) is not None]
    if open_:
        return open_
    thesis = [record for record in records if not _cell(record).indexed]
    elsewhere = [record for record in records if _cell(record).indexed]
    findings = [_never_worse(claims[0], records)]
    for claim, splits, least in ((claims[1], SPLITS[:3], 4), (claims[2], SPLITS[3:4], 3)):
        (most, where), (other, there) = max(_gains(thesis, splits)), max(_gains(elsewhere, splits))
        findings.append(
            figure.verdict(claim, most >= least, f"at most {most:.1f} times, {where}; on an index {other:.1f} times, {there}")
        )
    return findings


def plot(records: Sequence[Record], axes: Axes) -> None:
    """How many times a division's throughput srj's is, by memory, a panel for each setting; lost cells are named."""
    settings = list(dict.fromkeys(_cell(one).setting for one in records))
    for panel, setting in zip(_panels(axes, len(settings)), settings, strict=True):
        there = [one for one in figure.finished(records) if _cell(one).setting == setting]
        for split in SPLITS[:-1]:
            points = sorted(
                (100 * _cell(one).memory, geometric_mean(ratios)) for one in there for ratios, _ in _ratios([one], [split])
            )
            if points:
                panel.plot(*zip(*points, strict=True), "o-", label=split)
        lost = [
            f"{_cell(one).memory:.0%}: {one.state}" for one in records if one.state != "finished" and _cell(one).setting == setting
        ]
        for label in lost if len(lost) <= _NAMED else [f"{len(lost)} cells without figures"]:
            panel.plot([], [], " ", label=label)
        panel.axhline(1, color="black", linewidth=0.8)
        panel.axhline(AS_GOOD, color="black", linewidth=0.8, linestyle=":")
        panel.set_xlabel(f"memory, % of the relation\n{setting}", fontsize="small")
        panel.grid(alpha=0.3)
        if panel.get_legend_handles_labels()[1] != list(SPLITS[:-1]) or setting == settings[-1]:
            panel.legend(fontsize=8)


def _panels(axes: Axes, number: int) -> list[Axes]:
    """Axes side by side in place of these, with one scale."""
    axes.set_axis_off()
    grid = cast("SubplotSpec", axes.get_subplotspec()).subgridspec(1, number)
    panels: list[Axes] = []
    for at in range(number):
        panels.append(axes.figure.add_subplot(grid[at], sharey=panels[0] if panels else None))
    panels[0].set_ylabel("throughput of srj's division over this one's")
    for panel in panels[1:]:
        panel.tick_params(labelleft=False)
    return panels


def _never_worse(claim: str, records: Sequence[Record]) -> Finding:
    """Single ratios differ by far more than 3 %, so a division is better only where hardly any ratio says otherwise."""
    found = list(_ratios(records, SPLITS[:-1]))
    below = [(geometric_mean(one), where) for one, where in found if geometric_mean(one) < AS_GOOD]
    certain = [
        where
        for one, where in found
        if geometric_mean(one) < AS_GOOD and _chance([ratio < AS_GOOD for ratio in one]) <= _BY_CHANCE / len(found)
    ]
    worst, at = min((geometric_mean(one), where) for one, where in found)
    together = (
        f"{geometric_mean([ratio for one, _ in _ratios(records, [split]) for ratio in one]):.2f} times {split}"
        for split in SPLITS[:-1]
    )
    why = (
        f"of {len(found)} means {len(below)} are below {AS_GOOD}, the least {worst:.2f} times, {at}; for certain {len(certain)}"
        f"; all together {', '.join(together)}"
    )
    if below and not certain:
        return Finding(claim, "open", why)
    return figure.verdict(claim, not certain, "; ".join([why, *certain]))


def _chance(signs: Sequence[bool]) -> float:
    """How likely a fair coin is to say yes as often.

    >>> _chance([True] * 9) == 1 / 512, _chance([True, False])
    (True, 0.75)
    """
    return float(sum(comb(len(signs), noes) for noes in range(signs.count(False) + 1)) / 2 ** len(signs))


def _gains(records: Sequence[Record], splits: Sequence[Split]) -> Iterator[tuple[float, str]]:
    """The mean ratio of srj's throughput to each of these, and where it is."""
    return ((geometric_mean(one), where) for one, where in _ratios(records, splits))


def _ratios(records: Sequence[Record], splits: Sequence[Split]) -> Iterator[tuple[list[float], str]]:
    """Those of each round, in which all are measured in turns."""
    for record in records:
        throughput, cell = record.figures["throughput"], _cell(record)
        for split in splits:
            ratios = [ours / other for ours, other in zip(throughput["auto"], throughput[split], strict=True)]
            yield ratios, f"of {split} with {cell.memory:.0%} of the relation, {cell.setting}"


def details(records: Sequence[Record]) -> list[str]:
    """What caches hold and hit where memory is shortest, and how much of the queue is used where there is most."""
    thesis = sorted((record for record in records if not _cell(record).indexed), key=lambda record: _cell(record).memory)
    first, last = thesis[0], thesis[-1]
    held = "; ".join(
        f"{split} {first.figures['entries'][split]:,} entries, {first.figures['hit_ratio'][split]:.0%} hits" for split in SPLITS
    )
    room, missing = last.figures["queue_rows"]["auto"], last.figures["missing_rows_a_lookup"]["auto"]
    keys = f"of an interval's {_cell(first).interval_keys:,} keys"
    queue = (
        f"With {_cell(last).memory:.0%} of it {room:,} rows could wait in srj's division, and a lookup had {missing:,.0f} missing"
    )
    # What a percent is has changed with the code.
    units = {_cell(one).memory: one.figures["memory"] / _cell(one).memory for one in thesis}
    most = max(units)
    odd = [memory for memory, unit in units.items() if abs(unit / units[most] - 1) > _SAME_UNIT]
    unlike = [
        f"A percent is {units[memory] / units[most]:.2f} times as much with {memory:.0%} as with {most:.0%}: compare with care."
        for memory in odd
    ]
    return [
        *unlike,
        f"In the thesis's setting with {_cell(first).memory:.0%} of the relation, {keys}: {held}.",
        f"{queue} ones, several of one key among them.",
    ]


def _cell(record: Record) -> SplitCell:
    return SplitCell(**record.cell)


EXPERIMENT = Experiment(
    name="fig_5_4",
    title="Figure 5.4: dividing the memory between cache and queue",
    question="How is memory best divided between the cache and the rows that wait, where the stream's keys move on?",
    claim="the pattern query's bound carries 4 times as many rows as fixed shares, 3 times as many as a cache without a bound.",
    discussion=(
        "What a division gains is what it misses less, times how much larger its lookups are. The largest gain, where memory is "
        "shortest, is of the first kind. A larger queue soon buys nothing, for an interval's keys are asked once each; the "
        "thesis's intervals have 50,000 keys, so that its queue goes on to gain. This is not the thesis's metric: rows are "
        "there at once. In that, the highest rate at which no more rows wait than the queue holds, auto carried 0.73 times what "
        "a share of 20 % did where memory is shortest, for while an interval begins all rows miss (docs/sizing.md). And the "
        "1,000 rows that arrive together wait together, however small the queue is without a bound. Rates are those of caches "
        "that are full: one that has yet to fill evicts nothing, and so large shares of much memory seem some percent faster."
    ),
    details=details,
    cells=cells,
    run=split_cell.run,
    check=check,
    plot=plot,
    label=split_cell.label,
    headline=split_cell.headline,
)
