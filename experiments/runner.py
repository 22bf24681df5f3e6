"""The runner: each cell in a process of its own with a time limit, its record in the ledger, finished ones not again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from srj.experiments.experiment import load
from srj.experiments.ledger import Record, code_hash, key_of, machine, versions
from srj.table import DatabaseUrl

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from srj.experiments.experiment import Cell, Experiment, Scale
    from srj.experiments.ledger import Ledger, State
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
    tally = Tally()
    done = set() if fresh else ledger.finished()
    work = [
        (name, experiment, cell, dialect)
        for name in names
        for experiment in [load(name)]
        for cells in [_able(experiment, scale, console)]
        for dialect in (servers.chosen(experiment.servers) if experiment.servers else [""])
        for cell in cells
    ]
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("", total=len(work))
        for name, experiment, cell, dialect in work:
            label = f"{experiment.name}{f' on {dialect}' if dialect else ''}: {experiment.label(cell)}"
            progress.update(task, description=label)
            key = key_of(name, cell, servers.described(dialect))
            if key in done:
                tally.skipped += 1
            else:
                record = _run_cell(name, experiment, scale, cell, dialect, key, servers, timeout)
                ledger.append(record)
                setattr(tally, record.state, getattr(tally, record.state) + 1)
                told = experiment.headline(record.figures) if record.state == "finished" else f"{record.state}: {record.error}"
                progress.console.print(f"{label}: {told}", soft_wrap=True, markup=False, highlight=False)
            progress.advance(task)
    return tally


def _able(experiment: Experiment, scale: Scale, console: Console) -> list[Cell]:
    """The cells that can run here; what others need is shown."""
    cells = experiment.cells(scale)
    able = [cell for cell in cells if experiment.can_run(cell)]
    if len(able) < len(cells):
        why = f"they need {experiment.needs}" if experiment.needs else "they can't run here"
        told = f"{experiment.name}: {len(cells) - len(able)} of {len(cells)} cells are left out: {why}"
        console.print(told, soft_wrap=True, markup=False, highlight=False)
    return able


def _run_cell(
    name: str, experiment: Experiment, scale: Scale, cell: Cell, dialect: str, key: str, servers: Servers, timeout: float | None
) -> Record:
    limit = experiment.timeouts[scale] if timeout is None else timeout
    url = servers.url(dialect) if dialect else ""
    started, begun = datetime.now(UTC).isoformat(timespec="seconds"), time.monotonic()
    state, figures, error = _in_process({"experiment": name, "cell": cell, "url": url}, limit)
    return Record(
        key=key,
        experiment=experiment.name,
        scale=scale,
        cell=cell,
        dialect=dialect,
        state=state,
        started=started,
        seconds=round(time.monotonic() - begun, 3),
        figures=figures,
        error=_shortened(_without_secrets(error, url) if url else error),
        versions=versions(),
        machine=machine(),
        server=servers.described(dialect),
        code=code_hash(),
    )


def _in_process(request: dict[str, Any], limit: float) -> tuple[State, dict[str, Any], str]:
    # The request goes by standard input: a command line, where others could read it, shows no login.
    process = subprocess.Popen(
        [sys.executable, "-m", "srj.experiments.cell"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # so that what it starts can be ended with it
    )
    try:
        output, errors = process.communicate(json.dumps(request), timeout=limit)
    except subprocess.TimeoutExpired:
        return "timeout", {}, f"expected an end within {limit:g} s, got none; give more time with --timeout"
    finally:
        if process.poll() is None:  # else its number may be another's by now
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    try:
        answered = json.loads(output)
    except ValueError:
        return "failed", {}, f"expected figures, but the process ended with {process.returncode}: {errors.strip()}"
    if "error" in answered:
        return "failed", {}, str(answered["error"])
    return "finished", answered["figures"], ""


def _shortened(error: str) -> str:
    """How it begins and ends; after secrets were taken out, for half a password is not found."""
    return error if len(error) <= 2 * _SHOWN_ERROR else f"{error[:_SHOWN_ERROR]} … {error[-_SHOWN_ERROR:]}"


def _without_secrets(text: str, url: str) -> str:
    """What a driver or a traceback says may hold the URL that it was given."""
    parsed = DatabaseUrl.parse(url)
    password = parsed.resolve().password
    text = text.replace(url, f"{parsed}")
    for told in (password, quote(password or "", safe="")) if password else ():
        text = text.replace(told, "***")
    return text
