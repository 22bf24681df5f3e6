"""What the figures about the highest rate share: picking records, curves, and gains over the baseline."""

from __future__ import annotations

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
_WAYS = {BASELINE: BASELINE, "srj": "srj, 30 keys, one lookup at a time", "srj auto": "srj auto"}

TWO_MODES = (
    "One lookup a row has two modes: by hand it took 0.034 ms with client and server held on one core, and 0.14 on two, and "
    "where the system puts them differs each time that it is opened, as far as we can tell."
)
OPENED = (
    f"{TWO_MODES} So it is opened three times now, and the best counts; the ledger has the rates of all three under "
    '"opened", and of earlier cells none.'
)
"""What figures say that compare with one lookup a row."""


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


def draw(axes: Axes, points: dict[Any, float], name: str, *, like: str = "o-") -> None:
    """A curve of rates."""
    if points:
        axes.plot(list(points), list(points.values()), like, label=name)


def draw_level(axes: Axes, level: float | None, name: str) -> None:
    """A line at a rate that does not depend on what is varied."""
    if level is not None:
        axes.axhline(level, linestyle="--", color="gray" if name == BASELINE else "black", label=name)


def draw_lost(axes: Axes, records: Sequence[Record], by: Callable[[RateCell], Any]) -> None:
    """Cells without figures, as labelled gaps."""
    for record in records:
        if record.state != "finished":
            axes.axvline(by(cell(record)), color="red", linestyle=":", label=f"{cell(record).name}: {record.state}")


def finish(axes: Axes, x: str, *, log: bool = False) -> None:
    """Name the axes; rates span orders of magnitude, so their axis is logarithmic, and with `log` the other too."""
    axes.set(xlabel=x, ylabel="highest input rate, rows/s", yscale="log")
    if log:
        axes.set_xscale("log")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
