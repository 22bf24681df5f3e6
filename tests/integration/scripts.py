"""Runs a function of `tests.integration.programs` in a process of its own: for Sparks of another kind than the tests' own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT = Path(__file__).parents[2]


def run(
    name: str,
    arguments: Mapping[str, Any],
    folder: Path,
    *,
    environment: Mapping[str, str] | None = None,
    python: str = sys.executable,
    seconds: float = 280.0,
) -> tuple[Any, str]:
    """Call a program with these arguments.

    Args:
        name: the function's name in `tests.integration.programs`.
        arguments: its keyword arguments, fit for JSON.
        folder: where it runs, so that what Spark leaves behind is there.
        environment: variables to set beside those of this process.
        python: the interpreter.
        seconds: how long it may take.

    Returns:
        What it returned, and all that it printed.
    """
    result = folder / f"{name}.json"
    command, variables = _command(name, arguments, folder, environment or {}, python)
    done = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, timeout=seconds, check=False)
    printed = done.stdout + done.stderr
    if not result.exists():
        raise AssertionError(f"expected {name} to end well, got exit code {done.returncode}: {printed[-6000:]}")
    return json.loads(result.read_text()), printed


def start(name: str, arguments: Mapping[str, Any], folder: Path) -> subprocess.Popen[bytes]:
    """Begin a program with these arguments, and do not wait for it.

    Args:
        name, arguments, folder: as for `run`.
    """
    command, variables = _command(name, arguments, folder, {}, sys.executable)
    return subprocess.Popen(command, cwd=folder, env=variables)


def _command(
    name: str, arguments: Mapping[str, Any], folder: Path, environment: Mapping[str, str], python: str
) -> tuple[list[str], dict[str, str]]:
    variables = os.environ | {"PYSPARK_PYTHON": python, "TZ": "UTC", "SPARK_LOCAL_IP": "127.0.0.1"} | dict(environment)
    program = str(ROOT / "tests" / "integration" / "programs.py")
    return [python, program, name, json.dumps(dict(arguments)), str(folder / f"{name}.json")], variables
