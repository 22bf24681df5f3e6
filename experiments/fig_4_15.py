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


EXPERIMENT = figure.experiment(
    name="fig_4_15",
    title="Figure 4.15: keys in a lookup, with an index",
    question="How many keys should a lookup have where the table has an index?",
    claim="30 keys are best, about 3 times as fast as one lookup a row; with more the rate falls.",
    discussion=(
        "In the thesis r, what a batch saves, is constant beyond 30 keys, so that more gain nothing. Here it is not: a "
        "lookup took 1.6 to 2.8 ms with up to 100 keys, 4.5 with 300, 8.7 with 1,000, 16 with 3,000, 44 with 10,000 and 167 "
        "with 30,000, for srj sends its keys as one value and gets its rows in one. So the largest size that was tried is the "
        "best; but tripling 10,000 keys carries a twelfth more, while a lookup takes four times as long. Below some ten keys srj "
        "is slower than one lookup a row: each of its lookups passes a second thread, and steps over whole columns, which so "
        "few keys do not pay back. " + figure.OPENED
    ),
    cells=cells,
    check=check,
    plot=batch_size.plot,
)
