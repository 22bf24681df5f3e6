"""`srj.profile`: the tuner on a DataFrame."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import srj
from srj.options import parse_options
from srj.tuning import KeySequence, Prices, tune
from tests.sizing.traces import zipf

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


def test_a_dataframe_is_tuned_as_the_same_keys_in_a_file(spark: SparkSession, tmp_path: Path) -> None:
    """The keys in their order, a nested column too; the settings are those that `config=` loads."""
    keys = zipf(3_000, 600, 0.9, 1)
    frame = spark.createDataFrame([(int(key), index) for index, key in enumerate(keys)], "id bigint, n int")
    nested = frame.selectExpr("named_struct('id', id) AS item")
    expected = tune(KeySequence.of(keys), Prices(memory="90 rows"), curves=False)
    found = srj.profile(nested, {"item.id": "product_id"}, memory="90 rows", curves=False)
    assert isinstance(found, srj.Tuning)
    assert (found.references, found.distinct) == (3_000, np.unique(keys).size)
    assert found.trials == expected.trials
    assert found.notes == ()
    found.write(tmp_path / "srj.toml")
    cache: Any = parse_options({"config": tmp_path / "srj.toml"}).lookup.cache
    assert (cache.policy, cache.size) == (expected.best.policy, "90 rows")


def test_no_more_rows_than_allowed_are_read_and_that_is_said(spark: SparkSession) -> None:
    """The first ones, in their order, of all columns of the key; a row with a NULL is left out."""
    frame = spark.sql("SELECT id % 3 AS a, IF(id = 1, NULL, string(id % 2)) AS b FROM range(100)")
    found = srj.profile(frame, ["a", "b"], rows=10, curves=False)
    assert (found.references, found.distinct, found.nulls) == (9, 6, 1)
    assert "the first 10 rows" in found.notes[0]


def test_mistakes_are_one_sentence(spark: SparkSession) -> None:
    """A stream that can't be read twice, a column that is not there, what is no DataFrame."""
    stream = spark.readStream.format("rate").load()
    with pytest.raises(srj.RequestError, match=r"read what it was made from with spark\.read"):
        srj.profile(stream, "value")
    with pytest.raises(srj.RequestError, match="did you mean 'id'"):
        srj.profile(spark.range(3), "idd")
    with pytest.raises(srj.RequestError, match="got list"):
        srj.profile([1], "id")  # type: ignore[arg-type]
    with pytest.raises(srj.RequestError, match="rows"):
        srj.profile(spark.range(3), "id", rows=0)
