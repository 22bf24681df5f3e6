"""Figure 4.16: how many keys should a lookup have where the table has no index, so that each lookup reads it whole?

The thesis: the more the better, up to 4,000 keys where half of the rows hit, 7,000 where a tenth does; five times the baseline.
About 10 minutes at small scale, with a table of 200,000 rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from srj.experiments import batch_size
from srj.experiments import rate_figure as figure

if TYPE_CHECKING:
    from collections.abc import Sequence

    from srj.experiments.experiment import Cell, Finding, Scale
    from srj.experiments.ledger import Record

_SIZES = {"smoke": (10, 300), "small": (10, 100, 1000, 4000, 7000)}
# The whole table is read for each lookup: with a million rows the baseline's cell alone would take half an hour.
_SMALL = {"relation": 200_000, "distinct": 100_000}


def cells(scale: Scale) -> list[Cell]:
    """The baseline, each size, and srj's own choice."""
    return batch_size.cells(scale, _SIZES, indexed=False, **(_SMALL if scale == "small" else {}))


def check(records: Sequence[Record]) -> list[Finding]:
    """The gain, and growth."""
    return [batch_size.best_gain(records, 5), batch_size.grows_then_flat(records, 4000)]


EXPERIMENT = figure.experiment(
    name="fig_4_16",
    title="Figure 4.16: keys in a lookup, without an index",
    question="How many keys should a lookup have where the table has no index, so that each lookup reads it whole?",
    claim="the rate grows up to 4,000 keys and then stays; 5 times as fast as one lookup a row.",
    cells=cells,
    check=check,
    plot=batch_size.plot,
)
