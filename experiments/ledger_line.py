"""A line of the ledger, which this version of srj may not have written, or nobody."""

from __future__ import annotations

import json
import math
from typing import Any

from srj.experiments.experiment import SCALES

_TEXTS = ("key", "experiment", "scale", "dialect", "state", "started", "error", "machine", "server", "code")
_KINDS: dict[str, type | tuple[type, ...]] = {
    **dict.fromkeys(_TEXTS, str),
    **dict.fromkeys(("cell", "figures", "versions"), dict),
    "seconds": (int, float),
}
_KNOWN: dict[str, tuple[str, ...]] = {
    "scale": SCALES,
    "state": ("finished", "failed", "timeout"),
    "dialect": ("", "postgresql", "mysql"),
}


def fields_of(line: bytes) -> dict[str, Any] | None:
    """A record's fields; None if it is no record. What says nothing where it is lacking is empty, and what is not known left out.

    >>> fields_of(b"{}") is None
    True
    """
    try:
        told = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(told, dict):
        return None
    empty: dict[str, Any] = dict.fromkeys(("key", "dialect", "started", "error", "machine", "server", "code"), "")
    empty |= {"seconds": 0.0, "figures": {}, "versions": {}}
    known: dict[str, Any] = {name: told.get(name, empty.get(name)) for name in _KINDS}
    if not all(isinstance(known[name], kind) for name, kind in _KINDS.items()):
        return None
    if not all(known[name] in those for name, those in _KNOWN.items()) or not 0 <= known["seconds"] < math.inf:
        return None
    return known if all(isinstance(version, str) for version in known["versions"].values()) else None
