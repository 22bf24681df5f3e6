"""How far rows may leave out of their order: the constraints, and how many rows may leave under each now.

Rows leave a reorder buffer as instructions retire from a processor's: those that are ready may overtake those that wait for the
database, as far as the constraint lets them; those that wait leave in the order of their arrival.

Source: Derakhshan, chapter 4, algorithm 1 and definition 8 (maximum scrambling distance). The thesis predicts the distance from
the cost of the waiting batches; here the decision is exact, and the prediction is a metric.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

import numpy as np

from srj.errors import RequestError
from srj.quantities import whole_number

if TYPE_CHECKING:
    import numpy.typing as npt

    I64 = npt.NDArray[np.int64]

_MOST = 10**12


@dataclass(frozen=True)
class Disorder:
    """At most so much disorder, for a consumer that bears some: the maximum scrambling distance.

    For two rows that leave in the wrong order, the scrambling distance is the number of rows that leave after the first of them up
    to and including the second. No two rows exceed `max`, per partition and micro-batch. Rows are those of the stream: a row
    with several matches counts once.

    Args:
        max: the distance, in rows; 0 is the order of the input.

    Raises:
        RequestError: `max` is no whole number, or negative.

    Example:
        >>> Disorder(max=1000)
        Disorder(max=1000)
    """

    max: int

    def __post_init__(self) -> None:
        whole_number("max disorder", self.max, 0, _MOST)


@dataclass(frozen=True, init=False)
class Windows:
    """No row crosses a start or an end of these count windows, so that each window holds the same rows as in the input's order.

    For windows that report when they close; within one, rows come in any order. Window i, from 0, of (size, slide) holds the rows
    from i * slide up to, not including, i * slide + size. Positions count the stream's rows from 0 in each partition and
    micro-batch, or are a column's. (The thesis allows a disorder of the smallest slide, which changes windows whose size is no
    multiple of it.) Where slides are larger than sizes, as in (5, 10), the rows between two windows mix with each other only.

    Args:
        windows: a size for tumbling windows, or (size, slide), each.
        position: a column of the stream with each row's position, rising within a partition: a Kafka offset.

    Raises:
        RequestError: no window, one of no rows, or two bare sizes, which may be meant as (size, slide).

    Example:
        >>> Windows(10, (100, 20)).windows
        ((10, 10), (100, 20))
    """

    windows: tuple[tuple[int, int], ...]
    position: str | None

    def __init__(self, *windows: int | tuple[int, int], position: str | None = None) -> None:
        if not windows:
            raise RequestError("expected at least one window, got none; write Windows(10), or Windows((size, slide))")
        if len(windows) == 2 and all(isinstance(size, int) for size in windows):
            one, other = windows
            raise RequestError(
                f"expected windows that can be read in one way, got Windows({one}, {other}); write Windows(({one}, {other})) for a "
                f"size of {one} and a slide of {other}, or Windows(({one}, {one}), ({other}, {other})) for two tumbling ones"
            )
        object.__setattr__(self, "windows", tuple(_window(window) for window in windows))
        if position is not None and not isinstance(position, str):
            raise RequestError(f"expected position as a column's name, got {position!r}; write position='offset'")
        object.__setattr__(self, "position", position)

    def __repr__(self) -> str:
        position = "" if self.position is None else f", position={self.position!r}"
        return f"Windows({', '.join(map(str, self.windows))}{position})"

    def sections(self, positions: I64) -> I64:
        """A number for each position that changes with every start and end of a window: rows of one may be mixed.

        >>> Windows((5, 2)).sections(np.arange(8)).tolist()
        [1, 1, 2, 2, 3, 4, 5, 6]
        """
        sections = np.zeros(len(positions), np.int64)
        for size, slide in self.windows:
            sections += positions // slide + 1
            if size % slide:
                sections += np.maximum((positions - size) // slide + 1, 0)
        return sections


def _window(window: int | tuple[int, int]) -> tuple[int, int]:
    pair = window if isinstance(window, (tuple, list)) else (window, window)
    if len(pair) != 2:
        raise RequestError(f"expected a window as a size or as (size, slide), got {window!r}; write Windows((100, 20))")
    return whole_number("window size", pair[0], 1, _MOST), whole_number("window slide", pair[1], 1, _MOST)


Order = Disorder | Windows | Literal["input", "any"]


def rule_of(order: Order) -> Rule | None:
    """What decides how many rows leave; None: nothing holds them back."""
    if isinstance(order, Disorder):
        return Bounded(order.max)
    if isinstance(order, Windows):
        return Sectioned()
    return Bounded(0) if order == "input" else None


class Rule(Protocol):
    """What decides how many rows leave."""

    def may_leave(self, ready: npt.NDArray[np.bool_], first: I64, sections: I64, left: int) -> int:
        """How many of the ready rows, first come first, may leave now.

        Args:
            ready: for each pending row, in the order of arrival, whether its matches are known.
            first: the number, from 1, of the first later row that left before it; 0: none did.
            sections: see `Windows.sections`.
            left: how many rows have left.
        """
        ...

    def is_decided(self, ahead: int, *, crossed: bool) -> bool:
        """Whether younger rows can't leave now in any case.

        Args:
            ahead: how many ready rows are known beyond the oldest that waits.
            crossed: one of them is of another section than that.
        """
        ...


@dataclass(frozen=True)
class Bounded:
    """`Disorder`'s rule.

    A pending row t leaves no sooner than all those that wait before it: as the (left + h + rank)-th if h ready rows go first. So h
    may go if that is at most `max` beyond the first row that overtook t, for every t that they overtake.
    """

    most: int

    def may_leave(self, ready: npt.NDArray[np.bool_], first: I64, sections: I64, left: int) -> int:  # noqa: ARG002  the Protocol's
        """See `Rule.may_leave`."""
        waiting = np.flatnonzero(~ready)
        most = len(ready) - len(waiting)
        if not most or not len(waiting):
            return most
        rank = np.arange(1, len(waiting) + 1)
        going = waiting - rank + 1  # the ready rows before each that waits, which overtake nobody when they go
        # Overtaken for the first time by the next ready row that goes after it.
        overtaken = np.where(first[waiting] > 0, first[waiting] - left, going + 1)
        return min(most, int(np.maximum(going, overtaken + self.most - rank).min()))

    def is_decided(self, ahead: int, *, crossed: bool) -> bool:  # noqa: ARG002  the Protocol's
        """See `Rule.is_decided`: the oldest row that waits lets no more than `most` go at once."""
        return ahead >= self.most


@dataclass(frozen=True)
class Sectioned:
    """`Windows`' rule: a ready row overtakes others only within their section."""

    def may_leave(self, ready: npt.NDArray[np.bool_], first: I64, sections: I64, left: int) -> int:  # noqa: ARG002  the Protocol's
        """See `Rule.may_leave`."""
        if not len(ready):
            return 0
        oldest = len(ready) if ready.all() else int(ready.argmin())
        if oldest == len(ready):
            return oldest
        same = sections[oldest:] == sections[oldest]
        end = len(ready) if same.all() else oldest + int(same.argmin())
        return int(np.count_nonzero(ready[:end]))

    def is_decided(self, ahead: int, *, crossed: bool) -> bool:  # noqa: ARG002  the Protocol's
        """See `Rule.is_decided`."""
        return crossed


def scrambling_distances(order: I64) -> I64:
    """For each row in the order of leaving, how far it left behind the first later-arrived row that left before it; 0: none did.

    Their maximum is the maximum scrambling distance of definition 8.

    Args:
        order: each row's arrival number, in the order of leaving.

    >>> scrambling_distances(np.array([1, 2, 0, 3])).tolist()
    [0, 0, 2, 0]
    """
    # The first row that left with a higher number: the running maximum exceeds a row's number from there on.
    highest = np.maximum.accumulate(order) if len(order) else order
    overtaker = np.searchsorted(highest, order, "right")
    distances: I64 = np.maximum(np.arange(len(order)) - overtaker, 0)
    return distances
