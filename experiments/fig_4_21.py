"""Figure 4.21: does it matter how far rows may leave out of order?

The thesis: an order constraint of more than 100 s has no effect. Below, its text on the figure says that the rate grows as the
constraint falls, and its key finding 4 the contrary. The constraint is seconds of the stream, as many rows as come meanwhile.
Uniform keys, a cache of half of them, lookups of 30 keys, one at a time; and the same 10 ms away, where rows wait longer. Each
cell also has the largest scrambling distance that was seen at its rate, and what the thesis's formula predicts for it. About
4 minutes at small scale.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from srj.experiments import rate_cell
from srj.experiments import rate_figure as figure

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from matplotlib.axes import Axes

    from srj.experiments.experiment import Cell, Finding, Scale
    from srj.experiments.ledger import Record
    from srj.experiments.rate_cell import RateCell

_SECONDS = (0.0, 0.001, 0.01, 0.1, 1.0, 100.0, 120.0)
_AWAY = (0.0, 10.0)
_LEAST = 1e-4  # seconds, where a logarithmic axis shows a constraint of 0


def cells(scale: Scale) -> list[Cell]:
    """Each constraint, nearby and away."""
    seconds, away = ((0.0, 0.01, 100.0, 120.0), _AWAY[:1]) if scale == "smoke" else (_SECONDS, _AWAY)
    return rate_cell.cells_of(
        scale, *({"order": one, "delay": delay} for delay in away for one in seconds), way="srj", batch=30, cached=0.5
    )


def check(records: Sequence[Record]) -> list[Finding]:
    """What lies beyond 100 s, in which direction it goes below, and whether the thesis's formula bounds the distance."""
    claims = (
        "an order constraint beyond 100 s has no effect",
        "the rate grows with the constraint (the thesis's key finding 4)",
        "the rate grows as the constraint falls (the thesis's text on the figure)",
        "with uniform keys and one lookup at a time no row strays farther than the thesis's MaximumSD predicts",
    )
    open_ = [finding for claim in claims if (finding := figure.missing(records, claim)) is not None]
    if open_:
        return open_
    curves = {delay: list(_rates(records, delay).items()) for delay in _delays(records)}
    why = "; ".join(
        f"{_place(delay)}: " + ", ".join(f"{s:g} s {rate:,.0f}" for s, rate in curve) for delay, curve in curves.items()
    )
    beyond = [rate for curve in curves.values() for rate in _changes([one for one in curve if one[0] >= 100])]
    all_changes = [list(_changes(curve)) for curve in curves.values()]
    whole = [curve[-1][1] / curve[0][1] for curve in curves.values()]
    grows = all(change * figure.CHANCE > 1 for one in all_changes for change in one) and min(whole) > figure.CHANCE
    falls = all(change < figure.CHANCE for one in all_changes for change in one) and max(whole) * figure.CHANCE < 1
    return [
        figure.verdict(claims[0], all(1 / figure.CHANCE <= change <= figure.CHANCE for change in beyond), f"rows/s, {why}"),
        figure.verdict(claims[1], grows, _spans(curves)),
        figure.verdict(claims[2], falls, _spans(curves)),
        _predicted(records, claims[3]),
    ]


def plot(records: Sequence[Record], axes: Axes) -> None:
    """Rates by constraint."""
    ended = figure.finished(records)
    for delay in _delays(records):
        points = {max(seconds, _LEAST): rate for seconds, rate in _rates(ended, delay).items()}
        figure.draw(axes, points, f"srj, 30 keys, {_place(delay)}")
    figure.draw_lost(axes, records, lambda one: max(_seconds(one), _LEAST))
    figure.finish(axes, f"order constraint, seconds of the stream (0 stands at {_LEAST:g})", log=True)


def _rates(records: Sequence[Record], delay: float) -> dict[float, float]:
    return figure.rates([one for one in records if figure.cell(one).delay == delay], "srj", _seconds)


def _seconds(cell: RateCell) -> float:
    return float(cell.order)


def _delays(records: Sequence[Record]) -> list[float]:
    return sorted({figure.cell(record).delay for record in records})


def _place(delay: float) -> str:
    return f"{delay:g} ms away" if delay else "nearby"


def _changes(curve: Sequence[tuple[float, float]]) -> Iterator[float]:
    """Each rate over the one before."""
    return (later / earlier for (_, earlier), (_, later) in pairwise(curve))


def _spans(curves: Mapping[float, Sequence[tuple[float, float]]]) -> str:
    whole = (f"{curve[-1][1] / curve[0][1]:.2f} {_place(delay)}" for delay, curve in curves.items())
    return f"the rate at the largest constraint over that at 0: {', '.join(whole)}"


def _predicted(records: Sequence[Record], claim: str) -> Finding:
    """Seen against foreseen, where anything was overtaken."""
    pairs = [(one.figures["distance"], one.figures["predicted_distance"], figure.cell(one)) for one in records]
    beyond = [(seen, predicted, one) for seen, predicted, one in pairs if seen > predicted]
    ratios = sorted(predicted / seen for seen, predicted, _ in pairs if seen)
    why = f"beyond it in {len(beyond)} of {len(pairs)} cells"
    why += f"; predicted over seen {ratios[0]:.2f} to {ratios[-1]:.2f}" if ratios else "; no row overtook another"
    if beyond:
        seen, predicted, one = max(beyond, key=lambda found: found[0] - found[1])
        why += f"; {seen:,} rows against {predicted:,} with {_seconds(one):g} s {_place(one.delay)}"
    return figure.verdict(claim, not beyond, why)


def details(records: Sequence[Record]) -> list[str]:
    """How far the rates lie apart at each distance of the server."""
    curves = {_place(delay): _rates(records, delay).values() for delay in _delays(records)}
    apart = ", ".join(f"{place} by {max(rates) / min(rates) - 1:.0%}" for place, rates in curves.items())
    return [f"The largest of all rates is above the least {apart}."]


EXPERIMENT = figure.experiment(
    name="fig_4_21",
    title="Figure 4.21: order constraint",
    question="Does it matter how far rows may leave out of order?",
    claim="an order constraint of more than 100 s has no effect; below, the thesis's text contradicts itself.",
    discussion=(
        "A lookup's rows wait so shortly that a tenth of a second is as good as no constraint, and a trial ends before rows could "
        "stray by 100 seconds: beyond that it holds by construction. The thesis says it of the average latency, which is not "
        f"measured here. Changes within {figure.CHANCE:g} times count as none, for so far apart lie runs of the same cell."
    ),
    cells=cells,
    details=details,
    check=check,
    plot=plot,
)
