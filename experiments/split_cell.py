"""One memory for the cache and for the rows that wait, divided in one way: what figure 5.4 consists of."""

from __future__ import annotations

import time
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa

from srj import Batch, Cache, Table
from srj.databases.base import Question
from srj.experiments.experiment import Measurement
from srj.experiments.joins import Core
from srj.experiments.plain_join import added, checksum, plain_join
from srj.experiments.rate_cell import far_away
from srj.experiments.relation import ensure_relation, read_relation
from srj.experiments.search import Precision, highest_rate
from srj.experiments.source import PacedSource, Trial
from srj.experiments.traces import trace
from srj.lookup.describe import describe
from srj.lookup.engine import Engine
from srj.lookup.make_cache import CacheMaker
from srj.lookup.spec import LookupSpec
from srj.options import LookupSettings

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import numpy.typing as npt

    from srj.experiments.experiment import Cell, Checksum, Scale

    I64 = npt.NDArray[np.int64]

Split = Literal["20 %", "50 %", "70 %", "unbounded", "auto"]
SPLITS: tuple[Split, ...] = ("20 %", "50 %", "70 %", "unbounded", "auto")
_UNBOUNDED = 15 / 16
_EVENT = 256  # bytes of a row that waits, with its place among those in flight
_AT_ONCE = 1e9  # rows a second, more than anything carries
_PIECE = 1000  # rows


@dataclass(frozen=True)
class SplitCell:
    """A division of the memory.

    Attributes:
        split: the cache's share, or ``"auto"``.
        memory: share of what a cache of the whole relation would take.
        lookups: ``"one at a time"`` as in the thesis; ``"several"`` as srj has them.
        relation: keys. intervals: of the stream, each uniform over 1 % of the relation of its own. length: of the stream.
        delay: milliseconds of the network, each way.
        share, least_seconds, most_seconds, tries: see `Precision`.
    """

    split: Split
    memory: float
    lookups: Literal["one at a time", "several"] = "several"
    relation: int = 500_000
    intervals: int = 40
    length: int = 2_000_000
    delay: float = 0.0
    share: float = 0.1
    least_seconds: float = 0.5
    most_seconds: float = 30.0
    tries: int = 2
    seed: int = 1


def cells_of(scale: Scale, *points: Mapping[str, Any]) -> list[Cell]:
    """Cells for these points, with the sizes of the scale."""
    sizes: dict[Scale, dict[str, Any]] = {
        "smoke": {"relation": 20_000, "length": 80_000, "share": 0.5, "least_seconds": 0.1, "most_seconds": 1.0, "tries": 1},
        "small": {},
        "paper": {"relation": 5_000_000, "length": 20_000_000, "share": 0.05, "most_seconds": 120.0},
    }
    return [asdict(SplitCell(**{**sizes[scale], **point})) for point in points]


def run(cell: Cell, url: str) -> Measurement:
    """Throughput and highest rate of a cell; every row that comes out is compared with a plain join."""
    one = SplitCell(**cell)
    keys = trace(
        "moving interval", length=one.length, relation=one.relation, intervals=one.intervals, share=0.01, seed=one.seed
    ).keys()
    batch = Batch(in_flight=1) if one.lookups == "one at a time" else Batch()
    with ExitStack() as stack:
        url = stack.enter_context(far_away(url, one.delay / 1000))
        bench = Bench(url, one.relation, keys, memory=one.memory, split=one.split, batch=batch)
        return _measure(one, stack.enter_context(closing(bench)))


def label(cell: Cell) -> str:
    """A cell in a few words."""
    one = SplitCell(**cell)
    return f"cache {one.split} of {one.memory:.0%}, lookups {one.lookups}"


def headline(figures: Mapping[str, Any]) -> str:
    """Its figures in a few words."""
    return (
        f"{figures['throughput']:,.0f} rows/s, {figures['rate']:,.0f} carried, cache of {figures['entries']:,} keys, "
        f"{figures['hit_ratio']:.0%} hits"
    )


class _Overflowing(PacedSource):
    """A stream whose queue holds so many rows: it is carried as long as no more have come than have left, plus these."""

    def __init__(self, keys: Any, start: int, trial: Trial, *, queue: int) -> None:
        super().__init__(keys, start, trial)
        self._queue = queue
        self._piece = min(self._piece, _PIECE)
        self._has_overflown = False

    @property
    def is_carried(self) -> bool:
        """Whether the trial has ended without an overflow."""
        return self.waiting_at_end is not None and not self._has_overflown

    def _look(self) -> bool:
        if self._due() - self.left > self._queue:
            self._has_overflown = self._has_ended = True
            self.waiting_at_end = self._due() - self.left
        return super()._look()


class _Given(PacedSource):
    """So many rows, all there from the beginning; in small pieces, for a small queue."""

    def __init__(self, keys: Any, start: int, rows: int) -> None:
        super().__init__(keys, start, Trial(_AT_ONCE, 0.0, rows, 0))

    def __iter__(self) -> Iterator[I64]:
        while self.taken < self.trial.waiting:
            count = min(_PIECE, self.trial.waiting - self.taken)
            positions = np.arange(self._start + self.taken, self._start + self.taken + count)
            self.taken += count
            yield self._keys.take(positions, mode="wrap")


class Bench:
    """A join of a stream with a relation in so much memory, divided in one way.

    Args:
        url: of the server.
        relation: keys. keys: of the stream, which goes round.
        memory: share of what a cache of the whole relation would take.
        split: ``"auto"``, or the cache's share of the memory, as ``"30 %"``; ``"unbounded"``: all but a sixteenth.
        batch: how missing keys are asked.

    Attributes:
        engine, join: cache and connections; its counts.
        entries: that the cache has room for now.
        queue_rows: that the rest of the memory has room for.
        outputs, plain_joins: checksums of all that came out, and of what should have.
    """

    def __init__(self, url: str, relation: int, keys: I64, *, memory: float, split: str, batch: Batch) -> None:
        table = ensure_relation(url, relation, indexed=True)
        self._relation = read_relation(url, table).sort_by("id")
        self._keys, self._taken = keys, 0
        lookups_of = Table(url, (table,))
        question = Question(lookups_of.url, lookups_of.name, ("id",))
        settings = replace(LookupSettings(), batch=batch, ttl=None, missing_ttl=None, lookup_timeout=300.0)
        spec = LookupSpec(question, describe(question, 60.0), settings)
        self.memory = int(memory * CacheMaker(spec, Cache()).contents.nbytes(size_bytes=None, size_rows=relation))
        size: dict[str, Any] = (
            {"size": "auto", "memory": self.memory} if split == "auto" else {"size": int(share_of(split) * self.memory)}
        )
        cache = Cache(**size, ttl=None, missing_ttl=None, shared=False)
        self.engine = Engine(replace(spec, settings=replace(settings, cache=cache)))
        self.join = Core(self.engine, "any", None if split == "auto" else self._queue_bytes)
        self.outputs: list[Checksum] = []
        self.plain_joins: list[Checksum] = []

    @property
    def _queue_bytes(self) -> int:
        return max(self.memory - self.engine.cache_stats().bytes_reserved, self.memory // 16)

    @property
    def queue_rows(self) -> int:
        """See the class."""
        return self._queue_bytes // _EVENT

    @property
    def entries(self) -> int:
        """See the class."""
        return self.engine.cache_stats().capacity

    def throughput(self, rows: int) -> float:
        """Rows a second of the next rows of the stream, which are all there at once; the join takes what it has room for."""
        return rows / self._joined(_Given(self._keys, self._taken, rows))

    def carries(self, rate: float, seconds: float) -> bool:
        """Whether at this rate no more rows wait than there is room for."""
        source = _Overflowing(self._keys, self._taken, Trial(rate, seconds, 0, self.queue_rows), queue=self.queue_rows)
        self._joined(source)
        return source.is_carried

    def close(self) -> None:
        """Close its connections."""
        self.join.close()

    def _joined(self, source: PacedSource) -> float:
        begun = time.perf_counter()
        output = self.join.carry(source)
        seconds = time.perf_counter() - begun
        self._taken += source.taken
        if output:
            self.outputs.append(checksum(pa.concat_tables(output).combine_chunks()))
        self.plain_joins.append(checksum(plain_join(source.given(), self._relation)))
        return seconds


def share_of(split: str) -> float:
    """The cache's share of the memory.

    >>> share_of("20 %"), share_of("unbounded")
    (0.2, 0.9375)
    """
    # What grows as it likes leaves what nobody can do without.
    return _UNBOUNDED if split == "unbounded" else float(split.removesuffix("%")) / 100


def _measure(cell: SplitCell, bench: Bench) -> Measurement:
    """Run on until the pattern has been found, measure the throughput, and search for the highest rate."""
    join, interval = bench.join, cell.length // cell.intervals
    bench.throughput(3 * interval)
    rows, hits, lookups = join.rows, join.hits, join.lookups
    throughput = bench.throughput(max(10 * interval, cell.length // 4))
    rows, hits, lookups = join.rows - rows, join.hits - hits, join.lookups - lookups

    def carries(trial: Trial) -> bool:
        # Two intervals begin in each trial, for there the misses are, and more rows come than there is room for.
        rows = max(2 * interval, 4 * bench.queue_rows)
        return bench.carries(trial.rate, min(max(rows / trial.rate, cell.least_seconds), cell.most_seconds))

    found = highest_rate(carries, lambda _: interval, Precision(cell.share, cell.least_seconds, cell.most_seconds, cell.tries))
    figures = {
        "throughput": throughput,
        "rate": found.rate,
        "entries": bench.entries,
        "memory": bench.memory,
        "queue_rows": bench.queue_rows,
        "hit_ratio": hits / rows,
        "lookups": lookups,
        "keys_per_lookup": (rows - hits) / max(lookups, 1),
        "trials": [[round(rate, 3), carried] for rate, carried in found.trials],
    }
    return Measurement(figures, added(bench.outputs), added(bench.plain_joins))
