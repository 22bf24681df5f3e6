"""The thesis's metric: the highest constant input rate that a join carries without its queue overflowing.

A queue that grows overflows sooner or later, whatever its size, so a trial looks for growth: it begins with rows that wait, enough
to keep lookups full, and the rate is carried if hardly more wait at its end. It lasts so long that a rate a little too high lets
more rows wait than come and go with a lookup.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from srj.experiments.source import Trial

if TYPE_CHECKING:
    from collections.abc import Callable

_STEP = 4.0  # from rate to rate until one is carried and the next is not
_FIRST = 1000.0  # rows a second, at least, from where it goes up or down
_COARSE = 0.5  # share of the rate by which those steps need to see growth
_SPAN = (0.1, 1e8)  # rates that are tried


@dataclass(frozen=True)
class Precision:
    """How closely a rate is found.

    Attributes:
        share: of the rate, by which the one that is found may be off.
        least_seconds, most_seconds: that a trial lasts.
        tries: how often a rate may fail before it counts as too high.
    """

    share: float
    least_seconds: float
    most_seconds: float
    tries: int = 1


@dataclass(frozen=True)
class Found:
    """What the search ended with.

    Attributes:
        rate: rows a second, the highest that was carried.
        above: the lowest that was not.
        trials: rates with whether they were carried, in their order.
    """

    rate: float
    above: float
    trials: list[tuple[float, bool]]


def highest_rate(carries: Callable[[Trial], bool], grain: Callable[[float], float], precision: Precision) -> Found:
    """Raise the rate in large steps until one is not carried, then close in.

    Args:
        carries: runs a trial.
        grain: by the rate, rows that come and go together: those of the lookups that are under way.
        precision: how close.

    Raises:
        ArithmeticError: every rate, or none, is carried.
    """
    tried: list[tuple[float, bool]] = []

    def is_carried(rate: float, share: float) -> bool:
        for _ in range(precision.tries):
            tried.append((rate, carries(trial_of(rate, grain(rate), share, precision))))
            if tried[-1][1]:
                return True
        return False

    low, high = _bracket(lambda rate: is_carried(rate, _COARSE), max(_FIRST, grain(0.0) / precision.least_seconds))
    # A large step is carried though it is too high by as much as half of what it looks for; a rate is found by close looks alone.
    low *= 1 - _COARSE / 2
    while not is_carried(low, precision.share):
        low, high = low / math.sqrt(_STEP), low
        if low < _SPAN[0]:
            raise ArithmeticError(f"expected a rate that is carried, but {low:g} rows a second are not")
    while high / low > 1 + precision.share:
        middle = math.sqrt(low * high)
        if is_carried(middle, precision.share):
            low = middle
        else:
            high = middle
    return Found(low, high, tried)


def _bracket(is_carried: Callable[[float], bool], rate: float) -> tuple[float, float]:
    """A rate that is carried, and one a step above that is not."""
    step = _STEP if is_carried(rate) else 1 / _STEP
    while _SPAN[0] < rate < _SPAN[1]:
        rate *= step
        if is_carried(rate) != (step > 1):
            return (rate / step, rate) if step > 1 else (rate, rate / step)
    raise ArithmeticError(
        f"expected a rate at which the join can no longer follow, but at {rate:g} rows a second it is as at first"
    )


def trial_of(rate: float, grain: float, share: float, precision: Precision) -> Trial:
    """So long that a rate too high by `share` shows, within the bounds."""
    # At high rates rows come in pieces of a fiftieth of a second, which are a grain too.
    grain = max(grain, rate / 50)
    seconds = min(max(2 * grain / (share * rate), precision.least_seconds), precision.most_seconds)
    return Trial(rate, seconds, waiting=math.ceil(2 * grain), growth=math.ceil(max(share * rate * seconds / 2, grain)))
