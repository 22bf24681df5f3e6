"""What a trace is: keys in the order in which a stream asks for them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import numpy.typing as npt

    I64 = npt.NDArray[np.int64]

# Each block of a generated trace has a random generator of its own, so that the keys do not depend on how they are read.
BLOCK = 1 << 20


@dataclass(frozen=True)
class Trace:
    """Keys of a stream, as whole numbers.

    Attributes:
        name: in the registry.
        description: in one sentence, for people.
        source: where the keys come from, with its licence; ``made`` for those of a generator.
        length: references in all.
        relation: rows of the table that the keys are looked up in; keys are below it, but for those it lacks.
        blocks: makes the keys anew, in pieces of any length.
    """

    name: str
    description: str
    source: str
    length: int
    relation: int
    blocks: Callable[[], Iterable[I64]]

    def chunks(self, size: int = BLOCK) -> Iterator[I64]:
        """The keys in pieces of `size`, the last maybe shorter; at most a block and a piece are in memory.

        >>> trace = Trace("t", "", "made", 5, 9, lambda: [np.array([1, 2, 3]), np.array([4, 5])])
        >>> [chunk.tolist() for chunk in trace.chunks(2)]
        [[1, 2], [3, 4], [5]]
        """
        rest = np.zeros(0, np.int64)
        for block in self.blocks():
            rest = np.concatenate([rest, block]) if len(rest) else block
            whole = len(rest) - len(rest) % size
            for begin in range(0, whole, size):
                yield rest[begin : begin + size]
            rest = rest[whole:]
        if len(rest):
            yield rest

    def keys(self) -> I64:
        """All keys at once."""
        blocks = list(self.blocks())
        return np.concatenate(blocks) if blocks else np.zeros(0, np.int64)

    @cached_property
    def distinct(self) -> int:
        """Distinct keys that occur."""
        found = np.zeros(0, np.int64)
        for block in self.blocks():
            found = np.union1d(found, block)
        return len(found)


def blocks_of(length: int, seed: int, make: Callable[[np.random.Generator, int, int], I64]) -> Iterator[I64]:
    """Blocks of a trace whose keys depend on their position and on chance alone.

    Args:
        length: of the trace.
        seed: the same gives the same keys.
        make: given a random generator, the position of a block's first key and its length, the block.
    """
    for number, begin in enumerate(range(0, length, BLOCK)):
        yield make(np.random.default_rng([seed, number]), begin, min(BLOCK, length - begin))
