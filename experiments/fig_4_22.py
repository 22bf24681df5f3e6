"""Figure 4.22: do real streams gain what made ones gain, at each size of the cache?

The thesis: on weather and on TPC-H the rate is higher than that of one lookup a row at each size, and grows with the cache. Here:
the weather at a flight's origin in its hour (whose keys move on, so that a larger cache knows hardly more), LineItem's Part, the
aircraft of a flight, and NEXMark's query 13; each key is looked up in a relation of the synthetic one's columns, of as many rows
as the trace has keys. Each with one lookup a row, batches alone (30 keys, order constraint 0), overtaking alone (1 key), both, and
srj's own choice. About 6 minutes at small scale. The same for a stream of one's own, in a file that `srj experiment run mine.py`
takes:

    from dataclasses import replace
    from srj.experiments import fig_4_22

    EXPERIMENT = replace(
        fig_4_22.EXPERIMENT,
        name="mine",
        title="My clicks",
        discussion="",
        cells=lambda scale: fig_4_22.own("clicks.parquet", "page_id", scale),
    )
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from srj.experiments import rate_cell
from srj.experiments import rate_figure as figure
from srj.experiments.experiment import Finding
from srj.experiments.fig_4_19 import cached

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from matplotlib.axes import Axes

    from srj.experiments.experiment import Cell, Scale
    from srj.experiments.ledger import Record

_WEATHER, _PART, _AIRCRAFT, _BIDS = "new york weather", "tpch", "new york flights", "nexmark q13"
_WAYS: dict[str, dict[str, Any]] = {
    figure.BASELINE: {"way": figure.BASELINE},
    "batches alone": {"way": "srj", "batch": 30, "order": 0.0},
    "overtaking alone": {"way": "srj", "batch": 1, "order": "any"},
    "both": {"way": "srj", "batch": 30, "order": "any"},
    "srj's own choice": {"way": "srj auto", "order": "any"},
}
_LINES = {figure.BASELINE: ":", "batches alone": "--", "overtaking alone": "-.", "both": "-", "srj's own choice": (0, (6, 1))}
_FACTOR = {"smoke": 0.01, "small": 0.2, "paper": 10.0}  # of TPC-H
_SHARES = (0.1, 0.3, 0.5, 0.7, 0.9)
_QUICK = {"share": 0.1, "tries": 1}  # gains here are of whole factors


def cells(scale: Scale) -> list[Cell]:
    """All ways at each size; at small scale three sizes of the thesis's streams, and one of the others."""
    tpch = {"factor": _FACTOR[scale], "length": 10_000_000}
    if scale == "smoke":
        ways = [_WAYS[figure.BASELINE], _WAYS["both"]]
        return _cells_of(scale, _PART, tpch, (0.1, 0.9), ways)
    ways, shares = list(_WAYS.values()), _SHARES if scale == "paper" else (0.1, 0.5, 0.9)
    others = _SHARES if scale == "paper" else (0.5,)
    found = _cells_of(scale, _WEATHER, {}, shares, ways) + _cells_of(scale, _PART, tpch, shares, ways)
    ways_there = [_WAYS[way] for way in (figure.BASELINE, "both", "srj's own choice")]
    for name in (_AIRCRAFT, _BIDS):
        found += _cells_of(scale, name, {}, others, ways_there)
    return found


def own(path: str | Path, column: str, scale: Scale = "small", shares: Sequence[float] = (0.1, 0.5, 0.9)) -> list[Cell]:
    """The same cells for a column of one's own Parquet or CSV file, its rows in the stream's order.

    Args:
        path, column: where the keys are; see the trace ``file``.
        scale: how closely rates are found.
        shares: sizes of the cache, of the distinct keys.
    """
    return _cells_of(scale, "file", {"path": str(path), "column": column}, shares, list(_WAYS.values()))


def check(records: Sequence[Record]) -> list[Finding]:
    """Whether srj is ahead everywhere, and whether the rate grows with the cache."""
    claims = (
        "on each stream, at each size, srj carries more rows than one lookup a row",
        "on each stream that was measured with several sizes srj's rate grows with the cache",
    )
    open_ = [finding for claim in claims if (finding := figure.missing(records, claim)) is not None]
    if open_:
        return open_
    both = {name: _of(records, name, "both") for name in _names(records)}
    gains = {name: figure.gains(there, cached) for name, there in both.items()}
    curves = {name: list(figure.rates(there, "srj", cached).values()) for name, there in both.items() if len(gains[name]) > 1}
    growth = "; ".join(f"{name}: {curve[0]:,.0f} to {curve[-1]:,.0f} rows/s, {_hits(both[name])}" for name, curve in curves.items())
    least = min(gain for one in gains.values() for gain in one.values())
    own = {name: figure.gains(_of(records, name, "srj's own choice"), cached, "srj auto") for name in gains}
    why = "; ".join(
        f"{name}: {_listed(one)}" + (f" (srj's own choice: {_listed(own[name])})" if own[name] else "")
        for name, one in gains.items()
    )
    first = figure.beyond_chance(claims[0], least, why)
    if not curves:
        return [first, Finding(claims[1], "open", "one size alone was measured")]
    return [first, figure.verdict(claims[1], all(curve[-1] > figure.CHANCE * curve[0] for curve in curves.values()), growth)]


def plot(records: Sequence[Record], axes: Axes) -> None:
    """Rates by size of the cache: a colour for each stream, a line for each way."""
    ended = figure.finished(records)
    for number, name in enumerate(_names(records)):
        for way, line in _LINES.items():
            there = _of(ended, name, way)
            points = figure.rates(there, str(_WAYS[way]["way"]), cached)
            if points:
                axes.plot(
                    list(points), list(points.values()), marker="o", linestyle=line, color=f"C{number}", label=f"{name}, {way}"
                )
    figure.draw_lost(axes, records, cached)
    figure.finish(axes, "cache, share of the distinct keys")
    axes.legend(fontsize="xx-small", loc="upper left", bbox_to_anchor=(1, 1))  # beside the curves, of which there are many


def _cells_of(
    scale: Scale, name: str, parameters: dict[str, Any], shares: Sequence[float], ways: Sequence[dict[str, Any]]
) -> list[Cell]:
    points = ({"cached": share, **way} for share in shares for way in ways)
    # The sizes of the scale are those of Zipf's stream; this one has its own.
    common = {"trace": name, "parameters": parameters, "relation": 0, "distinct": 0}
    return rate_cell.cells_of(scale, *points, **common, **(_QUICK if scale == "small" else {}))


def _listed(gains: dict[float, float]) -> str:
    return ", ".join(f"{share:.0%} cached {gain:.1f} times" for share, gain in gains.items())


def _hits(records: Sequence[Record]) -> str:
    found = [one.figures["hit_ratio"] for one in records if one.cell["way"] == "srj"]
    return f"{1 - max(found):.0%} to {1 - min(found):.0%} of the rows asked a key"


def _names(records: Sequence[Record]) -> list[str]:
    return list(dict.fromkeys(figure.cell(record).stream for record in records))


def _of(records: Sequence[Record], name: str, way: str) -> list[Record]:
    """Of a stream those of a way, with the baseline."""
    wanted = _WAYS[way]
    there = [record for record in records if figure.cell(record).stream == name]
    return [
        one for one in there if one.cell["way"] == figure.BASELINE or all(one.cell[key] == value for key, value in wanted.items())
    ]


def details(records: Sequence[Record]) -> list[str]:
    """What srj's own choice is, and gains."""
    chosen = [one.figures["keys_per_lookup"] for one in figure.of_way(records, "srj auto")]
    if not chosen:
        return [*figure.openings(records), *figure.strayed(records)]
    gains = [
        gain
        for name in _names(records)
        for gain in figure.gains(_of(records, name, "srj's own choice"), cached, "srj auto").values()
    ]
    told = f"srj's own choice, lookups of {figure.span(chosen)} keys, carries {figure.span(gains)} times as many rows"
    return [f"{told} as one lookup a row.", *figure.openings(records), *figure.strayed(records)]


EXPERIMENT = figure.experiment(
    name="fig_4_22",
    title="Figure 4.22: real streams",
    question="Do real streams gain what made ones gain, at each size of the cache?",
    claim="on weather and TPC-H srj carries more rows than one lookup a row at each size of the cache, and more with a larger one.",
    discussion=(
        "The weather's keys come in runs, of which one row asks: hardly any do, however small the cache. With srj the others "
        "of a run wait with it, and few hit at once. Rates are found less closely here than in the other figures: within a "
        "tenth, with one try."
    ),
    cells=cells,
    details=details,
    check=check,
    plot=plot,
)
