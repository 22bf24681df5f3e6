"""What the out-of-order operator is told about the rows that pass through it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from srj.lookup.order import Order
    from srj.options import How


@dataclass(frozen=True, kw_only=True)
class Passage:
    """How rows go through a worker.

    Attributes:
        how: left, inner, semi or anti.
        columns: how many columns of the stream come first.
        keys: how many key columns follow; then the position, if the order is by a column's.
        order: how far rows may leave out of their order.
        punctuate: whether punctuation goes out with them.
        time: which of the stream's columns is the event time of which punctuation tells; None: none.
    """

    how: How
    columns: int
    keys: int
    order: Order
    punctuate: bool
    time: int | None
