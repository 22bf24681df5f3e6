"""One way to join one stream with one table through Spark: its rate, its rows' delay, and what it costs.

One streaming query takes all micro-batches, from Parquet files of keys that appear when the micro-batch before has been joined.
Those of phase ``"warm"`` start JVM, workers, connections and caches. Those of ``"rate"`` are as large as the way allows; the rate
is of their rows and of what Spark calls their triggers' execution, and from the first one's begin to the last one's end the
server's counts are taken. Those of ``"delay"`` have as many rows for all ways: a row's delay is from when its file appeared until
it had left the join, by the clock of the JVM when what follows the join takes it. Every way warms up with as many micro-batches,
of the sizes that it is measured with, however long that takes; each other phase ends when its time is over. Every row that comes
out is compared with a plain join's, those of ``"warm"`` too.
"""

from __future__ import annotations

import os
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.parquet as pq
from pyspark.sql import functions as F  # noqa: N812  Spark's own convention

from srj.errors import ConnectionFailedError
from srj.experiments import peer_worker
from srj.experiments.experiment import Checksum, Measurement
from srj.experiments.jdbc import missing_driver
from srj.experiments.local_session import local_session
from srj.experiments.peer_stream import FILES, parts_of, write_part
from srj.experiments.peer_ways import Relation, finisher, joined, settings_of
from srj.experiments.plain_join import added, plain_join
from srj.experiments.relation import ensure_relation, read_rows
from srj.experiments.server_usage import MemoryPeak, ServerUsage
from srj.table import DatabaseUrl

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from srj.experiments.peer_stream import Part
    from srj.experiments.peers import PeerCell
    from srj.experiments.server_usage import Usage

_LOW = 2**32 - 1
_NOW = "cast(reflect('java.lang.System', 'currentTimeMillis') as bigint)"  # of each row, for `now()` is one of the query
_TOO_LARGE = ("OutOfMemoryError", "Not enough memory to build and broadcast", "Cannot broadcast the table")


def measure(cell: PeerCell, url: str) -> Measurement:
    """Run the cell."""
    table = ensure_relation(url, cell.relation, indexed=True)
    parts = parts_of(cell.sizes(), hits=cell.hits, hot=cell.hot, relation=cell.relation, seed=cell.seed)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="srj-peers-")))
        counts = folder / "counts"
        counts.mkdir()
        relation = Relation(url, table, cell.relation, cell.entries, counts)
        usage = stack.enter_context(ServerUsage(url, table))
        memory = stack.enter_context(MemoryPeak())
        spark = _session(folder, cell, url)
        stack.callback(spark.stop)
        run = _Run(cell, parts, relation, usage, spark)
        try:
            run.carry(folder)
        except Exception as error:
            if cell.way == "broadcast join" and any(sign in f"{error}" for sign in _TOO_LARGE):
                why = f"the table of {cell.relation:,} rows does not fit into a broadcast with {cell.heap} of heap"
                return Measurement({"unfit": why}, Checksum(0, 0), Checksum(0, 0))
            raise
        figures = run.figures() | {"memory_bytes": memory.bytes}
        if cell.way in ("one by one", "one by one, async", "a query per row"):
            figures["lookups_in_all"] = peer_worker.noted(counts)
        return Measurement(figures, added(run.outputs), run.plain_join(url, folder))


def _session(folder: Path, cell: PeerCell, url: str) -> SparkSession:
    os.environ[peer_worker.URL] = url
    more = settings_of(cell.way, url)
    settings = {
        "spark.driver.extraJavaOptions": cell.java,
        "spark.driver.memory": cell.heap,
        "spark.log.level": "ERROR",
        "spark.sql.streaming.numRecentProgressUpdates": "1000",
        **more,
    }
    try:
        return local_session(folder, FILES, settings)
    except Exception as error:
        if "spark.jars.packages" not in more:
            raise
        raise ConnectionFailedError(missing_driver(DatabaseUrl.parse(url).dialect)) from error


@dataclass
class _Run:
    """The micro-batches of one query.

    Attributes:
        outputs: a checksum of each micro-batch that was joined.
    """

    cell: PeerCell
    parts: list[Part]
    relation: Relation
    usage: ServerUsage
    spark: SparkSession
    outputs: list[Checksum] = field(default_factory=list)
    _taken: list[Part] = field(default_factory=list)
    _placed: list[float] = field(default_factory=list)
    _left: dict[int, dict[int, int]] = field(default_factory=dict)
    _usages: list[Usage] = field(default_factory=list)
    _progress: dict[int, Any] = field(default_factory=dict)

    def carry(self, folder: Path) -> None:
        """Run the query to its end."""
        source = folder / "keys"
        source.mkdir()
        stream = self.spark.readStream.schema("id bigint").parquet(str(source / "*"))
        finish = finisher(self.cell.way, self.spark, self.relation)
        writer = joined(self.cell.way, stream, self.relation).writeStream.option("checkpointLocation", str(folder / "checkpoint"))
        query = writer.foreachBatch(lambda batch, number: self._take(finish(batch), number)).start()
        for phase in ("warm", "rate", "delay"):
            if phase != "warm":
                self._usages.append(self.usage())
            begun = time.monotonic()
            for part in [part for part in self.parts if part.phase == phase]:
                write_part(folder / "new", part)
                self._taken.append(part)
                self._placed.append(time.time() * 1000)
                (folder / "new").rename(source / f"{len(self._taken)}")  # all its files at once
                query.processAllAvailable()
                if phase != "warm" and time.monotonic() - begun > self.cell.seconds[phase]:
                    break
        query.stop()
        self._progress = {one["batchId"]: one for one in query.recentProgress if one["numInputRows"]}

    def _take(self, rows: DataFrame, number: int) -> None:
        is_timed = self._taken[number].phase == "delay"
        hashes = F.xxhash64(*(rows[name] for name in ("id", "name", "price", "quantity")))
        at = F.expr(_NOW) if is_timed else F.lit(0)
        summed = _summed(rows.select(hashes.alias("hash"), at.alias("at")), "at").collect()
        if self.cell.way == "foreachBatch + IN list":
            self.spark.catalog.clearCache()  # the micro-batch that it persisted
        self.outputs.append(added(_checksum(row) for row in summed))
        if is_timed:
            self._left[number] = {row["at"]: row["rows"] for row in summed}

    def figures(self) -> dict[str, Any]:
        """What was seen, once the query has ended."""
        rated = [number for number, part in enumerate(self._taken) if part.phase == "rate"]
        rows = sum(len(self._taken[number].keys) for number in rated)
        seconds = sum(self._progress[number]["durationMs"]["triggerExecution"] for number in rated) / 1000
        delays = np.concatenate([_delays(left, self._placed[number]) for number, left in self._left.items()])
        before, after = self._usages
        return {
            "rate": rows / seconds,
            "rows": rows,
            "micro_batches": len(rated),
            "rows_a_micro_batch": len(self._taken[rated[0]].keys),
            "delay_p50_ms": float(np.quantile(delays, 0.5)),
            "delay_p99_ms": float(np.quantile(delays, 0.99)),
            "delay_rows": len(delays),
            "delay_micro_batches": len(self._left),
            "queries": None if before.queries is None or after.queries is None else after.queries - before.queries,
            "cpu_seconds": None if before.cpu is None or after.cpu is None else after.cpu - before.cpu,
        }

    def plain_join(self, url: str, folder: Path) -> Checksum:
        """Of the same keys, by Arrow, from rows that were read past Spark and srj."""
        keys = np.concatenate([part.keys for part in self._taken])
        path = folder / "plain.parquet"
        pq.write_table(plain_join(keys, read_rows(url, self.relation.table, np.unique(keys))), path)
        rows = self.spark.read.parquet(str(path))
        hashes = F.xxhash64(*rows.columns)
        (row,) = _summed(rows.select(hashes.alias("hash"), F.lit(0).alias("at")), "at").collect()
        return _checksum(row)


def _summed(hashes: DataFrame, by: str) -> DataFrame:
    """Rows and hashes; in halves, for a sum of 64-bit hashes overflows."""
    low, high = F.col("hash").bitwiseAND(F.lit(_LOW)), F.shiftrightunsigned("hash", 32)
    return hashes.groupBy(by).agg(F.count("*").alias("rows"), F.sum(low).alias("low"), F.sum(high).alias("high"))


def _checksum(row: Any) -> Checksum:
    return Checksum(row["rows"], (row["low"] + (row["high"] << 32)) % 2**64)


def _delays(left: dict[int, int], placed: float) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Milliseconds until each row of a micro-batch had left the join."""
    return np.repeat(np.array(list(left), np.float64) - placed, list(left.values()))
