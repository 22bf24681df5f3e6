"""Where the measurements take place: their sizes, a PostgreSQL server with two tables, a Spark session on two cores."""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812  Spark's own convention

from benchmarks.pairs import Checksum
from srj import Table
from srj.embedded import EmbeddedPostgres, wheel_binaries
from srj.experiments.local_session import local_session
from tests import servers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

_ROOT = Path(__file__).resolve().parent.parent
SCHEMA = "srj_bench"
# The database's part shall be as fast as it can be: then srj's own part is the larger share of every ratio.
_SERVER = {"shared_buffers": "4GB", "max_wal_size": "4GB", "max_connections": "100"}
_LEAP = 7_368_787  # coprime to the tables' sizes, so that multiples of it, modulo the size, are distinct and far apart


@dataclass(frozen=True)
class Scale:
    """Sizes of the measurements.

    Attributes:
        items: rows of the relation that fits the cache.
        hits, more_hits: stream rows that all hit; the second number for the marginal rate.
        many_items: rows of the table whose keys are missed.
        misses: stream rows with distinct keys.
        seen_keys, cached_keys: distinct keys of the stream that hits half of the time, and the cache's size.
        half_hits: its rows.
    """

    items: int
    hits: int
    more_hits: int
    many_items: int
    misses: int
    seen_keys: int
    cached_keys: int
    half_hits: int


FULL = Scale(1_000_000, 10_000_000, 30_000_000, 10_000_000, 1_000_000, 100_000, 50_000, 1_000_000)
SMOKE = Scale(2_000, 40_000, 80_000, 20_000, 3_000, 1_000, 500, 4_000)


@dataclass(frozen=True)
class Setting:
    """What every measurement needs."""

    scale: Scale
    server: servers.Server
    spark: SparkSession

    def table(self, name: str) -> Table:
        """``items`` or ``many_items``: id bigint, name text of 16 bytes, price float8, quantity int."""
        return Table(self.server.url, (SCHEMA, name))

    def scattered_keys(self, start: int, count: int, partitions: int) -> DataFrame:
        """Distinct keys of ``many_items``, in no order that helps its index; others for another range."""
        ids = self.spark.range(start, start + count, 1, partitions)
        return ids.select(F.pmod(F.col("id") * _LEAP, F.lit(self.scale.many_items)).alias("key"))

    def lookups_since(self, start: str) -> int:
        """Connections of srj that have sent a statement since then; idle ones are kept longer than a measurement lasts."""
        asked = f"SELECT count(*) FROM pg_stat_activity WHERE application_name = 'srj' AND query_start > '{start}'"
        return int(self.server.execute(asked)[0][0])

    def now(self) -> str:
        """The server's clock."""
        return str(self.server.execute("SELECT clock_timestamp()::text")[0][0])


@contextmanager
def setting(scale: Scale) -> Iterator[Setting]:
    """Server, tables and session, gone at the end."""
    with _server() as server, TemporaryDirectory(prefix="srj-bench-") as folder:
        server.execute(f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE; CREATE SCHEMA {SCHEMA}")
        try:
            _fill(server, "items", scale.items)
            _fill(server, "many_items", scale.many_items)
            spark = _spark(Path(folder))
            try:
                yield Setting(scale, server, spark)
            finally:
                spark.stop()
        finally:
            server.execute(f"DROP SCHEMA {SCHEMA} CASCADE")


def run_to_nowhere(df: DataFrame) -> None:
    """Compute every row and column, write none."""
    df.write.format("noop").mode("overwrite").save()


def checksum(df: DataFrame) -> Checksum:
    """Of all its columns."""
    return read_checksum(summed(df))


def summed(df: DataFrame) -> DataFrame:
    """One row from which `read_checksum` reads; a decimal, for a sum of 64-bit hashes overflows."""
    hashes = F.xxhash64(*[df[column] for column in df.columns]).cast("decimal(20,0)")
    return df.select(hashes.alias("hash")).agg(F.count("*").alias("rows"), F.sum("hash").alias("hashes"))


def read_checksum(sums: DataFrame) -> Checksum:
    """Run what `summed` made."""
    row = sums.collect()[0]
    return Checksum(row["rows"], int(row["hashes"]))


@contextmanager
def _server() -> Iterator[servers.Server]:
    if os.environ.get("SRJ_TEST_POSTGRES_URL"):
        yield servers.postgres()
        return
    programs = servers._installed_postgres() or wheel_binaries()  # noqa: SLF001  the same search as the tests'
    with EmbeddedPostgres(programs, user=servers.USER, database=servers.DATABASE, settings=_SERVER) as own:
        yield servers.Server("postgresql", own.host, own.port, own.user, own.password, own.database, own)


def _fill(server: servers.Server, name: str, rows: int) -> None:
    server.execute(
        f"CREATE TABLE {SCHEMA}.{name} AS SELECT id, 'item-' || lpad(id::text, 11, '0') AS name, id * 0.25::float8 AS price, "
        f"(id % 1000)::int AS quantity FROM generate_series(0::bigint, {rows - 1}) AS id; "
        f"ALTER TABLE {SCHEMA}.{name} ADD PRIMARY KEY (id)"
    )
    server.execute(f"VACUUM ANALYZE {SCHEMA}.{name}")
    # Into the server's own memory, or whoever reads a page first would pay for it.
    server.execute(f"SELECT sum(quantity) FROM {SCHEMA}.{name}")
    server.execute(f"SET enable_seqscan = off; SET enable_bitmapscan = off; SELECT count(*) FROM {SCHEMA}.{name} WHERE id >= 0")


def _spark(folder: Path) -> SparkSession:
    # What runs in workers is imported there; local mode starts them with this process's environment.
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(_ROOT), os.environ.get("PYTHONPATH")]))
    return local_session(folder, 2, {"spark.driver.memory": "4g", "spark.log.level": "ERROR"})
