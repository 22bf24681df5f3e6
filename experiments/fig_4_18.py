"""Figure 4.18: does the gain depend on how skewed the keys are?

The thesis: from uniform to Zipf 1 the gain over one lookup a row grows, for with fewer misses batches and overtaking help more.
Lookups of 30 keys. About 4 minutes at small scale.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from srj.experiments import rate_figure as figure

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes

    from srj.experiments.experiment import Cell, Finding, Scale
    from srj.experiments.ledger import Record
    from srj.experiments.rate_cell import RateCell

_SKEWS = (0.0, 0.25, 0.5, 0.75, 1.0)


def cells(scale: Scale) -> list[Cell]:
    """Three ways at each skew."""
    skews = (0.0, 1.0) if scale == "smoke" else _SKEWS
    return figure.cells_of_ways(scale, "skew", skews)


def check(records: Sequence[Record]) -> list[Finding]:
    """Whether the gain grows."""
    claim = "the gain over one lookup a row grows with the skew"
    open_ = figure.missing(records, claim)
    if open_ is not None:
        return [open_]
    gains = figure.gains(records, _skew)
    why = "; ".join(f"skew {skew:g}: {gain:.1f} times" for skew, gain in gains.items())
    automatic = figure.gains(records, _skew, "srj auto")
    why += "".join(f"; by srj's own choice at {skew:g}: {gain:.1f} times" for skew, gain in automatic.items())
    ordered = list(gains.values())
    falls = any(later * figure.CHANCE < earlier for earlier, later in pairwise(ordered))
    return [figure.verdict(claim, ordered[-1] > figure.CHANCE * ordered[0] and not falls, why)]


def plot(records: Sequence[Record], axes: Axes) -> None:
    """Rates by skew."""
    figure.draw_ways(axes, records, _skew, "skew (Zipf's exponent)")


def _skew(cell: RateCell) -> float:
    return cell.skew


def details(records: Sequence[Record]) -> list[str]:
    """What lookups took, and how the rate itself grows."""
    rates = figure.rates(records, "srj", _skew)
    told = f"With 30 keys a lookup the rate itself goes from {rates[min(rates)]:,.0f} to {rates[max(rates)]:,.0f} rows a second."
    return [*figure.lookup_times(records), told, *figure.openings(records), *figure.strayed(records)]


EXPERIMENT = figure.experiment(
    name="fig_4_18",
    title="Figure 4.18: skew",
    question="Does the gain depend on how skewed the keys are?",
    claim="the gain over one lookup a row grows with the skew, from 0 to 1.",
    discussion=(
        "The rate of either way is one over the share of misses times what a missed key costs, so that the misses cancel: "
        "the gain depends little on the skew."
    ),
    cells=cells,
    details=details,
    check=check,
    plot=plot,
)
