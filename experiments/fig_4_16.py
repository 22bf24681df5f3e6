"""Figure 4.16: how many keys should a lookup have where the table has no index, so that each lookup reads it whole?

The thesis: the more the better, up to 4,000 keys where half of the rows hit, 7,000 where a tenth does; five times the baseline.
About 5 minutes at small scale, with a table of 200,000 rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from srj.experiments import batch_size, rate_cell
from srj.experiments import rate_figure as figure

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from matplotlib.axes import Axes

    from srj.experiments.experiment import Cell, Finding, Scale
    from srj.experiments.ledger import Record

_SIZES = {"smoke": (10, 300), "small": (10, 100, 1000, 4000, 7000)}
# The whole table is read for each lookup: with a million rows the baseline's cell alone would take half an hour.
_SMALL = {"relation": 200_000, "distinct": 100_000}


_TENTH = {"small": (100, 1000, 4000, 7000, 10_000), "paper": (100, 1000, 4000, 7000, 10_000)}  # sizes where a tenth hits


def cells(scale: Scale) -> list[Cell]:
    """The baseline, each size, and srj's own choice; where but a tenth is cached, sizes alone."""
    common = {"indexed": False, **(_SMALL if scale == "small" else {})}
    tenth: Iterator[dict[str, Any]] = ({"way": "srj", "batch": size, "cached": 0.1} for size in _TENTH.get(scale, ()))
    return batch_size.cells(scale, _SIZES, **common) + rate_cell.cells_of(scale, *tenth, **common)


def check(records: Sequence[Record]) -> list[Finding]:
    """The gain, and growth."""
    half, tenth = _halves(records), _tenths(records)
    found = [batch_size.best_gain(half, 5), batch_size.grows_then_flat(half, 4000)]
    return [*found, batch_size.grows_then_flat(tenth, 7000, "with a tenth cached ")] if tenth else found


def plot(records: Sequence[Record], axes: Axes) -> None:
    """As the others, with a curve for a tenth cached."""
    tenth = figure.rates(figure.finished(_tenths(records)), "srj", batch_size.size)
    figure.draw(axes, tenth, "srj, so many keys, a tenth cached")
    batch_size.plot(_halves(records), axes, "srj, so many keys, half cached")


def _halves(records: Sequence[Record]) -> list[Record]:
    return [record for record in records if record.cell["cached"] == 0.5]


def _tenths(records: Sequence[Record]) -> list[Record]:
    return [record for record in records if record.cell["cached"] == 0.1]


def details(records: Sequence[Record]) -> list[str]:
    """Rows that ask nothing, by the size of a lookup."""
    ours = {figure.cell(one).batch: one.figures["hit_ratio"] for one in figure.of_way(_halves(records), "srj")}
    least, most = min(ours), max(ours)
    told = f"With {least:,} keys a lookup {ours[least]:.0%} of the rows ask nothing, with {most:,} {ours[most]:.0%}."
    return [told, *figure.openings(records)]


EXPERIMENT = figure.experiment(
    name="fig_4_16",
    title="Figure 4.16: keys in a lookup, without an index",
    question="How many keys should a lookup have where the table has no index, so that each lookup reads it whole?",
    claim="the rate grows up to 4,000 keys, 7,000 where a tenth hits, and then stays; 5 times as fast as one lookup a row.",
    discussion=(
        "A scan that answers one key answers thousands, so larger lookups are better throughout, as the thesis says. In the "
        "thesis the rate stays beyond 4,000 keys as no more misses wait; here as many wait as a lookup holds. Rows that wait "
        "for a key on its way ask nothing, so the larger the lookups, the fewer keys are asked."
    ),
    cells=cells,
    details=details,
    check=check,
    plot=plot,
)
