"""Figure 5.4's rounds: all divisions are open side by side, and measured in turns once their caches are full."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from srj.experiments import split_cell
from srj.experiments.experiment import Checksum
from srj.experiments.split_cell import SPLITS, Split, SplitCell

if TYPE_CHECKING:
    import pytest

RATES: dict[Split, float] = {
    "20 %": 500_000.0,
    "50 %": 1_040_000.0,
    "70 %": 1_020_000.0,
    "unbounded": 100_000.0,
    "auto": 1_000_000.0,
}
CELL = SplitCell(0.16, openings=2, seconds=0.3)  # intervals of 50,000 rows and 5,000 keys


@dataclass
class Paced:
    """A join that is as fast as it shall be, and half as fast in every second turn of its own."""

    split: Split
    opened: list[tuple[str, Split, int]]
    turns: int = 0
    output = plain_join = Checksum(1, 1)
    memory = queue_rows = 1
    entries = 22_000
    hit_ratio = missing_rows_a_lookup = 0.5

    def throughput(self, rows: int) -> float:
        """By turns, whatever the rows."""
        self.opened.append(("rows", self.split, rows))
        self.turns += 1
        return RATES[self.split] / (1 + self.turns % 2)

    def begin(self) -> None:
        """Counting begins."""
        self.opened.append(("begin", self.split, 0))

    def close(self) -> None:
        """It ends."""
        self.opened.append(("close", self.split, 0))


def test_divisions_take_turns_of_an_interval_once_their_caches_are_full() -> None:
    seen: list[tuple[str, Split, int]] = []
    figures = split_cell._measured(CELL, lambda split: closing(Paced(split, seen))).figures  # type: ignore[arg-type]
    # Five intervals fill 22,000 entries, four more come before them.
    assert seen[:4] == [("rows", "20 %", 450_000), ("begin", "20 %", 0), ("rows", "50 %", 450_000), ("begin", "50 %", 0)]
    first = seen[2 * len(SPLITS) :]
    assert [split for _, split, _ in first[:6]] == ["20 %", "50 %", "70 %", "unbounded", "auto", "50 %"]
    assert {rows for what, _, rows in first[: 5 * len(SPLITS)] if what == "rows"} == {50_000}
    closed = [split for what, split, _ in seen if what == "close"]
    assert closed == [*SPLITS[::-1], *SPLITS[::-1]]
    throughput = figures["throughput"]
    # A round of five turns each takes more than the 0.3 seconds that each shall have, so there is one in each opening.
    assert {split: len(of_split) for split, of_split in throughput.items()} == dict.fromkeys(SPLITS, 2)
    for split in SPLITS:  # after the first, five turns, of which two are slow: seven times as long as one that is not
        assert throughput[split] == [round(RATES[split] * 5 / 7)] * 2


def test_a_round_is_as_long_as_its_turns_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rate is that of all rows in all seconds, not the mean of the turns' rates."""
    rates = iter([100.0, 50.0] * 20)

    class Turns(Paced):
        def throughput(self, rows: int) -> float:
            """By turns."""
            del rows
            return next(rates) if self.split == "auto" else 100.0

    monkeypatch.setattr(split_cell, "_TURNS", 2)
    benches: Any = {split: Turns(split, []) for split in SPLITS}
    assert split_cell._round(benches, 100) == dict.fromkeys(SPLITS, 2.0) | {"auto": 3.0}
