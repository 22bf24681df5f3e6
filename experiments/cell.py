"""A process that runs one cell: asked in JSON on standard input, it answers in JSON on standard output."""

from __future__ import annotations

import contextlib
import json
import sys
from typing import Any

from srj.errors import SrjError
from srj.experiments.experiment import load


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Run the cell; its figures, or one sentence that says why there are none."""
    try:
        measured = load(request["experiment"]).run(request["cell"], request["url"])
    except SrjError as error:
        return {"error": f"{error}"}
    except Exception as error:  # a cell that fails is a result: the others go on
        return {"error": f"{type(error).__name__}: {error}"}
    if measured.output != measured.plain_join:
        return {"error": f"expected the rows of a plain join, {measured.plain_join}, got {measured.output}"}
    return {"figures": {**measured.figures, "output_rows": measured.output.rows, "checksum": f"{measured.output.hashes:016x}"}}


def main() -> None:
    """Answer one request."""
    request = json.load(sys.stdin)
    with contextlib.redirect_stdout(sys.stderr):  # nobody else shall write where the answer goes
        answered = answer(request)
    json.dump(answered, sys.stdout)


if __name__ == "__main__":
    main()
