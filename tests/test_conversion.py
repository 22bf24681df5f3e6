"""Key conversion: lossless or refused, and every value as a plain Python rule says."""

from __future__ import annotations

import uuid
from datetime import date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from srj.databases.base import KeyColumn, KeyLimits
from srj.databases.conversion import check_key_type, convert_key
from srj.errors import RequestError

UTC_TIME = pa.timestamp("us", "UTC")
INTEGERS = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]


# The first example pays for what Arrow sets up, so a time-out for each would fail now and then.
unhurried = settings(deadline=None)


def key(arrow: pa.DataType, **limits: Any) -> KeyColumn:
    return KeyColumn("id", '"id"', "the db's type", arrow, "x", KeyLimits(**limits))


def check(values: list[Any], array: pa.Array, column: KeyColumn, expected: list[Any]) -> None:
    """`expected` holds what each value becomes; None for a NULL and for what is impossible."""
    check_key_type(array.type, column, "k")
    converted, impossible = convert_key(array, column)
    assert converted.type == column.type
    converted.validate(full=True)
    assert converted.to_pylist() == expected
    mask = [value is not None and wanted is None for value, wanted in zip(values, expected, strict=True)]
    assert (impossible is None) == (not any(mask))
    if impossible is not None:
        assert impossible.dtype == np.bool_
        assert impossible.tolist() == mask


def bounds(arrow: pa.DataType) -> tuple[int, int]:
    info = np.iinfo(arrow.to_pandas_dtype())
    return int(info.min), int(info.max)


def sliced(values: list[Any], arrow: pa.DataType) -> pa.Array:
    """With an offset into its buffers, as Spark's batches may have after a slice."""
    return pa.concat_arrays([pa.array([values[0] if values else None], arrow), pa.array(values, arrow)]).slice(1)


@unhurried
@given(st.data(), st.sampled_from(INTEGERS), st.sampled_from(INTEGERS))
def test_integers_become_any_integer_and_those_out_of_range_are_impossible(data: st.DataObject, source: Any, target: Any) -> None:
    """All widths, with and without sign."""
    values = data.draw(st.lists(st.none() | st.integers(*bounds(source)), max_size=20))
    low, high = bounds(target)
    expected = [value if value is not None and low <= value <= high else None for value in values]
    check(values, sliced(values, source), key(target), expected)


def decimals(precision: int, scale: int) -> st.SearchStrategy[Decimal]:
    """All magnitudes, and many with trailing zeros, which alone fit a smaller scale."""
    limit = 10**precision - 1
    digits = st.integers(-limit, limit) | st.integers(-9, 9).flatmap(
        lambda leading: st.integers(0, precision - 1).map(lambda zeros: leading * 10**zeros)
    )
    return digits.map(lambda number: Decimal(f"{number}e-{scale}"))  # read, not computed: arithmetic would round to 28 digits


shapes = st.integers(1, 38).flatmap(lambda precision: st.tuples(st.just(precision), st.integers(0, precision)))


def fitted(value: Decimal | int | None, precision: int, scale: int) -> Decimal | None:
    if value is None:
        return None
    shifted = Fraction(value) * 10**scale
    return Decimal(value) if shifted.denominator == 1 and abs(shifted) < 10**precision else None


@unhurried
@given(st.data(), shapes, shapes)
def test_decimals_become_other_decimals_if_they_fit_exactly(data: st.DataObject, source: Any, target: Any) -> None:
    """Every precision and scale; nothing is rounded."""
    values = data.draw(st.lists(st.none() | decimals(*source), max_size=20))
    expected = [fitted(value, *target) for value in values]
    check(values, sliced(values, pa.decimal128(*source)), key(pa.decimal128(*target)), expected)


@unhurried
@given(st.data(), st.sampled_from(INTEGERS), shapes)
def test_integers_become_decimals_if_they_fit(data: st.DataObject, source: Any, target: Any) -> None:
    """Also where the decimal's scale leaves no digit before the point."""
    values = data.draw(st.lists(st.none() | st.integers(*bounds(source)) | st.sampled_from([0, 1, 99]), max_size=20))
    check(values, sliced(values, source), key(pa.decimal128(*target)), [fitted(value, *target) for value in values])


@unhurried
@given(st.data(), st.integers(1, 38), st.sampled_from(INTEGERS))
def test_whole_decimals_become_integers_if_they_fit(data: st.DataObject, precision: int, target: Any) -> None:
    """Up to 38 digits."""
    values = data.draw(st.lists(st.none() | decimals(precision, 0), max_size=20))
    low, high = bounds(target)
    expected = [int(value) if value is not None and low <= value <= high else None for value in values]
    check(values, sliced(values, pa.decimal128(precision, 0)), key(target), expected)


texts = st.lists(st.none() | st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from("\0a😀\uffff")), max_size=20)


@unhurried
@given(texts, st.sampled_from([pa.string(), pa.large_string(), pa.string_view()]), st.booleans(), st.booleans())
def test_text_that_the_column_cannot_hold_is_impossible(values: list[Any], source: Any, no_nul: bool, bmp_only: bool) -> None:
    """NUL characters and those beyond U+FFFF, where the database lacks them."""

    def storable(text: str | None) -> bool:
        return (
            text is not None and not (no_nul and "\0" in text) and not (bmp_only and any(ord(letter) > 0xFFFF for letter in text))
        )

    expected = [value if storable(value) else None for value in values]
    check(values, sliced(values, source), key(pa.string(), no_nul=no_nul, bmp_only=bmp_only), expected)


@unhurried
@given(st.lists(st.none() | st.binary(max_size=6) | st.text(max_size=3).map(str.encode), max_size=20), st.booleans())
def test_text_that_is_no_utf8_is_impossible(values: list[Any], no_nul: bool) -> None:
    """Spark's strings may hold any bytes; what Python can't decode, no database holds."""

    def decoded(raw: bytes | None) -> str | None:
        try:
            text = None if raw is None else raw.decode()
        except UnicodeDecodeError:
            return None
        return None if text is None or (no_nul and "\0" in text) else text

    raw = sliced(values, pa.binary())
    array = pa.Array.from_buffers(pa.string(), len(raw), raw.buffers(), offset=raw.offset)
    check(values, array, key(pa.string(), no_nul=no_nul), [decoded(value) for value in values])
    converted, _ = convert_key(array, key(pa.string(), uuid=True))
    assert converted.null_count == len(values)


def postgres_uuid(text: str | None) -> str | None:
    """PostgreSQL's rule: hyphens after any group of four digits, and a pair of braces around."""
    if text is None:
        return None
    if text.startswith("{") and text.endswith("}"):
        text = text[1:-1]
    position, digits = 0, ""
    while len(digits) < 32:
        group = text[position : position + 4]
        if len(group) < 4 or any(letter not in "0123456789abcdefABCDEF" for letter in group):
            return None
        digits, position = digits + group, position + 4
        if len(digits) < 32 and text[position : position + 1] == "-":
            position += 1
    return str(uuid.UUID(digits)) if position == len(text) else None


forms = st.uuids().flatmap(
    lambda value: st.sampled_from(
        [
            *(str(value), value.hex, value.hex.upper(), f"{{{value}}}", "-".join(value.hex[i : i + 4] for i in range(0, 32, 4))),
            *(f"{{{value}", f"{value} ", f"{value}0", f"{value}\n", str(value)[:-1], f"{str(value)[:-1]}é", value.urn),
            str(value).replace("-", "--"),
        ]
    )
)


@unhurried
@given(st.lists(st.none() | forms | st.text(max_size=3), max_size=20))
def test_text_becomes_a_canonical_uuid_or_is_impossible(values: list[Any]) -> None:
    """Every form that PostgreSQL reads, and none that it refuses."""
    check(values, sliced(values, pa.string()), key(pa.string(), uuid=True), [postgres_uuid(value) for value in values])


@unhurried
@given(st.lists(st.none() | st.integers(-(2**31), 2**31 - 1), max_size=20), st.integers(-1000, 0), st.none() | st.integers(0, 1000))
def test_dates_beyond_the_databases_are_impossible(days: list[Any], lowest: int, highest: int | None) -> None:
    """Bounds are inclusive, and either may be missing; dates are days here, since Python's end in the year 9999."""
    array = sliced(days, pa.int32()).view(pa.date32())
    converted, impossible = convert_key(array, key(pa.date32(), lowest=lowest, highest=highest))
    expected = [day if day is not None and lowest <= day and (highest is None or day <= highest) else None for day in days]
    assert converted.type == pa.date32()
    assert converted.view(pa.int32()).to_pylist() == expected
    mask = [day is not None and wanted is None for day, wanted in zip(days, expected, strict=True)]
    assert (impossible is None) == (not any(mask))
    assert impossible is None or impossible.tolist() == mask


@unhurried
@given(st.lists(st.none() | st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30)), max_size=20))  # noqa: DTZ001
def test_timestamps_keep_their_instant_whatever_the_sessions_zone(values: list[Any]) -> None:
    """A zone is a way to show an instant; timestamps without one pass as they are."""
    plain = sliced(values, pa.timestamp("us"))
    check(values, plain, key(pa.timestamp("us")), values)
    converted, impossible = convert_key(plain.cast(UTC_TIME).cast(pa.timestamp("us", "Asia/Kolkata")), key(UTC_TIME))
    assert converted.cast(pa.int64()).equals(plain.cast(pa.int64()))
    assert impossible is None


def test_values_of_the_keys_own_type_are_not_copied() -> None:
    """The usual path hands the very buffers on."""
    for values, arrow, limits in [([1, 2], pa.int64(), {}), (["a", "b"], pa.string(), {"no_nul": True}), ([b"x"], pa.binary(), {})]:
        array = pa.array(values, arrow)
        converted, impossible = convert_key(array, key(arrow, **limits))
        assert [buffer and buffer.address for buffer in converted.buffers()] == [
            buffer and buffer.address for buffer in array.buffers()
        ]
        assert impossible is None


@pytest.mark.parametrize("arrow", [pa.int64(), pa.string(), pa.date32(), pa.decimal128(5, 2), UTC_TIME])
def test_empty_and_null_only_batches_pass(arrow: pa.DataType) -> None:
    """Nothing is impossible there."""
    for values in ([], [None, None]):
        check(values, pa.array(values, arrow), key(arrow, no_nul=True, lowest=0), values)


OTHERS = [
    ([1.5, None, float("inf")], pa.float32(), pa.float64()),
    ([b"ab", None], pa.binary(2), pa.binary()),
    ([b"ab", None], pa.large_binary(), pa.binary()),
    ([True, None], pa.bool_(), pa.bool_()),
    ([date(2020, 1, 1) + timedelta(1)], pa.date32(), pa.date32()),
]


@pytest.mark.parametrize(("values", "source", "target"), OTHERS)
def test_other_lossless_conversions(values: list[Any], source: pa.DataType, target: pa.DataType) -> None:
    """Floats widen; binaries and booleans pass."""
    check(values, pa.array(values, source), key(target), values)


REFUSED = [
    (pa.string(), pa.int32(), "BIGINT"),
    (pa.int64(), pa.string(), "STRING"),
    (pa.float64(), pa.int64(), "BIGINT"),
    (pa.int32(), pa.float64(), "DOUBLE"),
    (pa.float64(), pa.float32(), "FLOAT"),
    (pa.float64(), pa.decimal128(9, 2), "DECIMAL(9,2)"),
    (pa.decimal128(9, 2), pa.float64(), "DOUBLE"),
    (pa.decimal128(9, 2), pa.int64(), "BIGINT"),
    (pa.decimal128(9, 2), pa.string(), "STRING"),
    (pa.string(), pa.uint64(), "DECIMAL(20,0)"),
    (pa.date32(), pa.timestamp("us"), "TIMESTAMP_NTZ"),
    (pa.timestamp("us"), pa.date32(), "DATE"),
    (pa.timestamp("us"), UTC_TIME, "TIMESTAMP"),
    (UTC_TIME, pa.timestamp("us"), "TIMESTAMP_NTZ"),
    (pa.bool_(), pa.int32(), "BIGINT"),
    (pa.int32(), pa.bool_(), "BOOLEAN"),
    (pa.string(), pa.binary(), "BINARY"),
    (pa.binary(), pa.string(), "STRING"),
]


FRACTIONS = {pa.float64(), pa.decimal128(9, 2)}


@pytest.mark.parametrize(("source", "target", "cast"), REFUSED)
def test_a_lossy_type_is_refused_with_the_cast_that_is_then_accepted(source: pa.DataType, target: pa.DataType, cast: str) -> None:
    """The message names both columns, both types and the cast."""
    with pytest.raises(RequestError) as caught:
        check_key_type(source, key(target), "order.id")
    message = str(caught.value)
    assert "order.id of type" in message
    assert "table's id (the db's type)" in message
    assert message.endswith(f"write CAST(order.id AS {cast})")
    assert ("if all its values are whole, " in message) == (cast == "BIGINT" and source in FRACTIONS)
    known = {"BIGINT": pa.int64(), "STRING": pa.string(), "DOUBLE": pa.float64(), "FLOAT": pa.float32(), "BINARY": pa.binary()}
    known |= {"DATE": pa.date32(), "TIMESTAMP": UTC_TIME, "TIMESTAMP_NTZ": pa.timestamp("us"), "BOOLEAN": pa.bool_()}
    known |= {"DECIMAL(9,2)": pa.decimal128(9, 2), "DECIMAL(20,0)": pa.decimal128(20, 0)}
    check_key_type(known[cast], key(target), "order.id")


def test_what_spark_can_not_cast_is_refused_without_one() -> None:
    """An advice that fails is none."""
    with pytest.raises(RequestError, match=r"array<bigint>; name another column, for Spark has no cast to BIGINT$"):
        check_key_type(pa.list_(pa.int64()), key(pa.int64()), "order.id")


def test_a_column_name_that_needs_quotes_gets_them_in_the_cast() -> None:
    """Spark's, which are backticks."""
    with pytest.raises(RequestError, match="CAST\\(`order ``id` AS BIGINT\\)"):
        check_key_type(pa.string(), key(pa.int64()), "order `id")


def test_decimals_wider_than_an_unbounded_columns_keys_are_refused() -> None:
    """Such a value may be in the table, so it must not be taken for impossible."""
    unbounded = key(pa.decimal128(38, 18), any_precision=True)
    check_key_type(pa.decimal128(38, 18), unbounded, "k")
    check_key_type(pa.int64(), unbounded, "k")
    for wider in (pa.decimal128(38, 19), pa.decimal128(38, 0)):
        with pytest.raises(RequestError, match=r"DECIMAL\(38,18\)"):
            check_key_type(wider, unbounded, "k")
