"""A trace's keys: which are the same, which are left out, and samples of them."""

from __future__ import annotations

import datetime as dt
import os
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from srj.errors import RequestError
from srj.tuning import KeySequence, read_trace
from tests.sizing.traces import zipf

if TYPE_CHECKING:
    from pathlib import Path

    from tests import servers
    from tests.ground import Ground


@pytest.mark.parametrize(
    "values",
    [
        [3, 1, 3, None, 2],
        ["b", "a", "b", None, "größe\0"],
        [b"\xff", b"", b"\xff", None, b"\0"],
        [True, False, True, None, True],
        [1.5, -0.5, 1.5, None, float("inf")],
        [Decimal("1.10"), Decimal("2.00"), Decimal("1.10"), None, Decimal("1.00")],
        [dt.date(2024, 1, 1), dt.date(1969, 1, 1), dt.date(2024, 1, 1), None, dt.date(2024, 1, 2)],
        [dt.datetime(2024, 1, 1, 5), dt.datetime(1969, 1, 1), dt.datetime(2024, 1, 1, 5), None, dt.datetime(2024, 1, 2)],  # noqa: DTZ001
    ],
)
def test_keys_of_every_type_are_numbered_as_they_first_come(values: list[Any]) -> None:
    """Also where they come in pieces, or as a dictionary; NULLs are counted and left out."""
    whole = pa.array(values)
    seen: dict[Any, int] = {}
    expected = [seen.setdefault(value, len(seen)) for value in values if value is not None]
    for chunks in ([[whole]], [[whole.slice(0, 2)], [whole.slice(2)]], [[whole.dictionary_encode()]]):
        keys = KeySequence.from_chunks(chunks)
        assert keys.codes.tolist() == expected
        assert (keys.references, keys.distinct, keys.nulls) == (4, len(seen), 1)


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([0.0, -0.0, 1.5, 0.0], pa.float64()),
        ([Decimal(0), Decimal("-0.00"), Decimal("1.50"), Decimal("0.0")], pa.decimal128(38, 2)),
    ],
)
def test_numbers_that_a_database_calls_equal_are_one_key(values: list[Any], kind: pa.DataType) -> None:
    """In a column of another scale too, and to the last of 38 digits."""
    keys = KeySequence.from_chunks([[pa.array(values, kind)]])
    assert keys.codes.tolist() == [0, 0, 1, 0]
    cents = pa.array([Decimal("1.5"), Decimal("123456789012345678901234567890123456.78")], pa.decimal128(38, 2))
    finer = pa.array([Decimal("1.5"), Decimal("1234567890123456789012345678901234.5678")], pa.decimal128(38, 4))
    assert KeySequence.from_chunks([[cents], [finer]]).codes.tolist() == [0, 1, 0, 2]


def test_a_composite_key_is_the_same_only_if_all_its_parts_are() -> None:
    """In their order; a NULL in one part leaves the row out."""
    first, second = pa.array([1, 2, 1, 1, None, 1]), pa.array([2, 1, 2, 1, 1, None])
    keys = KeySequence.from_chunks([[first, second]])
    assert keys.codes.tolist() == [0, 1, 0, 2]
    assert keys.nulls == 2


def test_a_sample_has_all_references_of_its_keys_in_their_order() -> None:
    """And about the share of the keys that was asked for."""
    keys = KeySequence.of(zipf(50_000, 10_000, 0.5, 1))
    sample = keys.sampled(0.25)
    assert sample.distinct == pytest.approx(keys.distinct / 4, rel=0.1)
    of_all = keys.hashes[keys.codes]
    assert np.array_equal(sample.hashes[sample.codes], of_all[np.isin(of_all, sample.hashes)])
    assert keys.sampled(1.0) is keys


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_files_are_read_piece_by_piece_with_the_share_that_is_done(tmp_path: Path, kind: str) -> None:
    """Parquet and CSV, NULLs left out; numbers in a CSV may become text further down."""
    path, values = tmp_path / f"trace.{kind}", [*range(600_000), *range(1000), None]
    table = pa.table({"id": values, "other": values})
    if kind == "parquet":
        pq.write_table(table, path)
    else:
        path.write_text("id,other\n" + "\n".join(f"{'' if v is None else v},x" for v in values) + "\nA1,x\n")
    told: list[tuple[float | None, int]] = []
    keys = read_trace(path, ["id"], progress=lambda share, rows: told.append((share, rows)))
    assert (keys.distinct, keys.nulls) == (600_000 + (kind == "csv"), 1)
    assert np.array_equal(keys.codes[600_000:601_000], np.arange(1000))
    shares, rows = zip(*told, strict=True)
    assert len(told) > 1
    assert list(shares) == sorted(shares)
    assert shares[-1] == 1.0
    assert rows[-1] == keys.references + 1
    assert read_trace(path, ["id"], rows=7).references == 7


def test_what_arrow_treats_in_ways_of_its_own_is_read_all_the_same(tmp_path: Path) -> None:
    """Lines that end within quotes, wherever its blocks end; views, which it does not filter; a folder named like a file."""
    quoted = tmp_path / "quoted.csv"
    quoted.write_text("k,v\n" + '"a\nb",345\n' * 150_000)
    assert read_trace(quoted, ["k"]).references == 150_000
    views = pa.array(["a", None, "b", "a"]).cast(pa.string_view())
    assert KeySequence.from_chunks([[views]]).codes.tolist() == [0, 1, 0]
    (tmp_path / "all" / "x.parquet").mkdir(parents=True)
    pq.write_table(pa.table({"id": [1, 2]}), tmp_path / "all" / "x.parquet" / "1.parquet")
    assert read_trace(tmp_path / "all", ["id"]).references == 2
    broken = pa.Array.from_buffers(pa.string(), 1, [None, pa.array([0, 1], pa.int32()).buffers()[1], pa.py_buffer(b"\xff")])
    with pytest.raises(RequestError, match=r"^expected keys that can be compared"):
        KeySequence.from_chunks([[broken]])


def test_only_an_empty_field_of_a_csv_is_no_key(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text('id,x\nNA,1\nnull,1\nNaN,1\n,1\n"",1\nN/A,1\nNA,1\n')
    keys = read_trace(path, ["id"])
    assert (keys.references, keys.distinct, keys.nulls) == (6, 5, 1)


def test_a_folder_of_parquet_files_is_read_as_spark_would_stream_it(tmp_path: Path) -> None:
    """The oldest file first, partitions too, and nothing of what is not data."""
    folder = tmp_path / "orders"
    for age, name in enumerate(["a.parquet", "day=2/b.parquet", "day=1/c.parquet", "_temporary/d.parquet", ".e.parquet"]):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"id": [10 * age, 10 * age + 1]}), folder / name)
        os.utime(folder / name, (1_000 - age, 1_000 - age))
    told: list[float | None] = []
    keys = read_trace(folder, ["id"], progress=lambda share, _rows: told.append(share))
    in_order = KeySequence.of(np.array([20, 21, 10, 11, 0, 1]))
    assert np.array_equal(keys.hashes[keys.codes], in_order.hashes[in_order.codes])
    assert told[-1] == 1.0
    (tmp_path / "empty").mkdir()
    (folder / "zz.parquet").write_bytes(b"PAR1, cut off")
    with pytest.raises(RequestError, match=r"^expected parquet in '[^\n]*/orders/zz\.parquet', got [^\n]*$"):
        read_trace(folder, ["id"])
    with pytest.raises(RequestError, match=r"^expected a folder with \.parquet files, got none in [^\n]*$"):
        read_trace(tmp_path / "empty", ["id"])


@pytest.mark.parametrize(
    ("name", "content", "key", "expected"),
    [
        ("none.csv", None, "id", "none.csv"),
        ("trace.csv", "id\n1\n", "ids", "did you mean 'id'?"),
        ("trace.csv", "id\n", "id", "at least one key"),
        ("trace.parquet", "id\n1\n", "id", "expected parquet"),
        ("trace.json", "{}", "id", "'trace.json'; convert it"),
        ("trace.csv", "id\n1\n", "", "expected the name of a column as the key"),
        ("trace.csv", "id,id\n1,2\n", "id", "got 2; rename the others"),
        ("tra\0ce.csv", None, "id", "null byte; convert it"),
    ],
)
def test_what_can_not_be_read_is_said_in_one_sentence(
    tmp_path: Path, name: str, content: str | None, key: str, expected: str
) -> None:
    """With the file's name and what to do."""
    if content is not None:
        (tmp_path / name).write_text(content)
    with pytest.raises(RequestError, match=r"^expected [^\n]*$") as caught:
        read_trace(tmp_path / name, [key])
    assert expected in str(caught.value)


def test_a_tables_columns_are_a_trace(ground: Ground) -> None:
    """In the order asked for, under a condition, of numbers and texts; the server's rows come in pieces."""
    ground.table("past", "at int, id bigint, site varchar(9)")
    values = ", ".join(f"({99 - at}, {at % 7}, {'NULL' if at == 5 else repr('s' + str(at % 3))})" for at in range(100))
    ground.sql(f"INSERT INTO past VALUES {values}")
    source = f"{ground.url}#past"
    keys = read_trace(source, ["id"], order_by="at", where="at >= 10 -- later ones")
    expected = [(99 - at) % 7 for at in range(10, 100)]
    first = list(dict.fromkeys(expected))
    assert keys.codes.tolist() == [first.index(key) for key in expected]
    both = read_trace(source, ["id", "site"], rows=50, order_by="at DESC")
    assert (both.references, both.distinct, both.nulls) == (49, 21, 1)


def test_a_large_table_comes_in_several_pieces(postgres: servers.Server) -> None:
    """None of its rows is lost between them."""
    postgres.execute("CREATE TABLE tuned_past AS SELECT i % 40000 AS id FROM generate_series(0, 149999) i; ANALYZE tuned_past")
    told: list[int] = []
    try:
        keys = read_trace(f"{postgres.url}#tuned_past", ["id"], order_by="ctid", progress=lambda _share, rows: told.append(rows))
    finally:
        postgres.execute("DROP TABLE tuned_past")
    assert len(told) == 3
    assert told[-1] == 150_000
    assert np.array_equal(keys.codes, np.arange(150_000) % 40_000)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (pa.array([1]), pa.array(["1"])),
        (pa.array([1]), pa.array([1.0])),
        (pa.array([1], pa.date32()), pa.array([86_400_000], pa.date64())),
        (pa.array([1000], pa.timestamp("us")), pa.array([1_000_000], pa.timestamp("ns"))),
    ],
)
def test_pieces_in_which_one_key_would_be_two_are_refused(one: pa.Array, other: pa.Array) -> None:
    with pytest.raises(RequestError, match="expected keys of one type in all pieces, got "):
        KeySequence.from_chunks([[one], [other]])


def test_of_a_composite_key_each_column_has_its_type() -> None:
    """Also where in one piece the first is NULL throughout, which has none."""
    pieces = [(pa.array([1]), pa.array(["a"])), (pa.nulls(2), pa.array(["a", "b"])), (pa.array([1]), pa.array(["b"]))]
    keys = KeySequence.from_chunks(pieces)
    assert (keys.distinct, keys.nulls) == (2, 2)
    with pytest.raises(RequestError, match="expected keys of one type in all pieces, got string and int64"):
        KeySequence.from_chunks([*pieces, (pa.array([1]), pa.array([2]))])


def test_pieces_may_differ_in_what_makes_no_other_key() -> None:
    """Widths of whole numbers, forms of texts, zones, scales."""
    for one, other in (
        (pa.array([7], pa.int32()), pa.array([7], pa.int64())),
        (pa.array(["a"]), pa.array(["a"]).dictionary_encode()),
        (pa.array(["a"]), pa.array(["a"], pa.large_string())),
        (pa.array([5], pa.timestamp("us")), pa.array([5], pa.timestamp("us", "UTC"))),
        (pa.array([Decimal("1.5")]), pa.array([Decimal("1.500")])),
        (pa.array([7]), pa.nulls(3)),
    ):
        assert KeySequence.from_chunks([[one], [other]]).distinct == 1
