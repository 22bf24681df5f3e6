"""What an operator is given in the tests of the core without Spark, and what it gives back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tests.scripted import ArrowRows

if TYPE_CHECKING:
    from srj.lookup.operator import Operator


def as_batches(batches: list[list[int | None]]) -> list[tuple[pa.RecordBatch, tuple[pa.Array, ...]]]:
    """Batches whose rows know their number, in the form the operator takes."""
    made, number = [], 0
    for keys in batches:
        column = pa.array(keys, pa.int64())
        rows = pa.record_batch({"row": pa.array(range(number, number + len(keys)), pa.int64()), "key": column})
        made.append((rows, (column,)))
        number += len(keys)
    return made


def values_of(table: dict[int, int]) -> dict[Any, list[str]]:
    """Rows that carry their key, so that a mix-up shows."""
    return {key: [f"{key}/{number}" for number in range(count)] for key, count in table.items()}


def expected(batches: list[list[int | None]], rows: dict[Any, list[str]]) -> list[tuple[int, str]]:
    """The join, one row at a time, in the order of the input."""
    flat = [key for keys in batches for key in keys]
    return [(number, text) for number, key in enumerate(flat) for text in rows.get(key, [])]


def run_out_of_order(operator: Operator, batches: list[list[int | None]]) -> tuple[list[int], list[tuple[int, str]]]:
    """The rows that left, in the order of leaving, and their matches."""
    left, matches = [], []
    for leaving in operator.out_of_order(as_batches(batches), ArrowRows()):
        rows, joined = leaving.rows, leaving.joined
        numbers = rows["row"].to_pylist()
        left += numbers
        positions, found = joined.inner()
        matches += [(numbers[p], text) for p, text in zip(positions, found["value"].to_pylist(), strict=True)]
    return left, matches


def run_in_order(operator: Operator, batches: list[list[int | None]]) -> list[tuple[int, str]]:
    """The matches in the order of leaving."""
    matches, start = [], 0
    for joined in operator.in_order(keys for _, keys in as_batches(batches)):
        positions, found = joined.inner()
        matches += [(start + int(p), text) for p, text in zip(positions, found["value"].to_pylist(), strict=True)]
        start += len(joined.counts)
    assert start == sum(map(len, batches))
    return matches
