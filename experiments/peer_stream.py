"""The stream that all ways to join get: micro-batches of keys of which a stated share has been seen before, as Parquet files.

A stream's keys are drawn from a few hot ones, which every cache holds once it is warm, and from keys that come once each and that
no cache can know. So the share of hits is the same for each cache and each policy, and need not settle.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from srj.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import numpy.typing as npt

    I64 = npt.NDArray[np.int64]

Phase = Literal["warm", "rate", "delay"]
FILES = 2  # of a micro-batch: one for each core, and so for each worker


@dataclass(frozen=True)
class Part:
    """One micro-batch.

    Attributes:
        phase: what it is for.
        keys: of its rows, in their order.
    """

    phase: Phase
    keys: I64


def parts_of(sizes: Sequence[tuple[Phase, int]], *, hits: float, hot: int, relation: int, seed: int) -> list[Part]:
    """The micro-batches; before them, one in which each worker sees all hot keys, where there are any.

    Flink's jobs get fewer and other phases, and shall join the same rows as far as they come. So the hot keys depend on nothing
    but `hot`, `relation` and `seed`, and keys that come once are taken from one row of all keys: for ``"rate"`` from its start,
    for ``"delay"`` from its end, and for ``"warm"`` before these.

    Args:
        sizes: phase and rows of each.
        hits: share of rows with a hot key.
        hot: how many hot keys.
        relation: rows of the table, with ids from 0.
        seed: of the choice.

    Raises:
        RequestError: the table has fewer rows than keys are needed.

    >>> first, second = parts_of([("rate", 4)], hits=0.5, hot=1, relation=100, seed=1)
    >>> first.keys[0] == first.keys[1], sum(second.keys == first.keys[0])
    (np.True_, np.int64(2))
    """
    hot = hot if hits else 0
    new = [round((1 - hits) * rows) for _, rows in sizes]
    if hot + sum(new) > relation:
        raise RequestError(f"expected a table of at least {hot + sum(new):,} rows for a stream of so many keys, got {relation:,}")
    ids = np.random.default_rng(seed).permutation(relation)
    known, unseen = ids[:hot], ids[hot:]
    ends = np.cumsum([sum(count for count, (of, _) in zip(new, sizes, strict=True) if of == phase) for phase in ("delay", "warm")])
    places = {"rate": 0, "delay": unseen.size - int(ends[0]), "warm": unseen.size - int(ends[1])}
    randoms = {phase: np.random.default_rng([seed, *phase.encode()]) for phase in places}
    parts = [Part("warm", np.concatenate([known] * FILES))] if hot else []
    for (phase, rows), count in zip(sizes, new, strict=True):
        fresh, random = unseen[places[phase] : places[phase] + count], randoms[phase]
        places[phase] += count
        keys = np.concatenate([fresh, random.choice(known, rows - count) if hot else fresh[:0]])
        parts.append(Part(phase, random.permutation(keys)))
    return parts


def write_part(folder: Path, part: Part) -> None:
    """As files of a new folder, each of which one core takes."""
    folder.mkdir(parents=True)
    for piece, keys in enumerate(np.array_split(part.keys, FILES)):
        pq.write_table(pa.table({"id": keys}), folder / f"{piece}.parquet")
