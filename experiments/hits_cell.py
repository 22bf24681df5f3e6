"""The hit ratio that simulation foresees beside the one that a join has, core or Spark: what figure 4.14 consists of."""

from __future__ import annotations

import os
import time
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from srj import Batch, Cache, Table
from srj.cache_policies import simulate
from srj.enrich import srj_enrich
from srj.experiments.experiment import Measurement
from srj.experiments.joins import Core, relation_spec
from srj.experiments.local_session import local_session
from srj.experiments.plain_join import checksum, plain_join
from srj.experiments.relation import SCHEMA, ensure_relation, read_relation
from srj.experiments.source import GIVEN_PIECE, GivenSource
from srj.experiments.traces import trace
from srj.lookup.engine import Engine

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

    from srj.experiments.experiment import Cell, Scale

    I64 = npt.NDArray[np.int64]

_CORES = 2
_MICRO_BATCHES = 3
# Simulation knows of no key that is still on its way, so these shall be few beside the cache; Spark reads on as it likes.
_BATCH = Batch(size=100, in_flight=2)
_WAITING = 1 << 16  # bytes


@dataclass(frozen=True)
class HitsCell:
    """A stream, a cache, and who joins.

    Attributes:
        driver: ``"core"``: srj's core in this process; ``"spark"``: `srj_enrich` over a stream of files, with two workers that
            share the cache.
        cached: share of the distinct keys that the cache holds; it begins empty.
        relation: rows of the table. distinct, skew, rows: of the stream, by Zipf's law. seed: of the stream.
    """

    driver: Literal["core", "spark"]
    cached: float
    relation: int = 200_000
    distinct: int = 100_000
    rows: int = 500_000
    skew: float = 0.0
    seed: int = 1

    @property
    def capacity(self) -> int:
        """Keys that the cache holds."""
        return max(16, round(self.cached * self.distinct))


def cells_of(scale: Scale, *points: Mapping[str, Any]) -> list[Cell]:
    """Cells for these points, with the sizes of the scale."""
    sizes: dict[Scale, dict[str, Any]] = {
        "smoke": {"relation": 50_000, "distinct": 25_000, "rows": 80_000},
        "small": {},
        "paper": {"relation": 10_000_000, "distinct": 2_000_000, "rows": 20_000_000},
    }
    return [asdict(HitsCell(**{**sizes[scale], **point})) for point in points]


def run(cell: Cell, url: str) -> Measurement:
    """Foresee, join, and compare what comes out with a plain join."""
    one = HitsCell(**cell)
    keys = trace("zipf", length=one.rows, distinct=one.distinct, relation=one.relation, skew=one.skew, seed=one.seed).keys()
    table = ensure_relation(url, one.relation, indexed=True)
    relation = read_relation(url, table)
    begun = time.perf_counter()
    join = _by_core if one.driver == "core" else _by_spark
    output, hits, asked = join(keys, url, table, one.capacity)
    seconds = time.perf_counter() - begun
    figures = {
        "foreseen": 1 - simulate(keys, one.capacity, "lru", vectorised=True, batch_size=GIVEN_PIECE).miss_ratio,
        "foreseen_exact": 1 - simulate(keys, one.capacity, "lru").miss_ratio,
        # As in a simulation: of rows that miss the same key together but one is a miss.
        "measured": 1 - asked / len(keys),
        "hit_at_once": hits / len(keys),
        "seconds": seconds,  # with what it takes to start
    }
    return Measurement(
        {name: round(value, 5) for name, value in figures.items()}, checksum(output), checksum(plain_join(keys, relation))
    )


def label(cell: Cell) -> str:
    """A cell in a few words."""
    one = HitsCell(**cell)
    return f"{one.driver} ({one.cached:.0%} cached)"


def headline(figures: Mapping[str, Any]) -> str:
    """Its figures in a few words."""
    exact, columnar = figures["foreseen_exact"], figures["foreseen"]
    return f"{figures['measured']:.1%} hits; foreseen {columnar:.1%} with the columnar cache's rule, {exact:.1%} with exact LRU"


def _by_core(keys: I64, url: str, table: str, capacity: int) -> tuple[pa.Table, int, int]:
    """What came out, rows that hit at once, and keys that were asked."""
    with closing(Core(Engine(relation_spec(url, table, _BATCH, _cache(capacity))), "input", _WAITING)) as core:
        output = core.carry(GivenSource(keys, 0, len(keys)))
        return pa.concat_tables(output).combine_chunks(), core.hits, core.keys


def _by_spark(keys: I64, url: str, table: str, capacity: int) -> tuple[pa.Table, int, int]:
    """The same through a stream of files, of which each micro-batch has one for each worker."""
    with TemporaryDirectory(prefix="srj-experiment-") as name:
        folder = Path(name)
        _write(keys, folder / "keys", _MICRO_BATCHES * _CORES)
        spark = local_session(
            folder, _CORES, {"spark.log.level": "ERROR", "spark.sql.execution.arrow.maxRecordsPerBatch": f"{GIVEN_PIECE}"}
        )
        try:
            stream = spark.readStream.schema("key LONG").option("maxFilesPerTrigger", _CORES).parquet(str(folder / "keys"))
            enriched = srj_enrich(stream, Table(url, (table,)), key={"key": "id"}, batch=_BATCH, cache=_cache(capacity))
            writer = enriched.writeStream.format("parquet").option("checkpointLocation", str(folder / "checkpoint"))
            query = writer.trigger(availableNow=True).start(str(folder / "output"))
            query.awaitTermination()
            counts = [row["srj"] for one in query.recentProgress for row in one.observedMetrics.values()]
        finally:
            spark.stop()
        output = pq.read_table(folder / "output").rename_columns({"key": "id"}).select(SCHEMA.names)
        return output, sum(one["hits"] for one in counts), sum(one["keys"] for one in counts)


def _cache(capacity: int) -> Cache:
    """Shared by all workers, and nothing in it expires."""
    return Cache(size=f"{capacity} rows", ttl=None, missing_ttl=None)


def _write(keys: I64, folder: Path, files: int) -> None:
    folder.mkdir()
    for number, part in enumerate(np.array_split(keys, files)):
        path = folder / f"{number:03}.parquet"
        pq.write_table(pa.table({"key": part}), path)
        os.utime(path, (number + 1, number + 1))  # Spark takes the oldest file first
