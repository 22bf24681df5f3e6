"""Words a user writes for quantities and choices, and the numbers they mean."""

from __future__ import annotations

import difflib
import math
import re
from datetime import timedelta
from numbers import Real
from typing import TYPE_CHECKING, Literal, TypeVar

from srj.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_T = TypeVar("_T")
_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "sec": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_BYTES = {"b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 2**10, "mib": 2**20, "gib": 2**30}
_QUANTITY = re.compile(r"\s*([0-9]+(?:_[0-9]+)*(?:\.[0-9]+)?)\s*([A-Za-z]*)\s*")
_MOST = 2**63 - 1  # what a number of 64 bits holds
_SHOWN = 60  # characters of a value in a message


def parse_duration(name: str, value: object) -> float | None:
    """Seconds of ``"10 min"``, ``"500 ms"``, a number of seconds or a timedelta; None and ``"forever"`` are for ever.

    >>> parse_duration("ttl", "10 min"), parse_duration("ttl", 0.5), parse_duration("ttl", "forever")
    (600.0, 0.5, None)
    """
    if value is None or (isinstance(value, str) and value == "forever"):
        return None
    seconds = -1.0
    if isinstance(value, timedelta):
        seconds = value.total_seconds()
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        seconds = _as_float(value)
    elif isinstance(value, str) and (match := _QUANTITY.fullmatch(value)) and match[2] in _SECONDS:
        seconds = float(match[1]) * _SECONDS[match[2]]
    if not 0 < seconds < float("inf"):
        raise RequestError(f"expected {name} as a duration above zero such as '10 min', '500 ms' or seconds, got {shown(value)}")
    return seconds


def parse_size(value: object, name: str = "a cache size", others: str = "") -> tuple[int, Literal["bytes", "rows"]]:
    """Bytes or rows of ``"128 MB"``, ``"64 MiB"``, ``"1_000_000 rows"`` or a number of bytes.

    >>> parse_size("128 MB"), parse_size("0.5 GB"), parse_size("5000 rows")
    ((128000000, 'bytes'), (500000000, 'bytes'), (5000, 'rows'))
    """
    if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= _MOST:
        return value, "bytes"
    match = _QUANTITY.fullmatch(value) if isinstance(value, str) else None
    if match:
        unit = match[2].lower()
        amount = float(match[1]) * _BYTES.get(unit, 1)
        if 1 <= amount < _MOST and unit in ("row", "rows"):
            return int(amount), "rows"
        if 1 <= amount < _MOST and unit in _BYTES:
            return int(amount), "bytes"
    raise RequestError(f"expected {name} such as '128 MB', {others}'1_000_000 rows' or a number of bytes, got {shown(value)}")


def one_of(name: str, value: object, allowed: Sequence[_T]) -> _T:
    """The value, if it is one of those allowed."""
    for choice in allowed:
        if type(value) is type(choice) and value == choice:
            return choice
    hint = ""
    if isinstance(value, str):
        near = difflib.get_close_matches(value, [str(choice) for choice in allowed], n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
    raise RequestError(f"expected {name} as one of {', '.join(map(repr, allowed))}, got {shown(value)}{hint}")


def whole_number(name: str, value: object, least: int, most: int, others: str = "") -> int:
    """The value, if it is an int within its bounds; `others` goes on about what else could be written."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise RequestError(f"expected {name} as a whole number from {least} to {most}{others}, got {shown(value)}")
    return value


def number_from(name: str, value: object, least: float, *, above: bool = False) -> float:
    """The value, if it is a number, NaN excluded, of at least (or above) the one given.

    >>> number_from("alpha", 2, 0, above=True)
    2.0
    """
    number = _as_float(value) if isinstance(value, Real) and not isinstance(value, bool) else math.nan
    # NaN is neither above nor equal.
    if not (number > least or (number == least and not above)):
        bound = "" if least == -math.inf else f" above {least:g}" if above else f" of at least {least:g}"
        raise RequestError(f"expected {name} as a number{bound}, got {shown(value)}")
    return number


def _as_float(value: Real | float) -> float:
    """The number, infinite where it is larger than a float can be."""
    try:
        return float(value)
    except OverflowError:
        return -math.inf if value < 0 else math.inf


def shown(value: object) -> str:
    """A value as a message shows it: on one line, and not at any length.

    >>> shown("x" * 100)
    "'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx…"
    """
    try:
        text = " ".join(repr(value).split())
    except ValueError:
        # Python refuses to write a whole number of several thousand digits.
        return f"a very large {type(value).__name__}"
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"


def near_to(name: str, existing: Iterable[str]) -> str | None:
    """The one of these names that was meant, if any is like it.

    >>> near_to("prise", ["id", "Price"])
    'Price'
    """
    names = {candidate.lower(): candidate for candidate in existing}
    near = difflib.get_close_matches(name.lower(), names, n=1)
    return names[near[0]] if near else None


def nearest(name: str, existing: Iterable[str]) -> str:
    """What to do about a name that does not exist: the end of a sentence.

    >>> nearest("prise", ["id", "Price"])
    "did you mean 'Price'?"
    >>> nearest("x", ["id", "price"])
    'there are: id, price'
    """
    names = list(existing)
    near = near_to(name, names)
    if near is not None:
        return f"did you mean {near!r}?"
    listed = ", ".join(sorted(names)[:10])
    return f"there are: {listed}{', …' if len(names) > 10 else ''}" if names else "there are none that this user may see"
