"""Two ways to do the same work, measured in alternating pairs: what else the machine does slows both of a pair alike."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True)
class Checksum:
    """Order-blind: how many rows, and the sum of their hashes."""

    rows: int
    hashes: int


@dataclass(frozen=True)
class Contest:
    """srj against another way to the same rows.

    Attributes:
        group: what ``--only`` selects it by.
        name, against: for people.
        rows: stream rows of one run.
        srj, other: one run each; they return the seconds of the part that counts.
        checksums: both outputs, in the same order, from runs that are not timed.
        bar: what the ratio has to reach, or None.
        details: whatever else was measured on the way, filled in by the runs.
    """

    group: str
    name: str
    against: str
    rows: int
    srj: Callable[[], float]
    other: Callable[[], float]
    checksums: Callable[[], tuple[Checksum, Checksum]]
    bar: float | None = None
    details: dict[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class Result:
    """A contest's outcome: seconds of each run, pair by pair."""

    contest: Contest
    checksum: Checksum
    srj_seconds: list[float]
    other_seconds: list[float]

    @property
    def ratios(self) -> list[float]:
        """Speed of srj as a multiple of the other's, for each pair."""
        return [other / srj for srj, other in zip(self.srj_seconds, self.other_seconds, strict=True)]

    @property
    def ratio(self) -> float:
        """Their median."""
        return statistics.median(self.ratios)

    @property
    def is_met(self) -> bool | None:
        """Whether it reaches the bar, if there is one."""
        return None if self.contest.bar is None else self.ratio >= self.contest.bar

    def record(self) -> dict[str, object]:
        """For a file."""
        contest = self.contest
        return {
            "group": contest.group,
            "name": contest.name,
            "against": contest.against,
            "rows": contest.rows,
            "bar": contest.bar,
            "met": self.is_met,
            "ratio": self.ratio,
            "ratios": self.ratios,
            "srj_seconds": self.srj_seconds,
            "other_seconds": self.other_seconds,
            "checksum": {"rows": self.checksum.rows, "hashes": str(self.checksum.hashes)},
            "details": contest.details,
        }


def measure(contest: Contest, pairs: int, step: Callable[[], object] = lambda: None) -> Result:
    """Compare the outputs, then run a pair that does not count, then the pairs.

    Args:
        contest: what to run.
        pairs: how many pairs count.
        step: called after the check and after each pair.

    Raises:
        AssertionError: the two outputs differ.
    """
    ours, theirs = contest.checksums()
    if ours != theirs:
        raise AssertionError(f"expected the same rows from srj and {contest.against} in {contest.name!r}, got {ours} and {theirs}")
    step()
    srj_seconds, other_seconds = [], []
    for _ in range(pairs + 1):
        srj_seconds.append(contest.srj())
        other_seconds.append(contest.other())
        step()
    return Result(contest, ours, srj_seconds[1:], other_seconds[1:])


def timed(run: Callable[[], object]) -> float:
    """Seconds that it takes."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start
