"""A database as a queueing model, in simulated time: `Batching` runs against it in milliseconds, and again as it did before."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from srj.lookup.batching import Batching, Limits

if TYPE_CHECKING:
    from collections.abc import Callable

INPUT = 10_000  # keys that are missed at a time


@dataclass(frozen=True)
class Model:
    """What a lookup takes.

    Attributes:
        network, jitter: seconds for the way there and back, the second at random.
        fixed, each: seconds of one core for a lookup, and for each of its keys.
        cores: that lookups share.
        crowding: how much slower all get with each lookup beyond two.
        connections: that may be open; None: any number.
        noise: of the seconds; the standard deviation of their logarithm.
    """

    network: float = 0.0003
    jitter: float = 0.0
    fixed: float = 0.0004
    each: float = 7e-6
    cores: float = 1.7
    crowding: float = 0.0
    connections: int | None = None
    noise: float = 0.15


@dataclass
class _Flight:
    keys: int
    sent: float
    there: float
    work: float
    flying: int


class Landing(NamedTuple):
    """A lookup's answer."""

    seconds: float
    keys: int


def run(model_at: Callable[[int], Model], batching: Batching, landings: int, seed: int) -> list[Landing]:
    """So many answers from a database that is what `model_at` says after so many of them, asked without pause."""
    generator = random.Random(seed)
    now, ready, under_way, landed = 0.0, list[int](), list[_Flight](), list[Landing]()
    while len(landed) < landings:
        model = model_at(len(landed))
        while len(ready) + len(under_way) <= 2 * batching.in_flight:
            left = INPUT
            while left:
                idle = batching.in_flight - len(under_way) - len(ready)
                ready.append(min(left, batching.size(10**9, INPUT, idle)))
                left -= ready[-1]
        while ready and len(under_way) < batching.in_flight:
            if model.connections is not None and len(under_way) >= model.connections:
                batching.refused(model.connections)
                break
            keys = ready.pop(0)
            there = now + model.network + generator.uniform(0, model.jitter)
            work = (model.fixed + model.each * keys) * generator.lognormvariate(0, model.noise)
            under_way.append(_Flight(keys, now, there, work, len(under_way) + 1))
        working = [flight for flight in under_way if flight.there <= now]
        speed = min(1.0, model.cores / max(1, len(working))) / (1 + model.crowding * max(0, len(working) - 2))
        step = min(
            min((flight.work / speed for flight in working), default=math.inf),
            min((flight.there - now for flight in under_way if flight.there > now), default=math.inf),
        )
        now += step
        for flight in working:
            flight.work -= step * speed
        for flight in [flight for flight in working if flight.work < 1e-12]:
            under_way.remove(flight)
            landed.append(Landing(now, flight.keys))
            batching.landed(flight.keys, now - flight.sent, now, flying=flight.flying, is_busy=bool(ready))
    return landed


def rate(landed: list[Landing]) -> float:
    """Keys a second, of all but the first."""
    return sum(one.keys for one in landed[1:]) / (landed[-1].seconds - landed[0].seconds)


def best_rate(model: Model) -> float:
    """What the best of many fixed sizes and numbers in flight reaches."""
    cells = [(size, flights) for size in (100, 300, 1000, 3000, 10_000) for flights in (1, 2, 4, 8)]
    return max(
        rate(run(lambda _: model, Batching(Limits(size, size, math.inf, flights, flights)), 200, seed=0)[40:])
        for size, flights in cells
    )
