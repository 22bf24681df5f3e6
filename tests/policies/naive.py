"""Every policy once more, as slowly and plainly as it can be said: lists, `min` and the definitions."""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class Naive:
    """A set of held keys; subclasses say what a use does and who leaves."""

    def __init__(self, capacity: int, future: list[int]) -> None:
        self.capacity, self.future = capacity, future
        self.held: list[int] = []  # in order of insertion
        self.history: list[int] = []  # every reference so far
        self.entered: dict[int, int] = {}  # the time at which each key last came in
        self.begin()

    def begin(self) -> None:
        """What the policy knows at the start."""

    def use(self, key: int) -> None:
        """A reference."""
        self.history.append(key)
        if key in self.held:
            self.on_hit(key)
            return
        self.on_miss(key)
        if len(self.held) >= self.capacity:
            self.pop()
        self.held.append(key)
        self.entered[key] = len(self.history)
        self.on_insert(key)

    def pop(self) -> int:
        """Evict."""
        key = self.choose()
        self.delete(key)
        return key

    def delete(self, key: int) -> None:
        """Remove, if it is held."""
        if key in self.held:
            self.on_delete(key)
            self.held.remove(key)

    def last_use(self, key: int) -> int:
        """The time of the last reference."""
        return max(time for time, other in enumerate(self.history) if other == key)

    def choose(self) -> int:
        """The victim."""
        raise NotImplementedError

    def on_hit(self, key: int) -> None:
        """A hit."""

    def on_miss(self, key: int) -> None:
        """Before room is made."""

    def on_insert(self, key: int) -> None:
        """After it is held."""

    def on_delete(self, key: int) -> None:
        """Before it is gone."""


class Lru(Naive):
    """Oldest last use."""

    def choose(self) -> int:
        """The victim."""
        return min(self.held, key=self.last_use)


class Fifo(Naive):
    """First in."""

    def choose(self) -> int:
        """The victim."""
        return self.held[0]


class Lfu(Naive):
    """Fewest uses since it came in, then the oldest last use."""

    def choose(self) -> int:
        """The victim."""
        return min(self.held, key=lambda key: (self.history[self.entered[key] - 1 :].count(key), self.last_use(key)))


class Random(Naive):
    """The same random numbers, over the same list: the place of one that leaves is taken by the last."""

    def begin(self) -> None:
        """What it knows at the start."""
        self.choice = random.Random(0).choice
        self.places: list[int] = []

    def choose(self) -> int:
        """The victim."""
        return self.choice(self.places)

    def on_insert(self, key: int) -> None:
        """After it is held."""
        self.places.append(key)

    def on_delete(self, key: int) -> None:
        """Before it is gone."""
        self.places[self.places.index(key)] = self.places[-1]
        self.places.pop()


class Clock(Naive):
    """A list from the hand onwards, with bits."""

    def begin(self) -> None:
        """What it knows at the start."""
        self.circle: list[int] = []
        self.bits: set[int] = set()

    def on_hit(self, key: int) -> None:
        """A hit."""
        self.bits.add(key)

    def on_insert(self, key: int) -> None:
        """After it is held."""
        self.circle.append(key)

    def on_delete(self, key: int) -> None:
        """Before it is gone."""
        self.circle.remove(key)
        self.bits.discard(key)

    def choose(self) -> int:
        """The victim."""
        while self.circle[0] in self.bits:
            self.bits.remove(self.circle[0])
            self.circle = [*self.circle[1:], self.circle[0]]
        return self.circle[0]


class Sieve(Naive):
    """The list of held keys with a hand that is a position in it."""

    def begin(self) -> None:
        """What it knows at the start."""
        self.hand = 0
        self.bits: set[int] = set()

    def on_hit(self, key: int) -> None:
        """A hit."""
        self.bits.add(key)

    def on_delete(self, key: int) -> None:
        """Before it is gone."""
        self.bits.discard(key)
        if self.held.index(key) < self.hand:
            self.hand -= 1
        elif self.hand == len(self.held) - 1:
            self.hand = 0  # the hand stood at the newest, which leaves: what comes in later is not next

    def choose(self) -> int:
        """The victim."""
        while True:
            if self.hand >= len(self.held):
                self.hand = 0
            key = self.held[self.hand]
            if key not in self.bits:
                return key
            self.bits.remove(key)
            self.hand += 1


class S3Fifo(Naive):
    """Three lists, oldest first."""

    def begin(self) -> None:
        """What it knows at the start."""
        self.small: list[int] = []
        self.main: list[int] = []
        self.ghosts: list[int] = []
        self.uses: dict[int, int] = {}
        self.small_size = max(int(self.capacity * 0.1), 1)
        self.evicted = self.returns = False

    def on_hit(self, key: int) -> None:
        """A hit."""
        self.uses[key] += 1

    def on_miss(self, key: int) -> None:
        """Before room is made."""
        self.returns = key in self.ghosts
        self.ghosts = [ghost for ghost in self.ghosts if ghost != key]

    def on_insert(self, key: int) -> None:
        """After it is held."""
        into_main = self.returns or (not self.evicted and len(self.small) >= self.small_size)
        (self.main if into_main else self.small).append(key)
        self.uses[key] = 0

    def on_delete(self, key: int) -> None:
        """Before it is gone."""
        (self.small if key in self.small else self.main).remove(key)

    def choose(self) -> int:
        """The victim."""
        self.evicted = True
        if len(self.main) <= self.capacity - self.small_size:
            while self.small:
                key = self.small[0]
                if self.uses[key] < 2:
                    limit = int(0.9 * self.capacity)
                    self.ghosts = [*self.ghosts, key][-limit:] if limit else []
                    return key
                self.main.append(self.small.pop(0))
                self.uses[key] = 0
        while self.uses[self.main[0]]:
            key = self.main.pop(0)
            self.main.append(key)
            self.uses[key] = min(self.uses[key], 3) - 1
        return self.main[0]


class TwoQ(Naive):
    """A1in, A1out and Am as lists, oldest first."""

    def begin(self) -> None:
        """What it knows at the start."""
        self.a1in: list[int] = []
        self.a1out: list[int] = []
        self.am: list[int] = []
        self.returns = False

    def on_hit(self, key: int) -> None:
        """A hit."""
        if key in self.am:
            self.am.remove(key)
            self.am.append(key)

    def on_miss(self, key: int) -> None:
        """Before room is made."""
        self.returns = key in self.a1out
        self.a1out = [other for other in self.a1out if other != key]

    def on_insert(self, key: int) -> None:
        """After it is held."""
        (self.am if self.returns else self.a1in).append(key)

    def on_delete(self, key: int) -> None:
        """Before it is gone."""
        (self.am if key in self.am else self.a1in).remove(key)

    def choose(self) -> int:
        """The victim."""
        if len(self.a1in) > self.capacity // 4 or not self.am:
            limit = self.capacity // 2
            self.a1out = [*self.a1out, self.a1in[0]][-limit:] if limit else []
            return self.a1in[0]
        return self.am[0]


class Arc(Naive):
    """The paper's figure 4, on four lists, oldest first."""

    def begin(self) -> None:
        """What it knows at the start."""
        self.t1: list[int] = []
        self.t2: list[int] = []
        self.b1: list[int] = []
        self.b2: list[int] = []
        self.p = 0.0
        self.case = ""

    def on_hit(self, key: int) -> None:
        """A hit."""
        self.on_delete(key)
        self.t2.append(key)

    def on_miss(self, key: int) -> None:
        """Before room is made."""
        c = self.capacity
        if key in self.b1:
            self.case = "II"
            self.p = min(c, self.p + max(1, len(self.b2) / len(self.b1)))
            self.b1.remove(key)
        elif key in self.b2:
            self.case = "III"
            self.p = max(0, self.p - max(1, len(self.b1) / len(self.b2)))
            self.b2.remove(key)
        elif len(self.t1) + len(self.b1) >= c:
            self.case = "IV A" if self.b1 else "IV A, B1 empty"
            self.b1 = self.b1[1:]
        else:
            self.case = "IV B"
            if len(self.t1 + self.t2 + self.b1 + self.b2) >= 2 * c:
                self.b2 = self.b2[1:]

    def on_insert(self, key: int) -> None:
        """After it is held."""
        (self.t2 if self.case in {"II", "III"} else self.t1).append(key)
        self.case = ""

    def on_delete(self, key: int) -> None:
        """Before it is gone."""
        (self.t1 if key in self.t1 else self.t2).remove(key)

    def choose(self) -> int:
        """The victim."""
        if self.case == "IV A, B1 empty":
            return self.t1[0]
        over = len(self.t1) > self.p or (self.case == "III" and len(self.t1) == self.p)
        if self.t1 and (over or not self.t2):
            self.b1.append(self.t1[0])
            return self.t1[0]
        self.b2.append(self.t2[0])
        return self.t2[0]


class WTinyLfu(Naive):
    """Three lists, oldest first; true counts instead of a sketch's, which few keys leave equal."""

    def begin(self) -> None:
        """What it knows at the start."""
        self.window: list[int] = []
        self.probation: list[int] = []
        self.protected: list[int] = []
        self.counts: dict[int, int] = {}
        self.window_size = max(self.capacity // 100, 1)
        self.protected_size = int((self.capacity - self.window_size) * 0.8)

    def count(self, key: int) -> None:
        """A reference, at most 15 of them; all are halved every 10 times the capacity."""
        self.counts[key] = min(self.counts.get(key, 0) + 1, 15)
        if len(self.history) % (10 * self.capacity) == 0:
            self.counts = {other: count // 2 for other, count in self.counts.items()}

    def part_of(self, key: int) -> list[int]:
        """The list that holds it."""
        return next(part for part in (self.window, self.probation, self.protected) if key in part)

    def on_hit(self, key: int) -> None:
        """A hit."""
        self.count(key)
        part = self.part_of(key)
        part.remove(key)
        if part is self.probation and self.protected_size:
            self.protected.append(key)
            if len(self.protected) > self.protected_size:
                self.probation.append(self.protected.pop(0))
        else:
            part.append(key)

    def on_miss(self, key: int) -> None:
        """Before room is made."""
        self.count(key)

    def on_insert(self, key: int) -> None:
        """After it is held."""
        self.window.append(key)
        if len(self.window) > self.window_size:
            self.probation.append(self.window.pop(0))

    def on_delete(self, key: int) -> None:
        """Before it is gone."""
        self.part_of(key).remove(key)

    def choose(self) -> int:
        """The victim."""
        main = self.probation + self.protected
        if not main or not self.window:
            return (self.window + main)[0]
        if self.counts.get(self.window[0], 0) > self.counts.get(main[0], 0):
            self.probation.append(self.window.pop(0))
            return main[0]
        return self.window[0]


class Prob(Naive):
    """Fewest references ever, then the oldest last use."""

    def choose(self) -> int:
        """The victim."""
        return min(self.held, key=lambda key: (self.history.count(key), self.last_use(key)))


class Life(Naive):
    """References so far times what is left of ten capacities, then the first in."""

    def choose(self) -> int:
        """The victim."""

        def score(key: int) -> int:
            return self.history.count(key) * max(self.entered[key] + 10 * self.capacity - len(self.history), 0)

        return min(self.held, key=lambda key: (score(key), self.entered[key]))


class Heeb(Naive):
    """The sum that defines H, term by term; a reference adds w to the probability, by a factor 1 - w less with each step."""

    def choose(self) -> int:
        """The victim."""
        now = len(self.history)

        def benefit(key: int) -> float:
            w = 0.1 / self.capacity
            p = sum(w * (1 - w) ** (now - time) for time, other in enumerate(self.history, 1) if other == key)
            return sum(p * (1 - p) ** (d - 1) * math.exp(-d / self.capacity) for d in range(1, 30 * self.capacity))

        return min(self.held, key=benefit)


class Opt(Naive):
    """The farthest next use; of keys that never come again the one used longest ago."""

    def choose(self) -> int:
        """The victim."""
        rest = [*self.future[len(self.history) :]]
        return min(self.held, key=lambda key: (-rest.index(key) if key in rest else -len(rest), self.last_use(key)))


NAIVE: dict[str, Callable[[int, list[int]], Naive]] = {
    "lru": Lru,
    "fifo": Fifo,
    "lfu": Lfu,
    "random": Random,
    "clock": Clock,
    "sieve": Sieve,
    "s3fifo": S3Fifo,
    "twoq": TwoQ,
    "arc": Arc,
    "wtinylfu": WTinyLfu,
    "prob": Prob,
    "life": Life,
    "heeb": Heeb,
    "opt": Opt,
}
