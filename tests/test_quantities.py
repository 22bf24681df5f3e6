"""Durations, sizes and numbers that can't be: each a `RequestError` in one line, whatever their length or type."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from srj import Batch, Cache, RequestError
from srj.options import parse_options
from srj.quantities import number_from, parse_duration, parse_size, shown

HUGE = 10**400
UNWRITABLE = 10**5000  # Python refuses to write it out


@pytest.mark.parametrize(
    "size",
    ["9" * 400 + " MB", "9" * 400 + " rows", "9" * 25, "10000000000 GB", HUGE, UNWRITABLE, 2**63, "1_ MB", "1__0 rows", "_1 MB",
     0, -1, True, 1.5, math.nan, math.inf, None, "", "128", [1], np.array([1, 2])],
    ids=shown,
)  # fmt: skip
def test_a_size_that_no_memory_has_is_refused(size: Any) -> None:
    """As is what is no size at all."""
    with pytest.raises(RequestError, match="expected a cache size such as '128 MB'") as refused:
        Cache(size=size)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 200


@pytest.mark.parametrize("name", ["ttl", "missing_ttl"])
@pytest.mark.parametrize(
    "duration",
    [HUGE, -HUGE, UNWRITABLE, "9" * 400 + " s", "1_ s", "1__0 s", math.nan, math.inf, 0, -1, True, "", "5", [5], np.array([1, 2])],
    ids=shown,
)
def test_a_duration_that_never_ends_by_its_number_is_refused(duration: Any, name: str) -> None:
    """For ever is None or "forever"."""
    with pytest.raises(RequestError, match=f"expected {name} as a duration above zero") as refused:
        Cache(**{name: duration})
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 200


@pytest.mark.parametrize("size", [UNWRITABLE, np.array([1, 2]), "automatic", 0, 1.5, math.nan], ids=shown)
def test_a_batch_size_is_a_number_within_bounds(size: Any) -> None:
    """Or auto."""
    with pytest.raises(RequestError, match="expected batch size as a whole number from 1 to 100000"):
        Batch(size=size)


@pytest.mark.parametrize("value", [UNWRITABLE, np.zeros((2, 2)), b"a", [1], "a\0b"], ids=shown)
@pytest.mark.parametrize(
    "option",
    ["cache", "where", "prefix", "order_by", "connect_timeout", "lookup_timeout", "retries", "batch", "metrics", "how", "config"],
)
def test_an_option_of_another_type_is_refused_in_one_line(option: str, value: Any) -> None:
    """Whatever it is; a text may have any characters, except where a file is named."""
    if isinstance(value, str) and option in ("where", "prefix"):
        parse_options({option: value})  # type: ignore[misc]
        return
    with pytest.raises(RequestError, match=r"^expected ") as refused:
        parse_options({option: value})  # type: ignore[misc]
    assert "\n" not in str(refused.value)


def test_what_is_at_the_bounds_is_taken() -> None:
    """With underscores where Python takes them."""
    assert parse_size(2**63 - 1) == (2**63 - 1, "bytes")
    assert parse_size("1_000_0 rows") == (10_000, "rows")
    assert parse_size("1.5 KiB") == (1536, "bytes")
    assert parse_duration("ttl", "1_0.5 s") == 10.5
    assert parse_duration("ttl", 10**300) == 1e300


def test_a_number_is_bounded_below_and_never_nan() -> None:
    """Whatever its type."""
    assert number_from("x", np.float32(0.5), 0) == 0.5
    assert number_from("x", 0, 0) == 0
    assert number_from("x", HUGE, 0) == math.inf
    for value in (math.nan, np.float32("nan"), -1, -HUGE, -math.inf, True, "1", None, 1j, [1]):
        with pytest.raises(RequestError, match="expected x as a number of at least 0"):
            number_from("x", value, 0)
    with pytest.raises(RequestError, match="expected x as a number above 0, got 0"):
        number_from("x", 0, 0, above=True)


def test_a_message_shows_a_value_on_one_line() -> None:
    """And the type of what Python does not write."""
    assert shown(np.zeros((2, 2))) == "array([[0., 0.], [0., 0.]])"
    assert shown(UNWRITABLE) == "a very large int"
    assert len(shown("x" * 1000)) == 61
