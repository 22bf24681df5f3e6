"""Figure 4.19: how does the gain depend on the size of the cache?

The thesis: with a cache of 90 % of the distinct keys three times the rate of one lookup a row, the most of all sizes. Uniform keys,
lookups of 30. About 4 minutes at small scale.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from srj.experiments import rate_figure as figure

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes

    from srj.experiments.experiment import Cell, Finding, Scale
    from srj.experiments.ledger import Record
    from srj.experiments.rate_cell import RateCell

_SHARES = (0.1, 0.3, 0.5, 0.7, 0.9)


def cells(scale: Scale) -> list[Cell]:
    """Three ways at each size."""
    shares = (0.1, 0.9) if scale == "smoke" else _SHARES
    return figure.cells_of_ways(scale, "cached", shares)


def check(records: Sequence[Record]) -> list[Finding]:
    """The gain at 90 %, and whether it is the largest."""
    claims = ("with 90 % of the keys cached srj carries at least 3 times as many rows", "that is the largest gain of all sizes")
    open_ = [finding for claim in claims if (finding := figure.missing(records, claim)) is not None]
    if open_:
        return open_
    gains = figure.gains(records, cached)
    why = "; ".join(f"{share:.0%} cached: {gain:.1f} times" for share, gain in gains.items())
    automatic = figure.gains(records, cached, "srj auto")
    chosen = "; ".join(f"{share:.0%}: {gain:.1f} times" for share, gain in automatic.items())
    last = gains[max(gains)]
    return [
        figure.beyond_chance(claims[0], last / 3, why + (f"; by srj's own choice {chosen}" if chosen else "")),
        figure.beyond_chance(claims[1], last / max(gain for share, gain in gains.items() if share != max(gains)), why),
    ]


def plot(records: Sequence[Record], axes: Axes) -> None:
    """Rates by size of the cache."""
    figure.draw_ways(axes, records, cached, "cache, share of the distinct keys")


def cached(cell: RateCell) -> float:
    """What is varied."""
    return cell.cached


def details(records: Sequence[Record]) -> list[str]:
    """What lookups took, and how far openings lie apart."""
    return [*figure.lookup_times(records), *figure.openings(records)]


EXPERIMENT = figure.experiment(
    name="fig_4_19",
    title="Figure 4.19: size of the cache",
    question="How does the gain depend on the size of the cache?",
    claim="with 90 % of the distinct keys cached the rate is 3 times that of one lookup a row, the most of all sizes.",
    discussion=(
        "The gain is that of 30 keys a lookup, as in the thesis; srj's own choice, with more keys and several lookups at a "
        "time, is in the table below."
    ),
    cells=cells,
    details=details,
    check=check,
    plot=plot,
)
