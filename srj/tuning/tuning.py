"""The tuner: curves of all policies, the pick, and what follows from it for the options of `srj_enrich`."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np

from srj.cache_policies import names
from srj.options import Batch, Cache
from srj.quantities import parse_duration
from srj.sizing.split import SLACK
from srj.tuning.pick import pick
from srj.tuning.prices import Prices
from srj.tuning.simulating import MiniSimulation, lru_curve, usable

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from srj.sizing import MissRatioCurve
    from srj.tuning.keys import KeySequence
    from srj.tuning.simulating import Trial

_SIZES = 8  # of the curves
_RANGE = 500  # times that the largest size is the smallest
_DRAWN_KEYS = 16_384  # of a sample for curves that are only looked at; the pick's simulations sample later and keep more
_BATCH_RANGE = 4  # times less and more than measured that srj may ask


@dataclass(frozen=True)
class PolicyCurve:
    """A policy's misses over the size.

    Attributes:
        policy: its name.
        usable: whether ``cache=`` takes it by name.
        ratios: misses as a share of all references, at the sizes of the `Tuning`.
    """

    policy: str
    usable: bool
    ratios: tuple[float, ...]


@dataclass(frozen=True)
class Recommendation:
    """What to set.

    Attributes:
        policy, rows, nbytes: of the cache; the bytes by the prices' bytes of a row.
        misses, miss_ratio: in a full simulation of the trace, from an empty cache.
        cost: seconds of the database's work for the trace, and what the memory is worth.
        reason: why this policy and this size.
        ttl, ttl_reason: how long a row may be served, and why so long.
        batch, batch_reason: keys in a lookup, as ``batch=`` takes them, and why.
    """

    policy: str
    rows: int
    nbytes: int
    misses: int
    miss_ratio: float
    cost: float
    reason: str
    ttl: str
    ttl_reason: str
    batch: str | tuple[int, int]
    batch_reason: str


@dataclass(frozen=True)
class Tuning:
    """What `srj tune` and `srj.profile` found.

    Attributes:
        trace: what was read, for people.
        references, distinct, nulls: rows with a key, keys, and rows without, which were left out.
        sizes: rows of a cache, at which the curves are.
        curves: of every policy, LRU first; LRU's alone where the others were not wanted.
        trials: the simulations behind the pick.
        prices: what was weighed.
        best: the recommendation.
        notes: what to know of the trace, one sentence each.
    """

    trace: str
    references: int
    distinct: int
    nulls: int
    sizes: tuple[int, ...]
    curves: tuple[PolicyCurve, ...]
    trials: tuple[Trial, ...]
    prices: Prices
    best: Recommendation
    notes: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """The same as plain data, for `json.dumps`."""
        from srj.tuning.report import as_json  # noqa: PLC0415  only what is asked for is loaded

        return as_json(self)

    def toml(self) -> str:
        """The file for ``config=``, with the reasons as comments."""
        from srj.tuning.report import toml  # noqa: PLC0415

        return toml(self)

    def write(self, path: str | Path) -> None:
        """Write `toml` to a file.

        Raises:
            RequestError: it can't be written.
        """
        from srj.tuning.report import write  # noqa: PLC0415

        write(path, self.toml().encode())

    def plot(self, path: str | Path) -> None:
        """Write the curves to a file that ends with .png or .svg.

        Raises:
            RequestError: matplotlib is not installed, the file ends otherwise, or it can't be written.
        """
        from srj.tuning.picture import drawn, form_of  # noqa: PLC0415
        from srj.tuning.report import write  # noqa: PLC0415

        write(path, drawn(self, form_of(path)))

    def html(self) -> str:
        """One page with all of it, pictures inside.

        Raises:
            RequestError: matplotlib is not installed.
        """
        from srj.tuning.page import page  # noqa: PLC0415

        return page(self)


def tune(
    keys: KeySequence,
    prices: Prices | None = None,
    *,
    update_period: str | float | None = None,
    curves: bool = True,
    trace: str = "the trace",
    notes: tuple[str, ...] = (),
    progress: Callable[[str, float], None] = lambda _step, _share: None,
) -> Tuning:
    """Find the policy and the size for a trace.

    Args:
        keys: the trace.
        prices: limit and costs; None: no limit, and memory costs nothing.
        update_period: how often the table's data is renewed (``"1 h"``), which becomes the time to live; None: unknown.
        curves: make the curves of all policies too, which takes longer than the pick.
        trace: what it is, for people.
        notes: what to know of it.
        progress: called with what is done next, and the share that is done.

    Raises:
        RequestError: an update period that is none.

    Example:
        >>> from srj.tuning import KeySequence
        >>> found = tune(KeySequence.of(np.tile(np.arange(5000), 5)), curves=False)
        >>> found.best.policy, found.best.rows, found.best.misses
        ('lru', 5750, 5009)
    """
    prices = prices or Prices()
    ttl, ttl_reason = _ttl(update_period)
    progress("LRU's miss-ratio curve", 0.0)
    curve = lru_curve(keys)
    end = 0.3 if curves else 1.0
    picked = pick(keys, curve, prices, told=lambda step: progress(step, end / 2))
    sizes = _sizes(keys.distinct, picked.best.rows)
    mini = MiniSimulation(keys, _DRAWN_KEYS, _DRAWN_KEYS)
    made = _curves(keys, curve, mini, sizes, curves, lambda step, share: progress(step, end + (1 - end) * share))
    progress("done", 1.0)
    best = picked.best
    batch, batch_reason = _batch(prices)
    recommended = Recommendation(
        policy=best.policy,
        rows=best.rows,
        nbytes=round(prices.bytes_of(best.rows)),
        misses=round(best.misses),
        miss_ratio=best.misses / keys.references,
        cost=float(prices.cost(best.misses, best.rows)),
        reason=picked.reason,
        ttl=ttl,
        ttl_reason=ttl_reason,
        batch=batch,
        batch_reason=batch_reason,
    )
    return Tuning(trace, keys.references, keys.distinct, keys.nulls, sizes, made, picked.trials, prices, recommended, notes)


def _sizes(distinct: int, best: int) -> tuple[int, ...]:
    """Of the curves; the recommended one among them, to compare with."""
    spread = np.geomspace(max(distinct / _RANGE, 1), np.ceil(SLACK * distinct), _SIZES).round().astype(int)
    return tuple(np.union1d(spread, best).tolist())


def _curves(
    keys: KeySequence,
    lru: MissRatioCurve,
    mini: MiniSimulation,
    sizes: tuple[int, ...],
    every: bool,
    progress: Callable[[str, float], None],
) -> tuple[PolicyCurve, ...]:
    known, others = set(usable()), [name for name in names() if name != "lru"] if every else []
    made = [PolicyCurve("lru", usable=True, ratios=tuple(lru.at(sizes).tolist()))]
    for number, policy in enumerate(others):
        progress(f"curve of {policy}", number / len(others))
        ratios = tuple(_ratio(keys, mini, policy, rows) for rows in sizes)
        made.append(PolicyCurve(policy, policy in known, ratios))
    return tuple(made)


def _ratio(keys: KeySequence, mini: MiniSimulation, policy: str, rows: int) -> float:
    if rows >= keys.distinct:  # each key's first reference, whatever the policy
        return keys.distinct / keys.references
    return mini.run(policy, rows).misses / keys.references


def _ttl(update_period: str | float | None) -> tuple[str, str]:
    default = str(Cache().ttl)
    if update_period is None:
        return default, "the default: say with --update-period how often the table's data is renewed to have it fitted"
    seconds = parse_duration("update_period", update_period)
    if seconds is None:
        return "forever", "the table's data is never renewed, so no row grows old"
    text = f"{Decimal(repr(seconds)):f}"  # what `parse_duration` reads has no exponent
    return (
        f"{text.removesuffix('.0')} s",
        f"the data is renewed every {update_period}, so a row that is served is at most one renewal behind",
    )


def _batch(prices: Prices) -> tuple[str | tuple[int, int], str]:
    if prices.batch_size is None:
        return "auto", "srj finds it by the lookups' costs while it runs; with --url the bounds are measured"
    least, most = Batch().sizes
    bounds = (max(prices.batch_size // _BATCH_RANGE, least), min(prices.batch_size * _BATCH_RANGE, most))
    return bounds, f"about the {prices.batch_size:,} keys at which the measured lookups are cheapest; srj chooses within the bounds"
