"""A cell's process: asked, given its time, and ended with all that it started."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from typing import IO, TYPE_CHECKING, Any

from srj.experiments.processes import Adopted, adopting

if TYPE_CHECKING:
    from srj.experiments.ledger import State

_LOOK_EVERY = 0.05  # seconds, seldom enough not to be measured
_GRACE = 3.0  # seconds that those whom a cell leaves behind have to tidy up
_KEPT = 20_000  # bytes of the beginning and of the end of what a cell wrote
_MOST = 100_000_000  # bytes of an answer


def in_process(request: dict[str, Any], limit: float) -> tuple[State, dict[str, Any], str]:
    """Run a cell: how it ended, its figures, and else why there are none.

    Args:
        request: what `srj.experiments.cell` is asked.
        limit: seconds.
    """
    # Files, not pipes: whoever outlives the cell may hold them as long as he likes. And a folder for what the cell leaves behind
    # where it is ended before it can tidy up.
    with (
        tempfile.TemporaryFile() as output,
        tempfile.TemporaryFile() as errors,
        tempfile.TemporaryDirectory(prefix="srj-cell-", ignore_cleanup_errors=True) as folder,
        adopting() as adopted,
    ):
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "srj.experiments.cell"],  # -P: no file of the user's folder stands for a library
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=errors,
            env=os.environ | {"TMPDIR": folder},
            start_new_session=True,  # so that what it starts can be ended with it
        )
        in_time = False
        try:
            _ask(process, request)
            in_time = _wait(process, limit)
        finally:
            _end(process, adopted, at_once=not in_time)
        if not in_time:
            return "timeout", {}, f"expected an end within {limit:g} s, got none; give more time with --timeout"
        return _read(output, errors, process.returncode)


def _ask(process: subprocess.Popen[bytes], request: dict[str, Any]) -> None:
    # By standard input: a command line, where others could read it, shows no login. It stays open: the cell ends when it closes.
    with suppress(BrokenPipeError):  # who has ended says why
        if process.stdin is not None:
            process.stdin.write(json.dumps(request).encode() + b"\n")
            process.stdin.flush()


def _wait(process: subprocess.Popen[bytes], limit: float) -> bool:
    """Whether it ended in time. It is left as what has ended and was not asked how: its number is not yet another's."""
    until = time.monotonic() + limit
    while os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is None:
        if time.monotonic() >= until:
            return False
        time.sleep(_LOOK_EVERY)
    return True


def _end(process: subprocess.Popen[bytes], adopted: Adopted, *, at_once: bool) -> None:
    # Who can be waited for may tidy up, as Spark does.
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGTERM if adopted.able and not at_once else signal.SIGKILL)
    if process.stdin is not None:
        with suppress(OSError):
            process.stdin.close()
    process.wait()
    if adopted.able:
        adopted.end(0 if at_once else _GRACE)


def _read(output: IO[bytes], errors: IO[bytes], code: int) -> tuple[State, dict[str, Any], str]:
    output.seek(0)
    try:
        answered = json.loads(output.read(_MOST))
    except (ValueError, RecursionError):
        answered = None
    if isinstance(answered, dict) and "error" in answered:
        return "failed", {}, f"{answered['error']}"
    if isinstance(answered, dict) and isinstance(answered.get("figures"), dict):
        return "finished", answered["figures"], ""
    return "failed", {}, f"expected figures, but the process ended with {code}: {_ends(errors)}"


def _ends(file: IO[bytes]) -> str:
    """How it begins and ends."""
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    if size <= 2 * _KEPT:
        return file.read().decode(errors="replace").strip()
    begin = file.read(_KEPT)
    file.seek(-_KEPT, os.SEEK_END)
    return f"{begin.decode(errors='replace').strip()} … {file.read().decode(errors='replace').strip()}"
