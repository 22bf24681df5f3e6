"""Figure 4.20: what do batches alone gain, and what does overtaking alone?

The thesis: below 70 % hits batches gain more (lookups of 30 keys, order constraint 0), above it letting hits overtake does (one key
a lookup, no constraint). Uniform keys. About 5 minutes at small scale.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from srj.experiments import rate_cell
from srj.experiments import rate_figure as figure
from srj.experiments.fig_4_19 import cached

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes

    from srj.experiments.experiment import Cell, Finding, Scale
    from srj.experiments.ledger import Record

_SHARES = (0.1, 0.3, 0.5, 0.7, 0.9)
_BATCHES = {"way": "srj", "batch": 30, "order": 0.0}
_OVERTAKING = {"way": "srj", "batch": 1, "order": "any"}
_NEITHER = {"way": "srj", "batch": 1, "order": 0.0}  # what either alone changes in one thing; one lookup a row is another's code


def cells(scale: Scale) -> list[Cell]:
    """The baseline, each alone, and srj with neither, at each size of the cache."""
    shares = (0.1, 0.9) if scale == "smoke" else _SHARES
    ways: list[dict[str, Any]] = [{"way": figure.BASELINE}, _NEITHER, _BATCHES, _OVERTAKING]
    return rate_cell.cells_of(scale, *({"cached": share, **way} for share in shares for way in ways))


def check(records: Sequence[Record]) -> list[Finding]:
    """Which gains more where."""
    claims = ("below 70 % hits batches alone gain more than overtaking alone", "at 90 % hits overtaking alone gains more")
    open_ = [finding for claim in claims if (finding := figure.missing(records, claim)) is not None]
    if open_:
        return open_
    neither, batches, overtaking = (figure.gains(_of(records, way), cached) for way in (_NEITHER, _BATCHES, _OVERTAKING))
    why = "; ".join(
        f"{share:.0%} cached: batches {batches[share]:.2f} times the baseline, overtaking {overtaking[share]:.2f}, "
        f"neither {neither[share]:.2f}"
        for share in batches
    )
    most = max(batches)
    return [
        figure.beyond_chance(claims[0], min(batches[share] / max(overtaking[share], 1) for share in batches if share < 0.7), why),
        figure.beyond_chance(claims[1], overtaking[most] / batches[most], why),
    ]


def plot(records: Sequence[Record], axes: Axes) -> None:
    """Rates by size of the cache."""
    ended = figure.finished(records)
    figure.draw(axes, figure.rates(ended, "one by one", cached), "one by one")
    for name, way in (
        ("batches alone: 30 keys, order constraint 0", _BATCHES),
        ("overtaking alone: 1 key, any order", _OVERTAKING),
        ("neither: 1 key, order constraint 0", _NEITHER),
    ):
        figure.draw(axes, figure.rates(_of(ended, way), "srj", cached), name)
    figure.draw_lost(axes, records, cached)
    figure.finish(axes, "cache, share of the distinct keys")


def _of(records: Sequence[Record], way: dict[str, Any]) -> list[Record]:
    """Those of a way of srj's, with the baseline."""
    return [one for one in records if one.cell["way"] == figure.BASELINE or way.items() <= one.cell.items()]


def details(records: Sequence[Record]) -> list[str]:
    """What overtaking gains srj itself, and what a lookup of one key takes."""
    neither, overtaking = (figure.rates(_of(records, way), "srj", cached) for way in (_NEITHER, _OVERTAKING))
    factors = figure.span(overtaking[share] / neither[share] for share in neither)
    ours = [figure.lookup_ms(one) for one in _of(records, _OVERTAKING) if one.cell["way"] == "srj"]
    base = [figure.lookup_ms(one) for one in figure.of_way(records, figure.BASELINE)]
    return [
        f"Of srj itself, one key a lookup in any order carries {factors} times what it does in order.",
        f"From one such lookup to the next it took {figure.span(ours)} ms, from one lookup a row to the next {figure.span(base)}.",
        *figure.openings(records),
    ]


EXPERIMENT = figure.experiment(
    name="fig_4_20",
    title="Figure 4.20: batches alone, overtaking alone",
    question="What do batches alone gain, and what does overtaking alone?",
    claim="below 70 % hits batches gain more, above it overtaking does.",
    discussion=(
        "With one lookup in flight overtaking hides no more than what hits cost meanwhile. And a lookup of one key is what "
        "srj is not made for: it passes a second thread, and steps over whole columns; in the thesis both ways pay the same."
    ),
    cells=cells,
    details=details,
    check=check,
    plot=plot,
)
