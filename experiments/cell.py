"""A process that runs one cell: asked by a line of JSON on standard input, it answers in JSON on standard output.

It ends with who asked: when standard input closes, it is killed, with all that it started.
"""

from __future__ import annotations

import json
import os
import signal
import threading
from typing import Any

from srj.errors import SrjError
from srj.experiments.experiment import Measurement, load
from srj.experiments.processes import adopt_orphans, kill_descendants


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Run the cell; its figures, or one sentence that says why there are none."""
    try:
        return _measured(request)
    except SrjError as error:
        return {"error": f"{error}"}
    except Exception as error:  # a cell that fails is a result: the others go on
        return {"error": f"{type(error).__name__}: {error}"}


def _measured(request: dict[str, Any]) -> dict[str, Any]:
    measured = load(request["experiment"]).run(request["cell"], request["url"])
    if not isinstance(measured, Measurement):
        return {"error": f"expected a Measurement, got {type(measured).__name__}"}
    if measured.output != measured.plain_join:
        return {"error": f"expected the rows of a plain join, {measured.plain_join}, got {measured.output}"}
    try:
        json.dumps(figures := dict(measured.figures), allow_nan=False)
        checked = {"output_rows": int(measured.output.rows), "checksum": f"{int(measured.output.hashes):016x}"}
    except (TypeError, ValueError, RecursionError) as error:
        return {"error": f"expected figures as JSON knows them, got: {error}"}
    return {"figures": {**figures, **checked}}


def main() -> None:
    """Answer one request."""
    # Nobody else shall write where the answer goes, nor read where the request came from.
    asked, answered = os.dup(0), os.dup(1)
    os.dup2(2, 1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    adopt_orphans()
    own = os.getpid()
    with os.fdopen(asked, "rb", closefd=False) as file:
        request = json.loads(file.readline())
    threading.Thread(target=_end_with, args=(asked,), daemon=True).start()
    written = json.dumps(answer(request)).encode()
    if os.getpid() != own:  # the cell forked, and this is the child
        os._exit(0)
    with os.fdopen(answered, "wb") as file:
        file.write(written)


def _end_with(asked: int) -> None:
    while os.read(asked, 1024):
        pass
    kill_descendants(os.getpid())
    if os.getpgrp() == os.getpid():  # else others are in the group who have nothing to do with the cell
        os.killpg(0, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()
