"""A tuning for people, for scripts, and for ``config=``."""

from __future__ import annotations

import errno
import json
import os
from dataclasses import asdict
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.markup import escape
from rich.table import Table as Grid

from srj.errors import RequestError
from srj.quantities import parse_size

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from srj.tuning.simulating import Trial
    from srj.tuning.tuning import Tuning


_MARK = "# Found by srj tune"
_HEAD = 4_096  # bytes of a file in which its mark stands


def as_json(tuning: Tuning) -> dict[str, Any]:
    """As plain data; a trial is a list in a tuple's place otherwise."""
    return asdict(tuning) | {"trials": [trial._asdict() for trial in tuning.trials]}


def size(tuning: Tuning) -> str:
    """The cache's size as ``cache=`` takes it: the memory as given where all of it is used, else rows.

    Rows would go beyond that memory if the bytes of a row are more than was said.
    """
    memory, best = tuning.prices.memory, tuning.best
    if isinstance(memory, int):
        memory = f"{memory} b"
    rows = ceil(best.rows * tuning.prices.rows_per_key)
    if memory is not None:
        amount, unit = parse_size(memory)
        if unit == "bytes" and best.rows >= tuning.prices.most_rows:
            return " ".join(memory.split())  # on one line
        if unit == "rows":
            rows = min(rows, amount)  # the least that is simulated may be more
    return f"{rows:_} rows"


def toml(tuning: Tuning) -> str:
    """The file."""
    best = tuning.best
    batch = json.dumps(best.batch)  # JSON's texts and lists are TOML's too
    comments = (
        f"{_MARK[2:]} in {tuning.trace}: {tuning.references:,} references to {tuning.distinct:,} keys.",
        f"Of these {best.misses:,} miss, {best.miss_ratio:.2%}, from an empty cache; {tuning.prices.origin}.",
    )
    return "\n".join(
        [
            *(_comment(text) for text in comments),
            "",
            "[cache]",
            _comment(f"{best.policy} {best.reason}; about {_bytes(best.nbytes)}."),
            f"policy = {json.dumps(best.policy)}",
            f"size = {json.dumps(size(tuning))}",
            _comment(f"{best.ttl_reason}."),
            f'ttl = "{best.ttl}"',
            "",
            "[batch]",
            _comment(f"{best.batch_reason}."),
            f"size = {batch}",
            "",
        ]
    )


def _comment(text: str) -> str:
    """On one line, without what TOML allows in no comment: names come from a user's file."""
    return f"# {''.join(letter for letter in ' '.join(text.split()) if letter.isprintable())}"


def _bytes(number: float) -> str:
    """For people.

    >>> _bytes(512), _bytes(2_500_000), _bytes(999_900)
    ('512 B', '2.5 MB', '1 MB')
    """
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if number >= 0.9995 * factor:  # as it is rounded
            return f"{number / factor:,.3g} {unit}"
    return f"{number:.0f} B"


def write(path: str | Path, content: bytes) -> None:
    """Write a file, its folder too.

    Raises:
        RequestError: it can't be written.
    """
    path = Path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    except OSError as error:
        raise RequestError(f"expected a file that can be written, got {str(path)!r}: {error.strerror}; choose another") from None


def _try_to_make(path: Path) -> None:
    """Raises OSError where a new file, or its folder, can't be made."""
    if path.parent.exists():
        with path.open("xb"):  # whoever is allowed by the file's mode may be refused by its system
            pass
        path.unlink()
        return
    nearest = next(folder for folder in path.parents if folder.exists())
    if not nearest.is_dir() or not os.access(nearest, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


def check_own(path: Path, option: str, marks: Sequence[bytes] = (_MARK.encode(),)) -> None:
    """Refuse a file that can't be written, or that somebody else wrote; before anything is read, as far as that can be known.

    Args:
        path: the file.
        option: by which it was given.
        marks: of which one of srj's own has one near its beginning.

    Raises:
        RequestError: there is a file of another origin, or what is no file, or none can be made or read there.
    """
    try:
        if path.exists():
            if not path.is_file():
                raise RequestError(f"expected a file for {option}, got {str(path)!r}, which is none; choose another")
            with path.open("r+b") as file:
                head = file.read(_HEAD)
                known = any(mark in head for mark in marks)
        else:
            known = True
            _try_to_make(path)
    except OSError as error:
        raise RequestError(f"expected a file that can be written, got {str(path)!r}: {error.strerror}; choose another") from None
    if not known:
        raise RequestError(
            f"expected no file {str(path)!r}, or one by srj tune, got another's; give a different {option}, or move it"
        )


def facts(tuning: Tuning) -> list[tuple[str, str]]:
    """The recommendation, a label and a text each."""
    best, prices = tuning.best, tuning.prices
    trace = f"{tuning.trace}: {tuning.references:,} references to {tuning.distinct:,} keys"
    if tuning.nulls:
        trace += f"; {tuning.nulls:,} rows without a key left out"
    limit = (
        "no limit"
        if prices.memory is None
        else f"at most {_bytes(prices.memory) if isinstance(prices.memory, int) else prices.memory}"
    )
    worth = f"{prices.memory_cost:g} s a GB" if prices.memory_cost else "costs nothing"
    batch = best.batch if isinstance(best.batch, str) else f"{best.batch[0]:,} to {best.batch[1]:,} keys"
    return [
        ("trace", trace),
        ("prices", f"{prices.origin}; memory {limit}, {worth}"),
        ("policy", f"{best.policy}: {best.reason}"),
        ("size", f"{best.rows:,} rows, about {_bytes(best.nbytes)}"),
        ("misses", f"{best.misses:,}, {best.miss_ratio:.2%} of the references; {tuning.distinct:,} are first ones"),
        ("ttl", f"{best.ttl}: {best.ttl_reason}"),
        ("batch", f"{batch}: {best.batch_reason}"),
    ]


def show(tuning: Tuning, console: Console) -> None:
    """Print it for people."""
    grid = Grid.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for label, text in facts(tuning):
        grid.add_row(f"[bold]{label}", escape(text))
    console.print(grid)
    console.print(_curves_grid(tuning))
    if not all(curve.usable for curve in tuning.curves):
        console.print("* in its exact form only: shown to compare, not recommended", highlight=False)
    console.print(_trials_grid(tuning))
    for note in tuning.notes:
        console.print(f"[yellow]note:[/] {escape(note)}", soft_wrap=True)


CURVES_TITLE = "Miss ratio by rows of the cache, of each policy's exact form"


def form_of(trial: Trial) -> str:
    """How its misses are known; those of the first half of a trace, or of a sample, are below what a full run has, or above."""
    return "in full" if trial.full else "estimate, to compare with estimates only"


def ranked(tuning: Tuning) -> list[Trial]:
    """The simulations, each once: those in full before the estimates, the least cost first."""
    return sorted(
        set(tuning.trials),
        key=lambda trial: (not trial.full, float(tuning.prices.cost(trial.misses, trial.rows)), trial.rows, trial),
    )


def _curves_grid(tuning: Tuning) -> Grid:
    grid = Grid(title=CURVES_TITLE, title_justify="left")
    grid.add_column("policy")
    for rows in tuning.sizes:
        grid.add_column(f"{rows:,}", justify="right")
    for curve in tuning.curves:
        mark = "" if curve.usable else " *"
        grid.add_row(f"{escape(curve.policy)}{mark}", *(f"{ratio:.3f}" for ratio in curve.ratios))
    return grid


def _trials_grid(tuning: Tuning) -> Grid:
    grid = Grid(title="Simulations behind the choice", title_justify="left")
    for heading in ("policy", "rows", "misses", "cost in s", ""):
        grid.add_column(heading, justify="left" if heading in ("policy", "") else "right")
    for trial in ranked(tuning):
        cost = float(tuning.prices.cost(trial.misses, trial.rows))
        grid.add_row(escape(trial.policy), f"{trial.rows:,}", f"{trial.misses:,.0f}", f"{cost:,.4g}", form_of(trial))
    return grid
