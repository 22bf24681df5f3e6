"""A table without an index on its key: a batch of keys reads it once, however many they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from srj import Batch
from srj.lookup.operator import Operator

if TYPE_CHECKING:
    from tests.ground import Ground

ROWS, KEYS, LOOKUPS = 20_000, 2_000, 4


def rows_read(ground: Ground) -> int:
    """By scans of the table so far, as the server counts them."""
    if ground.is_postgres:
        ground.sql("SELECT pg_stat_clear_snapshot()")
        return int(ground.sql("SELECT seq_tup_read FROM pg_stat_user_tables WHERE relname = 'heap'")[0][0])
    return int(ground.sql("SHOW GLOBAL STATUS LIKE 'Handler_read_rnd_next'")[0][1])


def test_keys_of_a_batch_share_one_scan(ground: Ground) -> None:
    """The server's own counters: as many rows as the lookups read the table, not as the keys would."""
    ground.table("heap", "id int, v int")
    numbers = f"generate_series(1, {ROWS}) AS id" if ground.is_postgres else f"(SELECT seq AS id FROM seq_1_to_{ROWS}) numbers"
    ground.sql(f"INSERT INTO heap SELECT id, 7 * id FROM {numbers}")
    ground.sql("ANALYZE heap" if ground.is_postgres else "ANALYZE TABLE heap")
    keys = pa.array(range(0, 10 * KEYS, 10), pa.int32())
    with ground.engine("heap", batch=Batch(size=KEYS // LOOKUPS, in_flight=1)) as engine:
        operator = Operator(engine)
        before = rows_read(ground)
        [joined] = operator.in_order([(keys,)])
        assert joined.outer()[1]["v"].to_pylist() == [7 * key or None for key in keys.to_pylist()]
        assert operator.metrics.batches == LOOKUPS
    # After the connection has ended, which is when PostgreSQL tells what it has read.
    read = rows_read(ground) - before
    assert LOOKUPS * ROWS <= read <= 1.2 * LOOKUPS * ROWS
