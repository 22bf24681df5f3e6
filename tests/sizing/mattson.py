"""Mattson's list (1970): the stack itself, searched from the top; the oracle of all distances."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable


def mattson(keys: Iterable[Hashable]) -> list[int]:
    """Each reference's depth in the list of keys, the newest first; -1 for one that is not there."""
    stack: list[Hashable] = []
    known: set[Hashable] = set()
    found = []
    for key in keys:
        if key in known:
            depth = stack.index(key)
            # Only those above it move: a list that took it out and put it in front would move all, and be slower.
            stack[1 : depth + 1] = stack[:depth]
            stack[0] = key
        else:
            depth = -1
            known.add(key)
            stack.insert(0, key)
        found.append(depth)
    return found
