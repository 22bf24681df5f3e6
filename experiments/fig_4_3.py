"""Figure 4.3: where does the time of a lookup go, with a database here and one far away?

The thesis: 42 ms locally, 30 of them the query at the server; 132 ms remotely, 90 of them the network; 2 ms are the engine's, and
10 a new connection for each lookup. Here: the network by a round trip of its own, the server by its own clock
(pg_stat_statements, SHOW PROFILES; of a PostgreSQL that counts nothing EXPLAIN ANALYZE, which adds to what it measures), the
engine as what is spent outside of lookups; the rest is the client's: the driver, the answer's decoding, and what the server
does around a query.
Connections are kept; what a new one would add is among the figures. The thesis's server had no memory for pages, so its setting is
the table without an index here. About 2 minutes at small scale.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from srj.experiments import latency_cell
from srj.experiments import rate_figure as figure
from srj.experiments.experiment import Experiment
from srj.experiments.latency_cell import PARTS, LatencyCell

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes

    from srj.experiments.experiment import Cell, Finding, Scale
    from srj.experiments.ledger import Record

_AWAY = {"smoke": 10.0, "small": 45.0}  # ms each way: the thesis's 90
_WAYS: tuple[dict[str, Any], ...] = ({"way": "one by one"}, {"way": "srj"}, {"way": "srj", "keys": 100})
_ENGINE = 0.1  # of the whole, at most: 2 of 42 ms and some room


def cells(scale: Scale) -> list[Cell]:
    """One key one by one, one key and a hundred by srj, here and far away, without an index and with one."""
    away = _AWAY.get(scale, _AWAY["small"])
    ways, indexed = (_WAYS[::2], (False,)) if scale == "smoke" else (_WAYS, (False, True))
    # A scan of 1 M rows takes about the thesis's 30 ms, at every scale.
    scanned = {} if scale == "smoke" else {"relation": 1_000_000}
    return latency_cell.cells_of(
        scale,
        *(
            {**way, "delay": delay, "indexed": one, **({} if one else scanned)}
            for one in indexed
            for delay in (0.0, away)
            for way in ways
        ),
    )


def check(records: Sequence[Record]) -> list[Finding]:
    """What the largest part is."""
    claims = (
        "in the thesis's setting, one key without an index, most of a lookup's time is the query's at the server",
        "with the server far away most of it is the network's",
        "the engine takes little of it, one by one and through srj, without an index",
    )
    open_ = [finding for claim in claims if (finding := figure.missing(records, claim)) is not None]
    if open_:
        return open_
    one_key = [one for one in records if not _cell(one).indexed and _cell(one).keys == 1]
    thesis = [one for one in one_key if _cell(one).way == figure.BASELINE]
    local, remote = ([one for one in thesis if bool(_cell(one).delay) == is_far] for is_far in (False, True))
    return [
        figure.verdict(claims[0], all(_share(one, "server") > 0.5 for one in local), _shares(local, "server")),
        figure.verdict(claims[1], all(_share(one, "network") > 0.5 for one in remote), _shares(remote, "network")),
        figure.verdict(claims[2], all(_share(one, "engine") <= _ENGINE for one in one_key), _shares(one_key, "engine")),
    ]


def plot(records: Sequence[Record], axes: Axes) -> None:
    """A bar for each cell, of the parts."""
    ended = figure.finished(records)
    names = [latency_cell.label(one.cell) for one in ended]
    left = [0.0] * len(ended)
    for part in PARTS:
        # The client's is a difference of medians, which noise may make less than nothing.
        widths = [max(float(one.figures[part]), 0.0) for one in ended]
        axes.barh(names, widths, left=left, label=part)
        left = [begin + width for begin, width in zip(left, widths, strict=True)]
    lost = [one for one in records if one.state != "finished"]
    for one in lost:
        axes.barh([latency_cell.label(one.cell)], [0.0], label=f"{latency_cell.label(one.cell)}: {one.state}")
    axes.set(xlabel="milliseconds of a lookup")
    axes.invert_yaxis()
    axes.grid(alpha=0.3, axis="x")
    axes.legend(fontsize=8)


def _cell(record: Record) -> LatencyCell:
    return LatencyCell(**record.cell)


def _share(record: Record, part: str) -> float:
    return float(record.figures[part] / record.figures["total"])


def _shares(records: Sequence[Record], part: str) -> str:
    return "; ".join(
        f"{latency_cell.label(one.cell)}: {one.figures[part]:.2f} of {one.figures['total']:.2f} ms ({_share(one, part):.0%})"
        for one in records
    )


def details(records: Sequence[Record]) -> list[str]:
    """The engine's part on an index nearby, where the rest of a lookup is short."""
    near = [one for one in records if _cell(one).indexed and not _cell(one).delay]
    return [f"On an index nearby the engine's part is larger: {_shares(near, 'engine')}."]


EXPERIMENT = Experiment(
    name="fig_4_3",
    title="Figure 4.3: where the time of a lookup goes",
    question="Where does the time of a lookup go, with a database here and one far away?",
    claim="local 42 ms, 30 of them the query; remote 132 ms, 90 of them the network; 2 ms are the engine's.",
    discussion=(
        "srj's core sends a batch by a second thread and handles whole columns, which a lookup of a single key pays as one of a "
        "hundred does."
    ),
    details=details,
    cells=cells,
    run=latency_cell.run,
    check=check,
    plot=plot,
    label=latency_cell.label,
    headline=latency_cell.headline,
)
