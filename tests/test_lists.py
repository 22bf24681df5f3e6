"""Packed lists, read from arrays of every form that Arrow has."""

from __future__ import annotations

import struct
from typing import Any

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import given, settings

from srj.databases.base import Column
from srj.databases.lists import list_of, shown, unpacked
from srj.errors import LookupFailedError

NUMBERS = st.none() | st.integers(-(2**31), 2**31 - 1)
TEXTS = st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=4)


def packed(elements: list[Any] | None) -> bytes | None:
    """As PostgreSQL packs a list."""
    if elements is None:
        return None
    sent = [None if one is None else one.encode() if isinstance(one, str) else struct.pack(">i", one) for one in elements]
    lengths = [-1 if one is None else len(one) for one in sent]
    return struct.pack(f">{1 + len(sent)}i", len(sent), *lengths) + b"".join(one for one in sent if one is not None)


@settings(deadline=None)
@given(st.data(), st.sampled_from([(NUMBERS, pa.int32()), (TEXTS, pa.string())]), st.integers(0, 3), st.integers(0, 3))
def test_lists_come_out_as_they_were_packed(data: st.DataObject, kind: tuple[Any, pa.DataType], before: int, after: int) -> None:
    """Slices too, and NULLs that have bytes, which Arrow allows."""
    elements, arrow = kind
    rows = data.draw(st.lists(st.none() | st.lists(elements, max_size=4), max_size=8))
    whole = pa.array([packed(row) for row in [[7 if arrow == pa.int32() else "x"]] * before + rows + [[None]] * after], pa.binary())
    values = whole.slice(before, len(rows))
    found = unpacked(values, list_of(arrow), "tags")
    assert found.type == list_of(arrow)
    found.validate(full=True)
    assert found.to_pylist() == rows
    hidden = data.draw(st.lists(st.booleans(), min_size=len(whole), max_size=len(whole)))
    mask = pa.array([not one for one in hidden], pa.bool_())
    masked = pa.Array.from_buffers(pa.binary(), len(whole), [_and(whole, mask), *whole.buffers()[1:]]).slice(before, len(rows))
    expected = [None if lost else row for lost, row in zip(hidden[before:], rows, strict=False)]
    assert unpacked(masked, list_of(arrow), "tags").to_pylist() == expected


def _and(values: pa.Array, mask: pa.Array) -> pa.Buffer | None:
    """The validity of those that have one and that the mask keeps."""
    kept = [valid and keep for valid, keep in zip(values.is_valid().to_pylist(), mask.to_pylist(), strict=True)]
    return pa.array(kept, pa.bool_()).buffers()[1] if kept else None


def test_rows_without_lists_are_handed_on_as_they_are() -> None:
    """And of those with some, the other columns."""
    rows = pa.record_batch({"n": pa.array([1, 2]), "tags": pa.array([packed(["a"]), None], pa.binary())})
    number, bytes_ = Column("n", "n", "int8", pa.int64()), Column("tags", "tags", "bytea", pa.binary())
    assert shown(rows, [number, bytes_]) is rows
    lists = shown(rows, [number, Column("tags", "tags", "text[]", list_of(pa.string()))])
    assert lists.to_pydict() == {"n": [1, 2], "tags": [["a"], None]}


def test_an_array_of_several_dimensions_is_no_list() -> None:
    """As PostgreSQL says of one."""
    with pytest.raises(LookupFailedError, match=r"one dimension in column tags, got one of several; write array_to_json"):
        unpacked(pa.array([struct.pack(">i", -1)], pa.binary()), list_of(pa.int32()), "tags")
