"""Traces from generators: each the same for the same seed, block by block, with no loop over keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from srj.errors import RequestError
from srj.experiments.traces.trace import BLOCK, Trace, blocks_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from srj.experiments.traces.trace import I64

_MADE = "made"


def zipf_keys(rng: np.random.Generator, count: int, distinct: int, skew: float) -> I64:
    """Independent ranks below `distinct`, the i-th (from 0) as likely as ``1 / (i + 1) ** skew``; 0 is uniform.

    >>> np.bincount(zipf_keys(np.random.default_rng(1), 10_000, 3, 1.0)) / 10_000  # 6/11, 3/11, 2/11
    array([0.5401, 0.2763, 0.1836])
    """
    return _drawn(rng, count, _cumulative(distinct, skew))


def zipf(*, length: int = 1_000_000, distinct: int = 100_000, relation: int = 500_000, skew: float = 1.0, seed: int = 0) -> Trace:
    """Independent references by Zipf's law, the frequent keys scattered over the relation (the thesis's synthetic stream).

    Args:
        length: references.
        distinct: keys that can occur; in a short stream not all do.
        relation: rows of the table, of which these are a random selection.
        skew: the law's exponent, 0 for uniform.
        seed: of chance.
    """
    _check_sizes(length, distinct, relation)

    def blocks() -> Iterator[I64]:
        places, cumulative = _scattered(seed, distinct, relation), _cumulative(distinct, skew)
        return blocks_of(length, seed, lambda rng, _, count: places[_drawn(rng, count, cumulative)])

    text = f"Zipf {skew:g} over {distinct:,} of {relation:,} keys"
    return Trace("zipf", text, _MADE, length, relation, blocks)


def hot_spot(
    *,
    length: int = 1_000_000,
    relation: int = 100_000,
    hot_keys: float = 0.2,
    hot_references: float = 0.8,
    seed: int = 0,
) -> Trace:
    """A share of the keys gets a larger share of the references, each part uniform."""
    hot = round(hot_keys * relation)
    _check_sizes(length, hot, relation)

    def blocks() -> Iterator[I64]:
        places = _scattered(seed, relation, relation)

        def make(rng: np.random.Generator, _: int, count: int) -> I64:
            is_hot = rng.random(count) < hot_references
            return places[np.where(is_hot, rng.integers(0, hot, count), rng.integers(hot, max(relation, hot + 1), count))]

        return blocks_of(length, seed, make)

    text = f"{hot_references:.0%} of the references to {hot_keys:.0%} of {relation:,} keys"
    return Trace("hot spot", text, _MADE, length, relation, blocks)


def latest(*, length: int = 1_000_000, relation: int = 100_000, skew: float = 1.0, seed: int = 0) -> Trace:
    """New keys are the most frequent: the newest key moves on through the relation, and ages are drawn by Zipf's law."""
    _check_sizes(length, relation, relation)

    def blocks() -> Iterator[I64]:
        cumulative = _cumulative(relation, skew)

        def make(rng: np.random.Generator, begin: int, count: int) -> I64:
            newest = (begin + np.arange(count)) * relation // length
            # Older than the relation is long ago: such a key counts from its other end.
            return (newest - _drawn(rng, count, cumulative)) % relation

        return blocks_of(length, seed, make)

    return Trace(
        "latest", f"the newest of {relation:,} keys the most frequent, Zipf {skew:g} by age", _MADE, length, relation, blocks
    )


def loop(*, length: int = 1_000_000, relation: int = 100_000, distinct: int = 50_000) -> Trace:
    """A scan over the same keys again and again: worst for LRU in a cache that is a little smaller."""
    _check_sizes(length, distinct, relation)

    def blocks() -> Iterator[I64]:
        return blocks_of(length, 0, lambda _, begin, count: np.arange(begin, begin + count) % distinct)

    return Trace("loop", f"keys 0 to {distinct - 1:,} again and again", _MADE, length, relation, blocks)


def moving_interval(
    *, length: int = 2_000_000, relation: int = 500_000, intervals: int = 40, share: float = 0.01, seed: int = 0
) -> Trace:
    """The stream is cut into intervals, each uniform over a share of the relation of its own (the thesis's figure 5.4)."""
    width = round(share * relation)
    _check_sizes(length, width * intervals, relation)

    def blocks() -> Iterator[I64]:
        def make(rng: np.random.Generator, begin: int, count: int) -> I64:
            number = (begin + np.arange(count)) * intervals // length
            return number * width + rng.integers(0, width, count)

        return blocks_of(length, seed, make)

    text = f"{intervals} intervals, each uniform over {share:.1%} of {relation:,} keys of its own"
    return Trace("moving interval", text, _MADE, length, relation, blocks)


def shifting_zipf(
    *,
    length: int = 1_000_000,
    distinct: int = 50_000,
    relation: int = 200_000,
    phases: int = 10,
    skew: float = 1.0,
    seed: int = 0,
) -> Trace:
    """Zipf's law over keys that change: with each phase the frequent ones move on by a part of the relation."""
    _check_sizes(length, distinct, relation)

    def blocks() -> Iterator[I64]:
        places, cumulative = _scattered(seed, distinct, distinct), _cumulative(distinct, skew)
        step = (relation - distinct) // max(phases - 1, 1)

        def make(rng: np.random.Generator, begin: int, count: int) -> I64:
            phase = (begin + np.arange(count)) * phases // length
            # Another order of frequency in each phase: a rank is turned round by the phase before it becomes a place.
            return np.asarray(phase * step + places[(_drawn(rng, count, cumulative) + phase * (distinct // phases)) % distinct])

        return blocks_of(length, seed, make)

    text = f"Zipf {skew:g} over {distinct:,} keys that move on {phases - 1} times through {relation:,}"
    return Trace("shifting zipf", text, _MADE, length, relation, blocks)


def random_walk(*, length: int = 1_000_000, relation: int = 100_000, step: float = 10.0, seed: int = 0) -> Trace:
    """Each key is the one before plus a normal step; at the relation's ends the walk goes on at the other."""
    _check_sizes(length, 1, relation)

    def blocks() -> Iterator[I64]:
        position = relation / 2
        for block in _noise(length, step, seed):
            path = position + np.cumsum(block)
            position = path[-1] % relation
            yield np.rint(path).astype(np.int64) % relation

    return Trace("random walk", f"steps of {step:g} on average over {relation:,} keys", _MADE, length, relation, blocks)


def autoregressive(
    *, length: int = 1_000_000, relation: int = 100_000, phi: float = 0.72, deviation: float = 0.1, seed: int = 0
) -> Trace:
    """AR(1) about the middle of the relation: ``x = phi * previous + noise``.

    Args:
        length: references.
        relation: rows of the table.
        phi: how much of the distance from the middle stays, between -1 and 1.
        deviation: of the keys in the long run, as a share of the relation; what would fall outside counts from the other end.
        seed: of chance.
    """
    _check_sizes(length, 1, relation)
    if not -1 < phi < 1:
        raise RequestError(f"expected phi between -1 and 1, got {phi}; 1 is the random walk")

    def blocks() -> Iterator[I64]:
        spread = deviation * relation
        value = np.random.default_rng([seed, 1 << 32]).normal(0, spread)
        for block in _noise(length, spread * (1 - phi * phi) ** 0.5, seed):
            path = _filtered(block, phi, value)
            value = path[-1]
            yield np.rint(relation / 2 + path).astype(np.int64) % relation

    text = f"AR(1), {phi:g} of the distance from the middle stays, over {relation:,} keys"
    return Trace("ar1", text, _MADE, length, relation, blocks)


def trend(*, length: int = 1_000_000, relation: int = 100_000, noise: float = 0.01, seed: int = 0) -> Trace:
    """Keys rise in a line from one end of the relation to the other, with normal noise (as a share of the relation)."""
    _check_sizes(length, 1, relation)

    def blocks() -> Iterator[I64]:
        def make(rng: np.random.Generator, begin: int, count: int) -> I64:
            line = (begin + np.arange(count)) * relation / length
            return np.floor(line + rng.normal(0, noise * relation, count)).astype(np.int64) % relation

        return blocks_of(length, seed, make)

    return Trace("trend", f"a line through {relation:,} keys, with noise of {noise:.1%}", _MADE, length, relation, blocks)


def _check_sizes(length: int, distinct: int, relation: int) -> None:
    if not (length >= 1 and 1 <= distinct <= relation):
        raise RequestError(
            f"expected a length of at least 1 and from 1 to {relation:,} keys of a relation of {relation:,} rows, got "
            f"{length:,} and {distinct:,}; change them"
        )


def _cumulative(distinct: int, skew: float) -> npt.NDArray[np.float64]:
    weights = 1 / np.arange(1, distinct + 1) ** skew
    cumulative = np.cumsum(weights / weights.sum())
    return np.asarray(cumulative / cumulative[-1])


def _drawn(rng: np.random.Generator, count: int, cumulative: npt.NDArray[np.float64]) -> I64:
    return np.asarray(np.searchsorted(cumulative, rng.random(count), side="right"), np.int64)


def _scattered(seed: int, distinct: int, relation: int) -> I64:
    """Where the keys stand in the relation, in no order; one place each."""
    return np.random.default_rng([seed, 1 << 33]).permutation(relation)[:distinct]


def _noise(length: int, deviation: float, seed: int) -> Iterator[npt.NDArray[np.float64]]:
    for number, begin in enumerate(range(0, length, BLOCK)):
        yield np.random.default_rng([seed, number]).normal(0, deviation, min(BLOCK, length - begin))


def _filtered(noise: npt.NDArray[np.float64], phi: float, start: float) -> npt.NDArray[np.float64]:
    """``y[i] = phi * y[i - 1] + noise[i]``, in about log2 of the memory's length passes over the array instead of one over keys."""
    path = noise.copy()
    path[0] += phi * start
    lag, factor = 1, phi
    # After a pass with this lag each value holds the noise of the last 2 * lag steps; the rest is below a rounding error.
    while lag < len(path) and abs(factor) > 1e-17:
        path[lag:] = path[lag:] + factor * path[:-lag]
        lag, factor = 2 * lag, factor * factor
    return path
