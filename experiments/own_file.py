"""Experiments in files of the user's own, of which nothing is taken for granted."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import math
import re
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from srj.errors import RequestError
from srj.experiments.experiment import SCALES, Experiment
from srj.experiments.masking import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from srj.experiments.experiment import Cell, Scale

_NAME = re.compile(r"\w[\w .-]*")  # it becomes a part of files' names


def from_file(path: Path) -> Experiment:
    """The experiment that a file assigns to ``EXPERIMENT``; what its own functions raise is told in one sentence.

    Raises:
        RequestError: the file, or what it assigns, is wrong.
    """
    found = getattr(_imported(path), "EXPERIMENT", None)
    if not isinstance(found, Experiment):
        raise RequestError(
            f"expected an Experiment assigned to EXPERIMENT in {str(path)!r}, found none; see srj.experiments.experiment"
        )
    for name in ("name", "title", "question", "claim", "claimed_by", "discussion", "needs"):
        if not isinstance(value := getattr(found, name), str):
            raise RequestError(f"expected a text as the experiment's {name} in {path.name!r}, got {value!r}; correct it")
    known = isinstance(found.servers, tuple) and all(one in ("postgresql", "mysql") for one in found.servers)
    if not known or not _are_seconds(found.timeouts):
        raise RequestError(
            f"expected a tuple of servers, of postgresql and mysql, and seconds for each scale in {path.name!r}, got "
            f"{found.servers!r} and {found.timeouts!r}; correct it"
        )
    if not _NAME.fullmatch(found.name):
        raise RequestError(
            f"expected a name of letters, digits, spaces, dots and hyphens in {path.name!r}, got {found.name!r}; correct it"
        )
    return replace(
        found,
        file=path.name,
        cells=lambda scale: _cells(found, scale, path),
        can_run=lambda cell: bool(_told(lambda: found.can_run(cell), "can_run", path)),
        label=lambda cell: _text(_told(lambda: found.label(cell), "label", path)),
        headline=lambda figures: _headline(found, figures),
    )


def _are_seconds(timeouts: Mapping[Any, Any]) -> bool:
    return all(isinstance(one := timeouts.get(scale), int | float) and 0 < one < math.inf for scale in SCALES)


def _imported(path: Path) -> object:
    # A name that no library has; by it dataclasses find their module.
    name = f"srj_own_{hashlib.sha256(str(path.resolve()).encode(errors='surrogateescape')).hexdigest()[:16]}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise RequestError(f"expected a Python file with an experiment, got {str(path)!r}, which is none; correct the path")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise RequestError(f"expected a file that Python can import, got {str(path)!r}: {_reason(error)}; correct it") from error
    return module


def _cells(experiment: Experiment, scale: Scale, path: Path) -> list[Cell]:
    cells: list[Cell] = _told(lambda: list(experiment.cells(scale)), "cells", path)
    for cell in cells:
        try:
            known = isinstance(cell, dict) and all(isinstance(key, str) for key in cell)
            json.dumps(cell, allow_nan=False, sort_keys=True)
        except (TypeError, ValueError, RecursionError):
            known = False
        if not known:
            raise RequestError(f"expected cells of {path.name!r} that are dicts as JSON knows them, got {cell!r}; correct it")
    return cells


def _headline(experiment: Experiment, figures: Any) -> str:
    # What was measured is kept whatever it looks like.
    try:
        return _text(experiment.headline(figures))
    except (Exception, SystemExit) as error:
        return f"{figures} (its headline fails: {_reason(error)})"


def _told(work: Callable[[], Any], name: str, path: Path) -> Any:
    try:
        return work()
    except (Exception, SystemExit) as error:
        raise RequestError(
            f"expected {name} of the experiment in {path.name!r} to work, got {_reason(error)}; correct it"
        ) from error


def _text(value: object) -> str:
    return " ".join(f"{printable(f'{value}')}".split())


def _reason(error: BaseException) -> str:
    """In one line."""
    try:
        return " ".join(f"{printable(f'{type(error).__name__}: {error}')}".split())
    except Exception:  # the error's own text fails
        return type(error).__name__
