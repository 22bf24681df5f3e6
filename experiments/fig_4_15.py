"""Figure 4.15: how many keys should a lookup have where the table has an index?

The thesis: 30 keys are best, about three times as fast as one lookup a row; with more the rate falls. Uniform keys, a cache of half
of them. About 3 minutes at small scale.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from srj.experiments import batch_size
from srj.experiments import rate_figure as figure

if TYPE_CHECKING:
    from collections.abc import Sequence

    from srj.experiments.experiment import Cell, Finding, Scale
    from srj.experiments.ledger import Record

# The thesis ends at 50; beyond it is seen whether the rate really falls.
_SIZES = {"smoke": (2, 30), "small": (2, 5, 10, 20, 30, 50, 100, 300, 1000, 3000, 10_000, 30_000)}


def cells(scale: Scale) -> list[Cell]:
    """The baseline, each size, and srj's own choice."""
    return batch_size.cells(scale, _SIZES)


def check(records: Sequence[Record]) -> list[Finding]:
    """The gain, and the best size."""
    return [batch_size.best_gain(records, 3), batch_size.falls_after_best(records, 30)]


def details(records: Sequence[Record]) -> list[str]:
    """What lookups took by their size, and what the last step gains."""
    ours = {figure.cell(one).batch: one for one in figure.of_way(records, "srj")}
    took = ", ".join(f"{figure.short(figure.lookup_ms(one))} with {size:,}" for size, one in ours.items())
    before, last = list(ours.values())[-2:]
    gain, longer = figure.rate(last) / figure.rate(before), figure.lookup_ms(last) / figure.lookup_ms(before)
    step = f"The last step carries {gain:.2f} times as many rows, while a lookup takes {longer:.1f} times as long."
    return [f"From one lookup to the next it took, in ms: {took} keys.", step, *figure.openings(records)]


EXPERIMENT = figure.experiment(
    name="fig_4_15",
    title="Figure 4.15: keys in a lookup, with an index",
    question="How many keys should a lookup have where the table has an index?",
    claim="30 keys are best, about 3 times as fast as one lookup a row; with more the rate falls.",
    discussion=(
        "In the thesis r, what a batch saves, is constant beyond 30 keys, so that more gain nothing. Here it is not, for srj "
        "sends its keys as one value and gets its rows in one. With very few keys srj is slower than one lookup a row: each of "
        "its lookups passes a second thread, and steps over whole columns, which so few keys do not pay back."
    ),
    cells=cells,
    details=details,
    check=check,
    plot=batch_size.plot,
)
