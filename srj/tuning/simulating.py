"""What each policy misses in a trace: in full as the columnar cache does it, or in a mini-simulation of a part of the keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from srj.cache_policies import by_name, names, simulate
from srj.lookup.simulated import MissCounter
from srj.sizing import EXACT_KEYS, MissRatioCurve, Shards, reuse_distances

if TYPE_CHECKING:
    import numpy.typing as npt

    from srj.tuning.keys import KeySequence

BATCH = 1_000
"""Keys that the columnar cache is given at a time."""
SAMPLED_KEYS = 32_768
"""A sample keeps about so many distinct keys, for some policies' misses fall in steps that few keys would blur."""
_LEAST_ROWS = 256  # that a simulated cache has: a smaller one says nothing of a larger one
_LARGEST_BATCH = 10_000
_BATCHES = 10  # to a cache at least: a batch's missing keys are stored together, and the policy sees nothing between
_PIECE = 1 << 16


class Trial(NamedTuple):
    """A simulation.

    Attributes:
        policy: its name.
        rows: the cache's size.
        misses: keys that would be asked; an estimate unless `full`.
        full: of all references, by the policy's rule in the columnar cache; else of their first half (`Race`), or in exact form,
            of a sample of the keys where there are many.
    """

    policy: str
    rows: int
    misses: float
    full: bool


def usable() -> list[str]:
    """The policies that ``cache=`` takes by name: those with a rule, registered ones of the user's own too."""
    return [name for name in names() if by_name(name).rule is not None]


def lru_curve(keys: KeySequence) -> MissRatioCurve:
    """LRU's miss-ratio curve: exact up to 100,000 distinct keys, SHARDS-adj of so many beyond."""
    if keys.distinct <= EXACT_KEYS:
        return MissRatioCurve.from_distances(reuse_distances(keys.codes))
    shards = Shards(keys=EXACT_KEYS)
    for start in range(0, keys.references, _PIECE):
        shards.add(keys.hashes[keys.codes[start : start + _PIECE]])
    return shards.curve()


def in_full(keys: KeySequence, policy: str, rows: int) -> Trial:
    """All references, by the policy's rule in the columnar cache."""
    return Trial(policy, rows, simulate(keys.codes, rows, policy, vectorised=True, batch_size=BATCH).misses, full=True)


class Race:
    """Several policies at one size, in full: all go half the way, and only those that are ahead the rest of it.

    Args:
        keys: the trace.
        rows: the cache's size.
    """

    def __init__(self, keys: KeySequence, rows: int) -> None:
        self._keys, self._rows = keys, rows
        self._half = keys.references // 2 // BATCH * BATCH  # whole batches, as in full
        self._counters: dict[str, MissCounter] = {}

    def enter(self, policy: str) -> Trial:
        """Half the way; the whole would have so many misses if the other half were like it, but for the keys' first references."""
        keys, half = self._keys, self._half
        counter = self._counters[policy] = MissCounter(self._rows, by_name(policy), BATCH)
        counter.take(keys.codes[:half].astype(np.int64))
        first = int(keys.codes[:half].max(initial=-1)) + 1  # codes are given in the order of first references
        again = (counter.misses - first) * (keys.references - keys.distinct) / max(half - first, 1)
        return Trial(policy, self._rows, keys.distinct + max(again, 0.0), full=False)

    def finish(self, policy: str) -> Trial:
        """The rest of the way; the same as `in_full`."""
        counter = self._counters[policy]
        counter.take(self._keys.codes[self._half :].astype(np.int64))
        return Trial(policy, self._rows, counter.misses, full=True)


class MiniSimulation:
    """Any policy at size R * C on a share R of the keys (Waldspurger and others, ATC 2017), in its exact form.

    Misses of the sample are divided by its share of the keys, not of the references: a frequent key that is in it by chance, or is
    not, changes its references much and its misses hardly. Where nothing is left out, large caches are simulated by the policy's
    rule, in larger batches than in full: that takes half the time of either.

    Args:
        keys: the trace.
        most: distinct keys to keep about.
        exact: distinct keys of a trace up to which nothing is left out.
    """

    def __init__(self, keys: KeySequence, most: int = SAMPLED_KEYS, exact: int = EXACT_KEYS) -> None:
        self._keys = keys
        self._rate = 1.0 if keys.distinct <= max(most, exact) else most / keys.distinct
        self._samples: dict[float, tuple[npt.NDArray[np.int32], float]] = {}

    def run(self, policy: str, rows: int) -> Trial:
        """One policy at one size of the whole."""
        codes, share = self._sample(_LEAST_ROWS / rows)
        batch = min(rows // _BATCHES, _LARGEST_BATCH)
        if share == 1 and batch > BATCH and by_name(policy).rule is not None:
            found = simulate(codes, rows, policy, vectorised=True, batch_size=batch)
        else:
            found = simulate(codes, max(round(rows * share), 1), policy)
        return Trial(policy, rows, min(found.misses / share, float(self._keys.references)), full=False)

    def gains_nothing(self, rows: int) -> bool:
        """Whether a simulation in full, which is nearer to what the cache does, takes no longer than one by `run`."""
        return max(self._rate, _LEAST_ROWS / rows) >= 1 and rows <= _BATCHES * BATCH

    def _sample(self, least: float) -> tuple[npt.NDArray[np.int32], float]:
        """Codes of a sample of at least this share, and its true share; in steps of two, so that a few samples serve all sizes."""
        rate = self._rate
        while rate < least:
            rate *= 2
        rate = min(rate, 1.0)
        if rate not in self._samples:
            sample = self._keys.sampled(rate)
            self._samples[rate] = sample.codes, sample.distinct / self._keys.distinct
        return self._samples[rate]
