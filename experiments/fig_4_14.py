"""Figure 4.14: does simulation foresee what a real engine does, at each size of the cache?

The thesis: a simulator carries as much as a real engine, which justifies measuring with the simulator. Here `simulate` foresees
the hit ratio, and the join has it twice: srj's core driven directly, and `srj_enrich` in Spark, with two workers that share the
cache. Uniform keys, a cache that begins empty. About 3 minutes at small scale.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from srj.experiments import hits_cell
from srj.experiments import rate_figure as figure
from srj.experiments.experiment import Experiment
from srj.experiments.hits_cell import HitsCell

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes

    from srj.experiments.experiment import Cell, Finding, Scale
    from srj.experiments.ledger import Record

_SHARES = (0.1, 0.3, 0.5, 0.7, 0.9)
_DRIVERS = {"core": "srj's core", "spark": "Spark"}
_NEAR = 0.02  # of all rows: ratios that are nearer count as equal


def cells(scale: Scale) -> list[Cell]:
    """Both ways of driving at each size."""
    shares = (0.5,) if scale == "smoke" else _SHARES
    return hits_cell.cells_of(scale, *({"driver": driver, "cached": share} for share in shares for driver in _DRIVERS))


def check(records: Sequence[Record]) -> list[Finding]:
    """How far foreseen and measured ratios lie apart."""
    claims = {
        "core": "the core hits as often as the simulation of its cache foresees",
        "spark": "so does the operator in Spark",
        "exact": "so would an exact LRU cache",
    }
    open_ = [finding for claim in claims.values() if (finding := figure.missing(records, claim)) is not None]
    if open_:
        return open_
    return [
        *(_finding(claims[driver], [one for one in records if _cell(one).driver == driver], "foreseen") for driver in _DRIVERS),
        _finding(claims["exact"], records, "foreseen_exact"),
    ]


def plot(records: Sequence[Record], axes: Axes) -> None:
    """Hit ratios by size of the cache."""
    ended = figure.finished(records)
    for name, text in (("foreseen", "foreseen, the columnar cache's rule"), ("foreseen_exact", "foreseen, exact LRU")):
        points = dict(sorted((_cell(one).cached, one.figures[name]) for one in ended))
        figure.draw(axes, points, text, like="-" if name == "foreseen" else ":")
    for (driver, text), like in zip(_DRIVERS.items(), ("o", "x"), strict=True):
        points = dict(sorted((_cell(one).cached, one.figures["measured"]) for one in ended if _cell(one).driver == driver))
        figure.draw(axes, points, f"measured, {text}", like=like)
    for one in records:
        if one.state != "finished":
            axes.axvline(_cell(one).cached, color="red", linestyle=":", label=f"{_cell(one).driver}: {one.state}")
    axes.set(xlabel="cache, share of the distinct keys", ylabel="hit ratio")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)


def _cell(record: Record) -> HitsCell:
    return HitsCell(**record.cell)


def _finding(claim: str, records: Sequence[Record], foreseen: str) -> Finding:
    gaps = {hits_cell.label(one.cell): one.figures["measured"] - one.figures[foreseen] for one in records}
    why = "points measured above foreseen: " + "; ".join(f"{name}: {100 * gap:+.1f}" for name, gap in gaps.items())
    return figure.verdict(claim, all(abs(gap) <= _NEAR for gap in gaps.values()), why)


EXPERIMENT = Experiment(
    name="fig_4_14",
    title="Figure 4.14: simulation and a real engine",
    question="Does simulation foresee what a real engine does, at each size of the cache?",
    claim="simulator and engine carry the same rates, with 10 to 90 % of the keys cached. Here: equal hit ratios, which decide it.",
    discussion=(
        "Spark's operator reads on while lookups are under way, and a row whose key is on its way is no miss: with a "
        "small cache that makes hits which the simulation, where an answer is there at once, does not know."
    ),
    cells=cells,
    run=hits_cell.run,
    check=check,
    plot=plot,
    label=hits_cell.label,
    headline=hits_cell.headline,
)
