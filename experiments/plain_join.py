"""What a join must give: the same rows by Arrow's own hash join, compared by a checksum that does not see their order."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pyarrow as pa

from srj.experiments.experiment import Checksum

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy.typing as npt

    U64 = npt.NDArray[np.uint64]

_NULL = np.uint64(0x9E3779B97F4A7C15)
_TIMES = np.uint64(0xFF51AFD7ED558CCD)  # odd, so that columns can't be exchanged


def plain_join(keys: npt.NDArray[np.int64], relation: pa.Table) -> pa.Table:
    """Each key with its row of the relation, NULLs where it has none, in any order; column ``id`` is the key."""
    return pa.table({"id": keys}).join(relation, "id", join_type="left outer").select(relation.schema.names)


def checksum(rows: pa.Table) -> Checksum:
    """Of a table's rows.

    >>> table = pa.table({"id": [1, 2], "name": ["a", None]})
    >>> checksum(table) == checksum(table.take([1, 0])), checksum(table) == checksum(table.take([1, 1]))
    (True, False)
    """
    hashes = np.zeros(rows.num_rows, np.uint64)
    for column in rows.columns:
        # What stands for the columns before must differ for the same value: else 1, 2 would equal 2, 1.
        hashes = (hashes ^ (hashes >> np.uint64(31))) * _TIMES + _hashed(column)
    return Checksum(rows.num_rows, int(hashes.sum(dtype=np.uint64)))


def added(sums: Iterable[Checksum]) -> Checksum:
    """That of all rows together."""
    rows, hashes = 0, 0
    for one in sums:
        rows, hashes = rows + one.rows, (hashes + one.hashes) % 2**64
    return Checksum(rows, hashes)


def compared(outputs: Sequence[Checksum], plain_joins: Sequence[Checksum]) -> tuple[Checksum, Checksum]:
    """The first of several outputs that is not its plain join's, with that; else the sums of all.

    In sums alone a row that one output lacks would make up for one that another has twice.

    >>> compared([Checksum(1, 5), Checksum(3, 9)], [Checksum(2, 7), Checksum(2, 7)])
    (Checksum(rows=1, hashes=5), Checksum(rows=2, hashes=7))
    """
    pairs = zip(outputs, plain_joins, strict=True)
    return next((pair for pair in pairs if pair[0] != pair[1]), (added(outputs), added(plain_joins)))


def _hashed(column: pa.ChunkedArray) -> U64:
    encoded = column.combine_chunks().dictionary_encode()
    values = encoded.dictionary.to_numpy(zero_copy_only=False)
    by_value = np.append(pd.util.hash_array(values, categorize=False), _NULL)
    codes = encoded.indices.fill_null(len(values)).to_numpy()
    return np.asarray(by_value[codes], np.uint64)
