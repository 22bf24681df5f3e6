"""Peers: how fast is srj against the other ways to join a Spark stream with a table in a database, and what does each cost?

Every way joins streams of the same make with the same relation through Spark on two cores: with a cold cache and keys that come
once each, and with 50 % and 95 % of rows whose key the cache holds; with relations of 1 M and 10 M rows. See `spark_cell` for how
a cell is measured. About half an hour at small scale for each server, with Flink, where SRJ_FLINK_PYTHON names its Python.
"""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from srj.experiments import rate_figure as figure
from srj.experiments.experiment import Experiment

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matplotlib.axes import Axes

    from srj.experiments.experiment import Cell, Finding, Measurement, Scale
    from srj.experiments.ledger import Record
    from srj.experiments.peer_stream import Phase

Way = Literal[
    "srj",
    "srj, any order",
    "one by one",
    "one by one, async",
    "a query per row",
    "stream-static JDBC join",
    "foreachBatch + IN list",
    "broadcast join",
    "Flink",
    "no join",
]
FLINK = "SRJ_FLINK_PYTHON"  # environment variable: the Python of an environment that has Flink
OURS = ("srj", "srj, any order")
NO_JOIN = "no join"  # no way to join, but what Spark itself takes: rows made from their keys, in the same micro-batches
_EQUAL = 0.25  # what is nearer counts as equal, for runs of the same cell differ
_SHARES = {"rate": 0.6, "delay": 0.2}  # of the relation, at most, for keys that come once


@dataclass(frozen=True)
class PeerCell:
    """A way to join, and where.

    Attributes:
        way: see `peer_ways`.
        hits: share of rows whose key a warm cache holds.
        relation: rows of the table.
        hot: keys that come again and again. entries: that a cache holds, each worker's or, with srj, the executor's.
        rows, delay_rows: of a micro-batch that measures the rate, at most, and the delay.
        seconds: that each phase but the first takes; the micro-batch that is under way then is finished.
        batches: micro-batches of a phase, at most.
        warm: micro-batches that go before, beside one with all hot keys.
        heap, java: of the JVM, and more options for it.
        seed: of the stream.
    """

    way: Way
    hits: float
    relation: int = 1_000_000
    hot: int = 10_000
    entries: int = 100_000
    rows: int = 100_000
    delay_rows: int = 5_000
    seconds: dict[str, float] = field(default_factory=lambda: {"rate": 6.0, "delay": 6.0})
    batches: dict[str, int] = field(default_factory=lambda: {"rate": 20, "delay": 20})
    warm: int = 3
    heap: str = "4g"
    java: str = ""
    seed: int = 1

    @property
    def point(self) -> str:
        """Where, in a few words."""
        return f"{self.relation / 1e6:g} M rows, {f'{self.hits:.0%} hits' if self.hits else 'cold'}"

    def sizes(self) -> list[tuple[Phase, int]]:
        """Phase and rows of each micro-batch: of all ways the same, as what Spark takes for one would else weigh differently."""
        rows = self.rows
        warm: list[tuple[Phase, int]] = [("warm", min(rows, 2 * self.delay_rows)), ("warm", rows), ("warm", self.delay_rows)]
        found = warm[: self.warm]
        phases: tuple[tuple[Phase, int], ...] = (("rate", rows), ("delay", self.delay_rows))
        for phase, each in phases:
            bound = int(_SHARES[phase] * self.relation / max((1 - self.hits) * each, 1))
            found += [(phase, each)] * max(1, min(self.batches[phase], bound))
        return found


def cells(scale: Scale) -> list[Cell]:
    """Each way at each point; at smoke scale each way once."""
    ways: tuple[Way, ...] = get_args(Way)
    if scale == "smoke":
        sizes: dict[str, Any] = {
            "relation": 20_000,
            "hot": 500,
            "entries": 5_000,
            "rows": 1_000,
            "delay_rows": 200,
            "warm": 1,
            "heap": "1g",
        }
        sizes["java"] = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # it lives too short to earn back what the others cost
        sizes |= {"seconds": {"rate": 0.4, "delay": 0.2}, "batches": {"rate": 2, "delay": 2}}
        return [asdict(PeerCell(way, 0.5 * (number % 2), **sizes)) for number, way in enumerate(ways)]
    longer: dict[str, Any] = {"seconds": {"rate": 60.0, "delay": 30.0}, "batches": {"rate": 100, "delay": 100}}
    more = longer if scale == "paper" else {}
    return [
        asdict(PeerCell(way, hits, relation, **more))
        for relation in (1_000_000, 10_000_000)
        for hits in (0.0, 0.5, 0.95)
        for way in ways
    ]


def can_run(cell: Cell) -> bool:
    """Flink only where its Python is named."""
    return cell["way"] != "Flink" or bool(os.environ.get(FLINK))


def run(cell: Cell, url: str) -> Measurement:
    """Measure one; Spark is imported only here."""
    one = PeerCell(**cell)
    if one.way == "Flink":
        from srj.experiments import flink_peer  # noqa: PLC0415

        return flink_peer.measure(one, url)
    from srj.experiments import spark_cell  # noqa: PLC0415

    return spark_cell.measure(one, url)


def check(records: Sequence[Record]) -> list[Finding]:
    """At each point whether any other way is faster, or has a shorter delay, by more than single runs differ."""
    fastest = f"no other way carries over {_EQUAL:.0%} more rows a second than srj in order"
    shortest = f"no other way in micro-batches has a p99 delay over {_EQUAL:.0%} shorter than that of srj in order"
    missing = figure.missing(records, fastest)
    if missing is not None:
        return [missing]
    findings = []
    for point, there in by_point(records).items():
        ours = there.get("srj")
        others = {way: figures for way, figures in there.items() if way not in (*OURS, NO_JOIN)}
        if ours is None or not others:
            continue
        best = max(others, key=lambda way: float(others[way]["rate"]))
        why = f"{ours['rate']:,.0f} rows/s; the best of the others, {best}: {others[best]['rate']:,.0f}"
        findings.append(figure.verdict(f"{fastest}: {point}", (1 + _EQUAL) * ours["rate"] >= others[best]["rate"], why))
        # Flink's is of bursts in the middle of its stream: it has no micro-batches, and looking for new files is not in it.
        timed = {way: figures["delay_p99_ms"] for way, figures in others.items() if way != "Flink"}
        if timed:
            best = min(timed, key=lambda way: float(timed[way]))
            why = f"{ours['delay_p99_ms']:,.0f} ms; the best of the others, {best}: {timed[best]:,.0f} ms"
            findings.append(figure.verdict(f"{shortest}: {point}", (1 - _EQUAL) * ours["delay_p99_ms"] <= timed[best], why))
    return findings


def details(records: Sequence[Record]) -> list[str]:
    """What Spark itself carries, how near srj comes to it, and how few micro-batches delays are of."""
    points = by_point(records)
    shares = [
        f"{100 * there['srj']['rate'] / there[NO_JOIN]['rate']:.0f} % ({point})"
        for point, there in points.items()
        if "srj" in there and NO_JOIN in there
    ]
    counts = [one["delay_micro_batches"] for there in points.values() for one in there.values() if one.get("delay_micro_batches")]
    told = [f"Of what Spark carries without a join srj in order carries {', '.join(shares)}."] if shares else []
    return [*told, f"Each delay is of {figure.span(counts)} micro-batches."] if counts else told


def plot(records: Sequence[Record], axes: Axes) -> None:
    """Rates as bars, a group for each way; cells without a rate are named, with what became of them."""
    points = by_point(records)
    ways = [way for way in get_args(Way) if any(way in there for there in points.values())]
    width = 0.8 / max(len(points), 1)
    for number, (point, there) in enumerate(points.items()):
        places = [ways.index(way) + width * (number - (len(points) - 1) / 2) for way in there]
        axes.bar(places, [float(figures["rate"]) for figures in there.values()], width, label=point)
    for record in records:
        if record.state != "finished" or "unfit" in record.figures:
            state = "does not fit" if record.state == "finished" else record.state
            axes.plot([], [], " ", label=f"{label(record.cell)}: {state}")
    axes.set_yscale("log")
    axes.set_ylabel("rows/s")
    axes.set_xticks(np.arange(len(ways)), ways, rotation=30, ha="right", fontsize="small")
    # Above the bars, to which it leaves two thirds of the height.
    low, high = axes.get_ylim()
    axes.set_ylim(low, high * (high / low) ** 0.5)
    axes.legend(fontsize="x-small", ncols=2, loc="upper center")


def by_point(records: Sequence[Record]) -> dict[str, dict[str, Mapping[str, Any]]]:
    """The figures of the ways that carried anything, by where; nothing of where none did."""
    found: dict[str, dict[str, Mapping[str, Any]]] = {}
    for record in figure.finished(records):
        cell = PeerCell(**record.cell)
        if "unfit" not in record.figures:
            found.setdefault(cell.point, {})[cell.way] = record.figures
    return found


def label(cell: Cell) -> str:
    """A cell in a few words."""
    one = PeerCell(**cell)
    return f"{one.way} ({one.point})"


def headline(figures: Mapping[str, Any]) -> str:
    """Its figures in a few words."""
    if "unfit" in figures:
        return str(figures["unfit"])
    parts = [f"{figures['rate']:,.0f} rows/s"]
    if figures["delay_p99_ms"] is not None:
        parts.append(f"delay {figures['delay_p50_ms']:,.0f} ms (p99 {figures['delay_p99_ms']:,.0f})")
    if figures["queries"] is not None:
        parts.append(f"{figures['queries']:,} queries for {figures['rows']:,} rows")
    if figures["cpu_seconds"] is not None:
        parts.append(f"{1e6 * figures['cpu_seconds'] / figures['rows']:,.1f} s of the database's processor for 1 M rows")
    if "memory_bytes" in figures:
        parts.append(f"{figures['memory_bytes'] / 1e6:,.0f} MB")
    return ", ".join(parts)


EXPERIMENT = Experiment(
    name="peers",
    title="Peers: other ways to join a stream with a table",
    question="How fast is srj against the other ways to join a Spark stream with a table, and what does each cost?",
    claim="srj carries about as many rows as the fastest of the others, or more, and no micro-batch of theirs is clearly shorter.",
    claimed_by="We claim, where the thesis compares with one lookup a row alone",
    discussion=(
        "Where keys are new, it is the number of queries that counts. Where nearly all rows hit, Spark's own time is most of "
        "what the ways with a cache take, as the last row shows, which joins nothing. Flink has no micro-batches: it does "
        "without that time, and its rows do not wait for it. A query per row does not gain by hits. Delays are those of few "
        "micro-batches, so that p99 is hardly less than the longest; they differ from run to run by more than most ways do."
    ),
    details=details,
    cells=cells,
    run=run,
    check=check,
    plot=plot,
    label=label,
    headline=headline,
    can_run=can_run,
    needs=f"Flink, whose Python the environment variable {FLINK} names",
)
