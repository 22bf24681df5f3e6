"""What figures 4.15 to 4.17 share: the highest rate by the number of keys in a lookup."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

from srj.experiments import rate_cell
from srj.experiments import rate_figure as figure

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matplotlib.axes import Axes

    from srj.experiments.experiment import Cell, Finding, Scale
    from srj.experiments.ledger import Record
    from srj.experiments.rate_cell import RateCell

_FLAT = 0.9  # of the best: what is nearer can't be told from it


def cells(scale: Scale, sizes: Mapping[str, Sequence[int]], **common: Any) -> list[Cell]:
    """The baseline, each size of the scale (small's, where it has none), and srj's own choice."""
    chosen = sizes.get(scale, sizes["small"])
    points: list[dict[str, Any]] = [
        {"way": figure.BASELINE},
        *({"way": "srj", "batch": size} for size in chosen),
        {"way": "srj auto"},
    ]
    return rate_cell.cells_of(scale, *points, **common)


def size(cell: RateCell) -> int:
    """Keys of a lookup."""
    return cell.batch


def level(records: Sequence[Record], way: str) -> float | None:
    """The rate of a way to join that has no size."""
    found = figure.rates(figure.finished(records), way, size)
    return found.get(0)


def plot(records: Sequence[Record], axes: Axes, name: str = "srj, so many keys, one lookup at a time") -> None:
    """Rates by size, with the baseline and srj's own choice as levels; a level that was lost is named."""
    figure.draw(axes, figure.rates(figure.finished(records), "srj", size), name)
    for way in (figure.BASELINE, "srj auto"):
        figure.draw_level(axes, level(records, way), way)
    figure.draw_lost(axes, [record for record in records if size(figure.cell(record))], size)
    for record in records:
        if record.state != "finished" and not size(figure.cell(record)):
            axes.plot([], [], " ", label=f"{figure.cell(record).name}: {record.state}")
    figure.finish(axes, "keys in a lookup", log=True)


def best_gain(records: Sequence[Record], claimed: float) -> Finding:
    """Whether the best size reaches the gain over the baseline that the thesis saw."""
    claim = f"at the best size srj carries at least {claimed:g} times as many rows as one lookup a row"
    open_ = figure.missing(records, claim)
    if open_ is not None:
        return open_
    by_size, base = figure.rates(records, "srj", size), level(records, figure.BASELINE) or 0.0
    best = max(by_size, key=lambda key: by_size[key])
    why = f"{by_size[best]:,.0f} rows/s with {best:,} keys against {base:,.0f}: {by_size[best] / base:,.1f} times"
    auto = level(records, "srj auto")
    why += f"; srj's own choice of size and lookups at a time: {auto / base:,.1f} times" if auto else ""
    return figure.verdict(claim, by_size[best] >= claimed * base, why)


def falls_after_best(records: Sequence[Record], thesis: int) -> Finding:
    """Whether the thesis's size is as good as the best, and the rate falls beyond it."""
    claim = f"{thesis} keys are best, and with more the rate falls"
    open_ = figure.missing(records, claim)
    if open_ is not None:
        return open_
    by_size = figure.rates(records, "srj", size)
    best, last = max(by_size, key=lambda key: by_size[key]), max(by_size)
    share = by_size[last] / by_size[best]
    near = by_size.get(thesis, 0.0) / by_size[best]
    why = f"the best of these sizes is {best:,}; with {thesis} keys the rate is {near:.0%} of that, with {last:,} {share:.0%}"
    return figure.verdict(claim, near >= _FLAT and share < _FLAT, why)


def grows_then_flat(records: Sequence[Record], thesis: int, where: str = "") -> Finding:
    """Whether larger lookups are better throughout, up to about the thesis's size, and larger ones no more."""
    claim = f"{where}the rate grows with the size up to about {thesis:,} keys and then stays"
    open_ = figure.missing(records, claim)
    if open_ is not None:
        return open_
    by_size = figure.rates(records, "srj", size)
    rates = list(by_size.values())
    grows = all(later > _FLAT * earlier for earlier, later in pairwise(rates))
    enough = next(key for key, one in by_size.items() if one >= _FLAT * max(rates))
    least, most = min(by_size), max(by_size)
    at = by_size.get(thesis, 0.0)
    why = f"{rates[0]:,.0f} rows/s with {least:,} keys, {at:,.0f} with {thesis:,}, {rates[-1]:,.0f} with {most:,}; "
    why += f"from {enough:,} on near best" if enough < most else "the most that were tried are best"
    return figure.verdict(claim, grows and thesis / 4 < enough <= thesis and rates[-1] < at / _FLAT, why)
