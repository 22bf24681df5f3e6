"""What an experiment is: a question, a claim, cells to measure, and what their figures say about the claim."""

from __future__ import annotations

import importlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from srj.errors import RequestError
from srj.quantities import nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from matplotlib.axes import Axes

    from srj.experiments.ledger import Record

Scale = Literal["smoke", "small", "paper"]
SCALES: tuple[Scale, ...] = get_args(Scale)
Cell = dict[str, Any]  # parameters, as JSON knows them
# In this order they are listed and run.
NAMES = (
    "fig_4_3",
    "fig_4_14",
    "fig_4_15",
    "fig_4_16",
    "fig_4_17",
    "fig_4_18",
    "fig_4_19",
    "fig_4_20",
    "fig_4_21",
    "fig_4_22",
    "fig_5_4",
    "peers",
)
_TIMEOUTS: dict[Scale, float] = {"smoke": 60.0, "small": 600.0, "paper": 7200.0}


@dataclass(frozen=True)
class Checksum:
    """Of rows in any order.

    Attributes:
        rows: how many.
        hashes: the sum of their hashes, modulo 2**64.
    """

    rows: int
    hashes: int


@dataclass(frozen=True)
class Measurement:
    """What a cell measured.

    Attributes:
        figures: by name, as JSON knows them.
        output: of all rows that came out.
        plain_join: of the rows that a plain join of the same input gives; another one makes the cell a failed one.
    """

    figures: Mapping[str, Any]
    output: Checksum
    plain_join: Checksum


@dataclass(frozen=True)
class Finding:
    """What the figures say about one claim.

    Attributes:
        claim: as a sentence.
        verdict: whether they agree; ``"open"`` where cells are missing, or where the difference may be chance.
        why: with figures.
    """

    claim: str
    verdict: Literal["agrees", "differs", "open"]
    why: str


@dataclass(frozen=True)
class Experiment:
    """One figure.

    Attributes:
        name: on the command line.
        title: for people.
        question: what it asks.
        claim: what the thesis saw. claimed_by: who says so, before a colon.
        cells: the parameters of each measurement, by scale.
        run: measures one cell, given the server's URL; an empty one where it needs none.
        check: what the finished cells of one scale say.
        plot: draws them; measures nothing.
        label: a cell in a few words.
        headline: a finished cell's figures in a few words.
        discussion: why findings are as they are, as far as known; shown below them.
        details: sentences that follow it, with figures of the finished cells that they are given, so that they are always theirs.
        servers: dialects on which its cells can run, each cell on every one that is there; none: it needs no server.
        timeouts: seconds that a cell may take.
        can_run: whether a cell can run here; one that can't is left out of a run, and nobody misses it.
        needs: what cells need that can't run, in a few words.
        file: of one's own; empty: one of ours.
    """

    name: str
    title: str
    question: str
    claim: str
    cells: Callable[[Scale], list[Cell]]
    run: Callable[[Cell, str], Measurement]
    check: Callable[[Sequence[Record]], list[Finding]]
    plot: Callable[[Sequence[Record], Axes], None]
    label: Callable[[Cell], str] = str
    headline: Callable[[Mapping[str, Any]], str] = str
    discussion: str = ""
    claimed_by: str = "The thesis"
    details: Callable[[Sequence[Record]], Sequence[str]] = lambda _: ()
    servers: tuple[str, ...] = ("postgresql", "mysql")
    timeouts: Mapping[Scale, float] = field(default_factory=lambda: dict(_TIMEOUTS))
    can_run: Callable[[Cell], bool] = lambda _: True
    needs: str = ""
    file: str = ""

    def missing(self, scale: Scale, records: Sequence[Record]) -> list[Cell]:
        """The scale's cells that can run here, and of which none of a server's records is."""
        known = {json.dumps(record.cell, sort_keys=True) for record in records}
        return [cell for cell in self.cells(scale) if self.can_run(cell) and json.dumps(cell, sort_keys=True) not in known]


def load(name: str) -> Experiment:
    """An experiment by its name, or of one's own by its file's path; a file assigns it to ``EXPERIMENT``.

    Raises:
        RequestError: there is no such experiment, or the file is wrong.
    """
    if name.endswith(".py"):
        from srj.experiments.own_file import from_file  # noqa: PLC0415  it needs this module

        return from_file(Path(name))
    if name not in NAMES:
        raise RequestError(f"expected an experiment's name or a Python file, got {name!r}; {nearest(name, NAMES)}")
    experiment: Experiment = importlib.import_module(f"srj.experiments.{name}").EXPERIMENT
    return experiment


def source_of(name: str) -> Path:
    """The file that `load` reads."""
    return Path(name) if name.endswith(".py") else Path(__file__).with_name(f"{name}.py")
