"""All traces by name."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from srj.errors import RequestError
from srj.experiments.traces import synthetic
from srj.experiments.traces.nexmark import nexmark
from srj.experiments.traces.own import file
from srj.experiments.traces.real import melbourne, movielens, new_york_flights, new_york_weather, us_flights
from srj.experiments.traces.tpch import line_items
from srj.quantities import nearest

if TYPE_CHECKING:
    from collections.abc import Callable

    from srj.experiments.traces.trace import Trace

_TRACES: dict[str, Callable[..., Trace]] = {
    "zipf": synthetic.zipf,
    "hot spot": synthetic.hot_spot,
    "latest": synthetic.latest,
    "loop": synthetic.loop,
    "moving interval": synthetic.moving_interval,
    "shifting zipf": synthetic.shifting_zipf,
    "random walk": synthetic.random_walk,
    "ar1": synthetic.autoregressive,
    "trend": synthetic.trend,
    "nexmark q13": nexmark,
    "new york flights": new_york_flights,
    "new york weather": new_york_weather,
    "us flights": us_flights,
    "movielens": movielens,
    "melbourne": melbourne,
    "tpch": line_items,
    "file": file,
}


def names() -> list[str]:
    """What `trace` knows."""
    return list(_TRACES)


def describe(name: str) -> str:
    """A trace and its parameters, in one sentence.

    >>> describe("loop")
    'A scan over the same keys again and again: worst for LRU in a cache that is a little smaller.'
    """
    return (inspect.getdoc(_maker(name)) or "").split("\n")[0]


def trace(name: str, **parameters: Any) -> Trace:
    """A trace by name; nothing is made before its keys are asked for, but files are read.

    Args:
        name: one of `names`.
        parameters: the trace's own; each has a default, but for the path and the column of ``file``.

    Raises:
        RequestError: no such trace or parameter, or what it is read from is missing.

    Example:
        >>> trace("loop", length=5, relation=10, distinct=3).keys().tolist()
        [0, 1, 2, 0, 1]
    """
    maker = _maker(name)
    known = inspect.signature(maker).parameters
    for given in parameters:
        if given not in known:
            raise RequestError(f"expected a parameter of the trace {name!r}, got {given!r}; {nearest(given, list(known))}")
    missing = [key for key, one in known.items() if one.default is one.empty and key not in parameters]
    if missing:
        raise RequestError(f"expected {' and '.join(missing)} for the trace {name!r}, got none; add {missing[0]}=…")
    return maker(**parameters)


def _maker(name: str) -> Callable[..., Trace]:
    if name not in _TRACES:
        raise RequestError(f"expected a trace, got {name!r}; {nearest(name, names())}")
    return _TRACES[name]
