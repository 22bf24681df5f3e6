"""An experiment of one's own, in a file, and the command that runs it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from typer.testing import CliRunner

from srj.experiments.commands import app

if TYPE_CHECKING:
    from pathlib import Path

    from click.testing import Result

# An experiment of one's own: no database, a cell for each way to end.
OWN = """
import sys
import time
from srj.experiments.experiment import Checksum, Experiment, Finding, Measurement


def run(cell, url):
    if cell["n"] == 1:
        raise ValueError("one is no number")
    if cell["n"] == 2:
        time.sleep(60)
    if cell["n"] == 3:
        return Measurement({"square": 9}, Checksum(1, 5), Checksum(1, 6))
    if cell["n"] == 4:
        sys.exit("gone")
    print("what a library may print")
    return Measurement({"square": cell["n"] ** 2}, Checksum(2, 5), Checksum(2, 5))


def check(records):
    return [Finding("squares | grow", "agrees", f"{sum(record.state == 'finished' for record in records)} cells")]


def plot(records, axes):
    axes.plot([record.figures["square"] for record in records if record.state == "finished"])


EXPERIMENT = Experiment("own", "Own", "Do squares grow?", "they do.", lambda scale: [{"n": n} for n in CELLS], run, check, plot,
                        servers=())
"""


def srj(*arguments: str, code: int = 0) -> Result:
    """Give the command `srj experiment …`; its cells run in processes of their own all the same."""
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == code, done.output
    return done


def own(folder: Path, *cells: int) -> str:
    """The file of the experiment with these cells."""
    (folder / "own.py").write_text(f"CELLS = {list(cells)}\n{OWN}")
    return "own.py"


def lines(folder: Path) -> list[dict[str, Any]]:
    """The ledger."""
    return [json.loads(line) for line in (folder / "experiment-results" / "ledger.jsonl").read_text().splitlines()]
