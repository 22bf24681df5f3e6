"""Figure 4.17: how many keys should a lookup have where the table has an index and is far away?

The thesis, with a database on another continent: the more the better, up to 4,000 keys where half of the rows hit; eleven times the
baseline. Here a proxy makes each way take 45 ms, the thesis's 90 ms there and back. About 8 minutes at small scale.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from srj.experiments import batch_size
from srj.experiments import rate_figure as figure

if TYPE_CHECKING:
    from collections.abc import Sequence

    from srj.experiments.experiment import Cell, Finding, Scale
    from srj.experiments.ledger import Record

_SIZES = {"smoke": (30, 1000), "small": (2, 10, 100, 1000, 4000, 7000)}
_DELAYS = {"smoke": 3.0, "small": 45.0, "paper": 45.0}  # milliseconds


def cells(scale: Scale) -> list[Cell]:
    """The baseline, each size, and srj's own choice."""
    return batch_size.cells(scale, _SIZES, delay=_DELAYS[scale])


def check(records: Sequence[Record]) -> list[Finding]:
    """The gain, and growth."""
    return [batch_size.best_gain(records, 11), batch_size.grows_then_flat(records, 4000)]


EXPERIMENT = figure.experiment(
    name="fig_4_17",
    title="Figure 4.17: keys in a lookup, the table far away",
    question="How many keys should a lookup have where the table has an index and is far away?",
    claim="the rate grows up to 4,000 keys and then stays; up to 11 times as fast as one lookup a row.",
    discussion=(
        "The round trip is nearly all that a lookup costs, so the rate grows with its keys, as the thesis says, and does "
        "not stay at its 4,000, for as many misses wait as a lookup holds. srj's own choice sends several lookups at a "
        "time besides, which the thesis does not."
    ),
    cells=cells,
    details=figure.openings,
    check=check,
    plot=batch_size.plot,
)
