"""Which policy at which size: a few simulations where the whole grid would take hundreds."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING

import numpy as np

from srj.sizing.split import SLACK
from srj.tuning.prices import LEAST_ROWS
from srj.tuning.simulating import MiniSimulation, Race, Trial, in_full, usable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from srj.sizing import MissRatioCurve
    from srj.tuning.keys import KeySequence
    from srj.tuning.prices import Prices

_MORE_SLACK = (SLACK, 1.5, 2.0)  # tried in turn: where hits are many, few overfull sets make many of the misses
_AS_GOOD = 0.005  # of the misses: a smaller cache that misses so little more is as good
_MARGIN = 0.06  # of the cost: who is estimated within it of the best may be it
_FINALISTS = 2
_SURPRISE = 1.15  # times what was foreseen from the first half
_LONG = 50_000  # references: with fewer, all policies in full take a second at most
_BLIND = ("fifo", "random")  # policies that look at no use of an entry
_CONCAVE = 0.02  # of the references: LRU so far above its curve's hull is led astray by the order of use
_AROUND = (0.7, 1.4)  # times the size that is best for LRU: where another policy's best is looked for


@dataclass(frozen=True)
class Pick:
    """What is recommended, and how it was found.

    Attributes:
        best: the policy and size, in a full simulation.
        trials: all simulations that were made.
        reason: in one sentence.
    """

    best: Trial
    trials: tuple[Trial, ...]
    reason: str


@dataclass
class _Search:
    keys: KeySequence
    curve: MissRatioCurve
    prices: Prices
    mini: MiniSimulation
    told: Callable[[str], None]
    trials: list[Trial]

    @property
    def top(self) -> int:
        """Rows beyond which there is nothing to hold, or no memory."""
        return max(int(min(self.prices.most_rows, ceil(_MORE_SLACK[-1] * self.keys.distinct))), LEAST_ROWS)

    def candidates(self, rows: int) -> list[str]:
        """The policies that may be best at this size.

        Those that look at no use of an entry miss no less than LRU where references are independent (King, 1971), and LRU's curve
        is convex then. Only where it is not, as in a loop, the order of use may mislead. That leads FIFO astray as LRU, so RANDOM
        will do.
        """
        points, ratios = _hull(self.curve)
        above = float(self.curve.at(rows)) - float(np.interp(rows, points, ratios))
        left_out = _BLIND[:1] if above > _CONCAVE else _BLIND
        return [policy for policy in usable() if policy not in left_out]

    def full(self, policy: str, rows: int) -> Trial:
        for known in self.trials:
            if known.full and (known.policy, known.rows) == (policy, rows):
                return known
        self.told(f"{policy} with {rows:,} rows in full")
        return self._kept(in_full(self.keys, policy, rows))

    def estimate(self, policy: str, rows: int) -> Trial:
        """LRU's by its curve, which costs nothing; the others' by a simulation that is cheaper than in full, if there is one."""
        if policy == "lru":
            return Trial(policy, rows, float(self.curve.at(rows)) * self.keys.references, full=False)
        if self.mini.gains_nothing(rows):
            return self.full(policy, rows)
        self.told(f"{policy} with {rows:,} rows in a mini-simulation")
        return self._kept(self.mini.run(policy, rows))

    def estimates(self, rows: int) -> list[Trial]:
        """Those that may be best at this size; where estimates cost as much as to simulate in full, the best two in full."""
        policies = self.candidates(rows)
        if self.mini.gains_nothing(rows) and self.keys.references >= _LONG:
            return self._raced(policies, rows)
        return [self.estimate(policy, rows) for policy in policies]

    def _raced(self, policies: Sequence[str], rows: int) -> list[Trial]:
        """LRU too: in a cache no larger than some batches it does better than its curve, as a batch's keys are stored together."""
        race = Race(self.keys, rows)
        halves = []
        done = [trial for trial in self.trials if trial.full and trial.rows == rows and trial.policy in policies]
        for policy in (policy for policy in policies if policy not in {trial.policy for trial in done}):
            self.told(f"{policy} with {rows:,} rows, half the way")
            halves.append(race.enter(policy))
        halves.sort(key=self.cost)
        is_alike = True  # the second half to the first
        for number, trial in enumerate(halves):
            if number >= _FINALISTS and (is_alike or self.cost(trial) >= min(map(self.cost, done))):
                self.trials.append(trial)
                continue
            done.append(self._kept(race.finish(trial.policy)))
            is_alike &= 1 / _SURPRISE <= done[-1].misses / trial.misses <= _SURPRISE
        return done

    def _kept(self, trial: Trial) -> Trial:
        self.trials.append(trial)
        return trial

    def cost(self, trial: Trial) -> float:
        return float(self.prices.cost(trial.misses, trial.rows))

    def final(self, estimates: list[Trial]) -> Trial:
        """The best of all full simulations, once those are made that may be the best by their estimates."""
        ranked = sorted(estimates, key=self.cost)
        near = [trial for trial in ranked if self.cost(trial) <= (1 + _MARGIN) * self.cost(ranked[0])]
        for trial in [trial for trial in near if not trial.full][:_FINALISTS]:
            self.full(trial.policy, trial.rows)
        return min((trial for trial in self.trials if trial.full), key=lambda trial: (self.cost(trial), trial.rows))


def pick(
    keys: KeySequence,
    curve: MissRatioCurve,
    prices: Prices,
    *,
    mini: MiniSimulation | None = None,
    told: Callable[[str], None] = lambda _step: None,
) -> Pick:
    """The usable policy and the size of least cost; where memory costs nothing, of least misses within its limit.

    Args:
        keys: the trace.
        curve: LRU's, from `lru_curve`.
        prices: the limit and the costs.
        mini: for estimates; None: one of its own.
        told: called with each simulation that begins.

    Example:
        >>> from srj.tuning import KeySequence, Prices, lru_curve
        >>> keys = KeySequence.of(np.tile(np.arange(5000), 5))
        >>> found = pick(keys, lru_curve(keys), Prices())
        >>> found.best, found.reason
        (Trial(policy='lru', rows=5750, misses=5009, full=True), 'misses no key that comes again with 5,000 rows, times 1.15')
    """
    search = _Search(keys, curve, prices, mini or MiniSimulation(keys), told, [])
    best, reason = (_held(search) or _at_limit(search)) if prices.memory_cost == 0 else _by_cost(search)
    return Pick(best, tuple(search.trials), reason)


def _held(search: _Search) -> tuple[Trial, str] | None:
    """LRU over the working set, if that fits: no policy misses less than each key's first reference."""
    held = search.curve.bound(_AS_GOOD * search.curve.floor)
    for slack in _MORE_SLACK:
        rows = max(ceil(slack * held), LEAST_ROWS)
        if rows > search.top:
            break
        trial = search.full("lru", rows)
        if trial.misses <= (1 + 2 * _AS_GOOD) * search.keys.distinct:
            if search.keys.distinct == search.keys.references:
                return trial, "as good as any: no key comes twice in this trace, so that no cache is of use; is it long enough?"
            return trial, f"misses no key that comes again with {held:,} rows, times {slack}"
    return None


def _at_limit(search: _Search) -> tuple[Trial, str]:
    best = search.final(search.estimates(search.top))
    if search.prices.most_rows < LEAST_ROWS:
        return best, f"misses least of the policies with {LEAST_ROWS} rows, the fewest that are simulated"
    return best, f"misses least of the policies with the {search.top:,} rows that there is memory for"


def _by_cost(search: _Search) -> tuple[Trial, str]:
    rows = np.unique(np.geomspace(min(LEAST_ROWS, search.top), search.top, 400).astype(np.int64))
    costs = search.prices.cost(search.curve.at(rows) * search.keys.references, rows)
    start = int(rows[np.argmin(costs)])
    # On a cliff sets of eight need their slack; on a slope it would be given away.
    if search.curve.at(start / SLACK) > 1.05 * search.curve.at(start):
        start = min(ceil(SLACK * start), search.top)
    first = sorted(search.estimates(start), key=search.cost)
    near = [trial for trial in first if search.cost(trial) <= (1 + _MARGIN) * search.cost(first[0])]
    others = [trial for trial in near if trial.policy != "lru"][:_FINALISTS]
    lru = [trial for trial in first if trial.policy == "lru"]
    return search.final(lru + [_cheapest(search, trial) for trial in others]), "costs least, misses and memory together"


def _cheapest(search: _Search, trial: Trial) -> Trial:
    """Of the sizes about this one, by a parabola through the misses at three of them over the logarithm of the size."""
    others = {min(max(int(trial.rows * factor), LEAST_ROWS), search.top) for factor in _AROUND} - {trial.rows}
    known = sorted([trial, *(search.estimate(trial.policy, rows) for rows in others)], key=lambda one: one.rows)
    between = np.unique(np.geomspace(known[0].rows, known[-1].rows, 33).astype(np.int64))
    # A line would lie above a curve that bends, and prefer the sizes that were tried.
    places, misses = np.log([one.rows / trial.rows for one in known]), [one.misses for one in known]
    guessed = np.polyval(np.polyfit(places, misses, len(known) - 1), np.log(between / trial.rows))
    guessed = np.clip(guessed, search.keys.distinct, search.keys.references)
    at = int(np.argmin(search.prices.cost(guessed, between)))
    return Trial(trial.policy, int(between[at]), float(guessed[at]), full=False)


def _hull(curve: MissRatioCurve) -> tuple[list[float], list[float]]:
    """The lower convex hull of a curve that never rises: from each corner on along the steepest way down."""
    sizes = np.unique(np.append(np.geomspace(1, max(curve.sizes[-1], 1), 400), 0.0))
    ratios = curve.at(sizes)
    points, values, at = [0.0], [float(ratios[0])], 0
    while at < sizes.size - 1:
        slopes = (ratios[at + 1 :] - ratios[at]) / (sizes[at + 1 :] - sizes[at])
        at += 1 + int(np.flatnonzero(slopes == slopes.min())[-1])
        points.append(float(sizes[at]))
        values.append(float(ratios[at]))
    return points, values
