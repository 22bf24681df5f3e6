"""What the figures about the highest rate share: picking records, curves, and gains over the baseline."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Any

from srj.experiments import rate_cell
from srj.experiments.experiment import Experiment, Finding
from srj.experiments.rate_cell import RateCell

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from matplotlib.axes import Axes

    from srj.experiments.experiment import Cell, Scale
    from srj.experiments.ledger import Record

BASELINE = "one by one"
CHANCE = 1.3  # times: the rates of the same cell in several figures and runs lay as far apart
_WAYS = {BASELINE: BASELINE, "srj": "srj, 30 keys, one lookup at a time", "srj auto": "srj auto"}


def experiment(
    name: str,
    title: str,
    question: str,
    claim: str,
    *,
    cells: Callable[[Scale], list[Cell]],
    check: Callable[[Sequence[Record]], list[Finding]],
    plot: Callable[[Sequence[Record], Axes], None],
    discussion: str = "",
    details: Callable[[Sequence[Record]], Sequence[str]] = lambda _: (),
) -> Experiment:
    """An experiment whose cells are each the highest rate at a point."""
    return Experiment(
        name,
        title,
        question,
        claim,
        cells,
        rate_cell.run,
        check,
        plot,
        label=rate_cell.label,
        headline=rate_cell.headline,
        discussion=discussion,
        details=details,
    )


def cells_of_ways(scale: Scale, varied: str, points: Sequence[float]) -> list[Cell]:
    """One lookup a row, lookups of 30 keys and, but at smoke scale, srj's own choice, at each point."""
    ways: list[dict[str, Any]] = [{"way": BASELINE}, {"way": "srj", "batch": 30}]
    if scale != "smoke":
        ways.append({"way": "srj auto"})
    return rate_cell.cells_of(scale, *({varied: point, **way} for point in points for way in ways))


def draw_ways(axes: Axes, records: Sequence[Record], by: Callable[[RateCell], Any], x: str) -> None:
    """Their rates."""
    for way, name in _WAYS.items():
        draw(axes, rates(finished(records), way, by), name)
    draw_lost(axes, records, by)
    finish(axes, x)


def finished(records: Sequence[Record]) -> list[Record]:
    """Those with figures."""
    return [record for record in records if record.state == "finished"]


def rate(record: Record) -> float:
    """Rows a second."""
    return float(record.figures["rate"])


def cell(record: Record) -> RateCell:
    """Its parameters."""
    return RateCell(**record.cell)


def rates(records: Iterable[Record], way: str, by: Callable[[RateCell], Any]) -> dict[Any, float]:
    """The rates of a way to join, by a parameter, in its order."""
    found = {by(cell(record)): rate(record) for record in records if cell(record).way == way}
    return dict(sorted(found.items()))


def gains(records: Sequence[Record], by: Callable[[RateCell], Any], way: str = "srj") -> dict[Any, float]:
    """The rate of a way over the baseline's at the same point."""
    base = rates(records, BASELINE, by)
    return {point: one / base[point] for point, one in rates(records, way, by).items() if point in base}


def lookup_ms(record: Record) -> float:
    """Milliseconds from one lookup to the next at the highest rate, where there is one at a time."""
    figures = record.figures
    asked = figures["rate"] * (1 - figures["hit_ratio"])
    return float(1000 * figures["keys_per_lookup"] / asked) if asked else math.inf


def short(value: float) -> str:
    """Two digits, or all those before the point.

    >>> short(0.0512), short(7.96), short(1234.5)
    ('0.051', '8', '1,234')
    """
    return f"{value:.2g}" if value < 99.5 else f"{value:,.0f}"


def span(values: Iterable[float], form: Callable[[float], str] = short) -> str:
    """From the least to the largest.

    >>> span([3, 1.23, 2]), span([0.501, 0.499])
    ('1.2 to 3', '0.5')
    """
    given = list(values)
    return " to ".join(dict.fromkeys(form(one) for one in (min(given), max(given))))


def of_way(records: Sequence[Record], way: str) -> list[Record]:
    """Those of a way to join."""
    return [record for record in records if cell(record).way == way]


def openings(records: Sequence[Record]) -> list[str]:
    """How far the openings of one lookup a row lie apart, where there are several."""
    factors = [max(opened) / min(opened) for record in records if (opened := record.figures.get("opened"))]
    if not factors:
        return []
    return [
        f"Of the openings of one lookup a row the best, which counts, carried {span(factors)} times as many rows as the slowest."
    ]


def strayed(records: Sequence[Record]) -> list[str]:
    """Whether rows strayed farther than the thesis's formula predicts."""
    pairs = [(one.figures["distance"], one.figures["predicted_distance"]) for one in records if one.figures.get("distance")]
    beyond = [seen / predicted for seen, predicted in pairs if seen > predicted > 0]
    if not beyond:
        return []
    cells = f"{len(beyond)} of {len(pairs)} of these cells"
    return [f"In {cells} a row strayed up to {short(max(beyond))} times as far as the thesis's MaximumSD predicts (figure 4.21)."]


def lookup_times(records: Sequence[Record]) -> list[str]:
    """What lookups of 30 keys and one lookup a row took, and how far openings lie apart."""
    ours, base = ([lookup_ms(one) for one in of_way(records, way)] for way in ("srj", BASELINE))
    return [f"From one lookup of 30 keys to the next it took {span(ours)} ms, and from one lookup a row to the next {span(base)}."]


def missing(records: Sequence[Record], needed: str) -> Finding | None:
    """A finding for where cells are missing."""
    lost = [record for record in records if record.state != "finished"]
    if lost or not records:
        reasons = "; ".join(sorted({f"{record.state}: {record.error}" for record in lost})) or "not run"
        return Finding(needed, "open", f"{len(lost)} of {len(records)} cells have no figures ({reasons})")
    return None


def verdict(claim: str, holds: bool, why: str) -> Finding:
    """Agrees or differs."""
    return Finding(claim, "agrees" if holds else "differs", why)


def beyond_chance(claim: str, ratio: float, why: str) -> Finding:
    """Agrees where a ratio is above 1 by more than runs differ, differs where it is below by as much, and else is open."""
    if 1 / CHANCE <= ratio <= CHANCE:
        return Finding(claim, "open", f"within the {CHANCE:g} times by which runs of one cell differ; {why}")
    return verdict(claim, ratio > 1, why)


def draw(axes: Axes, points: dict[Any, float], name: str, *, like: str = "o-") -> None:
    """A curve of rates."""
    if points:
        axes.plot(list(points), list(points.values()), like, label=name)


def draw_level(axes: Axes, level: float | None, name: str) -> None:
    """A line at a rate that does not depend on what is varied."""
    if level is not None:
        axes.axhline(level, linestyle="--", color="gray" if name == BASELINE else "black", label=name)


def draw_lost(axes: Axes, records: Sequence[Record], by: Callable[[RateCell], Any]) -> None:
    """Cells without figures, as labelled gaps; those of a way have one label."""
    lost = [(f"{cell(record).name}: {record.state}", by(cell(record))) for record in records if record.state != "finished"]
    for label, number in Counter(label for label, _ in lost).items():
        shown = f"{label} ({number})" if number > 1 else label
        for place in dict.fromkeys(place for one, place in lost if one == label):
            axes.axvline(place, color="red", linestyle=":", label=shown)
            shown = "_"  # no other entry of the legend


def finish(axes: Axes, x: str, *, log: bool = False) -> None:
    """Name the axes; rates span orders of magnitude, so their axis is logarithmic, and with `log` the other too."""
    axes.set(xlabel=x, ylabel="highest input rate, rows/s", yscale="log")
    if log:
        axes.set_xscale("log")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
