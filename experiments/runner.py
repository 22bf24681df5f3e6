"""The runner: each cell in a process of its own with a time limit, its record in the ledger, finished ones not again."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from srj.experiments.cell_process import in_process
from srj.experiments.experiment import load
from srj.experiments.ledger import Record, code_hash, key_of, machine, versions
from srj.experiments.masking import masked, printable
from srj.experiments.run_lock import alone_here

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from srj.experiments.experiment import Cell, Experiment, Scale
    from srj.experiments.ledger import Ledger
    from srj.experiments.servers import Servers

_SHOWN_ERROR = 300  # characters of what a cell wrote before it ended


@dataclass
class Tally:
    """How many cells ended in each way."""

    finished: int = 0
    failed: int = 0
    timeout: int = 0
    skipped: int = 0


def run(
    names: Sequence[str],
    scale: Scale,
    ledger: Ledger,
    servers: Servers,
    console: Console,
    *,
    fresh: bool = False,
    timeout: float | None = None,
) -> Tally:
    """Run the cells of experiments that are not finished; those that can't run here are left out, and said once.

    Args:
        names: of experiments, or paths of files.
        scale: which cells.
        ledger: what was finished before, under the same key, and where the results go.
        servers: started when the first cell needs them.
        console: shows progress.
        fresh: run finished cells too.
        timeout: seconds for each cell; None: each experiment's own.
    """
    plan = _plan(names, scale, servers, console)
    done = set() if fresh else ledger.finished()
    to_do = {key: task for key, task in plan.items() if key not in done}
    tally = Tally(skipped=len(plan) - len(to_do))
    servers.hold(task.dialect for task in to_do.values() if task.dialect)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with alone_here() as is_alone, Progress(*columns, console=console, transient=True) as progress:
        if to_do and not is_alone:
            _say(
                progress.console,
                "another run is measuring on this machine, so that the figures of both are worse than they should be",
            )
        shown = progress.add_task("", total=len(plan), completed=tally.skipped)
        for key, task in to_do.items():
            progress.update(shown, description=escape(task.label))
            record = _run_cell(task, scale, key, servers, timeout)
            ledger.append(record)
            setattr(tally, record.state, getattr(tally, record.state) + 1)
            finished = record.state == "finished"
            told = _headline(task, record) if finished else f"{record.state}: {record.error}"
            _say(progress.console, f"{task.label}: {told}")
            progress.advance(shown)
    return tally


@dataclass(frozen=True)
class _Task:
    """A cell on a server; the experiment's name as `load` takes it."""

    name: str
    experiment: Experiment
    cell: Cell
    dialect: str
    label: str


def _plan(names: Sequence[str], scale: Scale, servers: Servers, console: Console) -> dict[str, _Task]:
    """What to run, by its key: what is named twice runs once. Labels are made before anything is measured, for they may fail."""
    plan: dict[str, _Task] = {}
    for name in names:
        experiment = load(name)
        cells = _able(experiment, scale, console)
        for dialect in servers.chosen(experiment.servers) if experiment.servers else [""]:
            begin = f"{experiment.name}{f' on {dialect}' if dialect else ''}"
            for cell in cells:
                key = key_of(name, cell, servers.identified(dialect))
                plan[key] = _Task(name, experiment, cell, dialect, f"{begin}: {experiment.label(cell)}")
    return plan


def _headline(task: _Task, record: Record) -> str:
    try:
        return task.experiment.headline(record.figures)
    except Exception as error:  # whatever it is, what was measured is kept, and the other cells' turn comes
        return f"finished; its headline fails: {type(error).__name__}: {error}"


def _say(console: Console, text: str) -> None:
    with suppress(OSError):  # who can't be told loses no measurement
        console.print(printable(text), soft_wrap=True, markup=False, highlight=False)


def _able(experiment: Experiment, scale: Scale, console: Console) -> list[Cell]:
    """The cells that can run here; what others need is shown."""
    cells = experiment.cells(scale)
    able = [cell for cell in cells if experiment.can_run(cell)]
    if len(able) < len(cells):
        why = f"they need {experiment.needs}" if experiment.needs else "they can't run here"
        told = f"{experiment.name}: {len(cells) - len(able)} of {len(cells)} cells are left out: {why}"
        _say(console, told)
    return able


def _run_cell(task: _Task, scale: Scale, key: str, servers: Servers, timeout: float | None) -> Record:
    limit = task.experiment.timeouts[scale] if timeout is None else timeout
    url = servers.url(task.dialect) if task.dialect else ""
    started, begun = datetime.now(UTC).isoformat(timespec="seconds"), time.monotonic()
    state, figures, error = in_process({"experiment": task.name, "cell": task.cell, "url": url}, limit)
    try:
        figures = printable(masked(figures, url, names=task.name.endswith(".py")))
    except RecursionError:
        state, figures, error = "failed", {}, "expected figures that are nested less deeply; make them flat"
    return Record(
        key=key,
        experiment=task.experiment.name,
        scale=scale,
        cell=task.cell,
        dialect=task.dialect,
        state=state,
        started=started,
        seconds=round(time.monotonic() - begun, 3),
        figures=figures,
        error=_shortened(printable(masked(error, url))),
        versions=versions(),
        machine=machine(),
        server=servers.described(task.dialect),
        code=code_hash(),
    )


def _shortened(error: str) -> str:
    """How it begins and ends; after secrets were taken out, for half a password is not found."""
    return error if len(error) <= 2 * _SHOWN_ERROR else f"{error[:_SHOWN_ERROR]} … {error[-_SHOWN_ERROR:]}"
