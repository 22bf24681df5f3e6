"""Stream rows and their matches: inner, outer, and in pieces."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from srj.lookup import joined as module
from srj.lookup.joined import Joined, concat_rows, row_bytes
from srj.lookup.operator import Operator
from tests.scripted import Scripted, scripted_engine

if TYPE_CHECKING:
    import pytest

RUNS = st.lists(st.lists(st.text(max_size=8), max_size=3), max_size=20)


def shuffled(runs: list[list[str]]) -> Joined:
    """The runs as a Joined whose source holds them in the opposite order."""
    texts = [text for run in reversed(runs) for text in run]
    counts = np.array([len(run) for run in runs], np.int32)
    return Joined(counts, pa.record_batch({"t": pa.array(texts, pa.string())}), len(texts) - np.cumsum(counts, dtype=np.int64))


@settings(deadline=None)
@given(RUNS)
def test_inner_and_outer_follow_the_stream(runs: list[list[str]]) -> None:
    """Matches come out in the stream's order; outer adds a NULL for a row without any."""
    positions, rows = shuffled(runs).inner()
    assert positions.tolist() == [number for number, run in enumerate(runs) for _ in run]
    assert rows["t"].to_pylist() == [text for run in runs for text in run]
    at, rows = shuffled(runs).outer()
    assert rows["t"].to_pylist() == [text for run in runs for text in (run or [None])]
    assert (list(range(len(runs))) if at is None else at.tolist()) == [
        number for number, run in enumerate(runs) for _ in run or [0]
    ]


@settings(deadline=None)
@given(RUNS, st.integers(1, 9), st.integers(1, 30))
def test_pieces_keep_to_rows_and_bytes_and_lose_nothing(runs: list[list[str]], most_rows: int, most_bytes: int) -> None:
    """Put together again they are the whole; only a single stream row may exceed a limit."""
    whole = shuffled(runs)
    texts, begins = [], []
    for begin, piece in whole.pieces(most_rows, most_bytes):
        begins.append(begin)
        rows = piece.outer()[1]
        texts += rows["t"].to_pylist()
        assert len(piece.counts) == 1 or (rows.num_rows <= most_rows and row_bytes(rows).sum() <= most_bytes)
    assert texts == whole.outer()[1]["t"].to_pylist()
    assert begins == sorted(set(begins))


def test_more_text_than_32_bits_address_is_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the limit the parts get 64-bit offsets, and what is taken has the declared types again."""
    monkeypatch.setattr(module, "_MOST_TEXT", 10)
    part = pa.record_batch({"t": ["0123456789"], "n": pa.array([1], pa.int32())})
    source = concat_rows([part, part])
    assert source.schema.field("t").type == pa.large_string()
    rows = Joined(np.array([1, 1], np.int32), source, np.array([1, 0])).inner()[1]
    assert rows.schema == part.schema
    assert rows.num_rows == 2


def test_probes_are_cut_where_rows_are_large() -> None:
    """After an answer of 1 MB, no more than 1 GB of such rows comes out of the cache at once."""
    engine = scripted_engine(Scripted({1: ["x" * 2**20]}), cache="8 MB")
    try:
        list(Operator(engine).in_order([(pa.array([1]),)]))
        parts = list(Operator(engine).in_order([(pa.array([1] * 1500),)]))
    finally:
        engine.close()
    assert [len(part.counts) for part in parts] == [1024, 476]
