"""One memory for the cache and for the rows that wait, divided in one way: what figure 5.4 consists of."""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from statistics import median
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from srj import Batch, Cache
from srj.experiments.experiment import Checksum, Measurement
from srj.experiments.joins import Core, relation_spec
from srj.experiments.plain_join import added, checksum, plain_join
from srj.experiments.relation import ensure_relation, read_relation
from srj.experiments.source import GivenSource
from srj.experiments.traces import trace
from srj.lookup.engine import Engine
from srj.lookup.make_cache import CacheMaker

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import numpy as np
    import numpy.typing as npt

    from srj.experiments.experiment import Cell, Scale

    I64 = npt.NDArray[np.int64]

Split = Literal["20 %", "50 %", "70 %", "unbounded", "auto"]
SPLITS: tuple[Split, ...] = ("20 %", "50 %", "70 %", "unbounded", "auto")
_UNBOUNDED = 15 / 16
_EVENT = 256  # bytes of a row that waits, with its place among those in flight
_WARM = 6  # intervals before anything is measured: the pattern is found in the second, and then the cache moves
_INTERVALS = (2, 20)  # that one measurement takes, at least and at most
_FIGURES = {"entries": None, "queue_rows": None, "hit_ratio": 4, "missing_rows_a_lookup": 1}  # of a bench, and their digits


@dataclass(frozen=True)
class SplitCell:
    """A memory, and how missing keys are asked; all divisions of that memory are measured in turns, each time opened anew.

    Two equal joins that stay open side by side differ by up to a tenth throughout: in where their memory lies, and in their
    server's processes. Where they are opened anew that difference is chance too, and averages out.

    Attributes:
        memory: share of what a cache of the whole relation would take.
        lookups: ``"one at a time"`` as in the thesis; ``"several"`` as srj has them.
        indexed: whether the relation's key has an index.
        relation: keys. intervals: of the stream, each uniform over 1 % of the relation of its own. length: of the stream.
        rounds: how often each division is opened and measured. seconds: that a measurement takes, about.
        seed: of the stream.
    """

    memory: float
    lookups: Literal["one at a time", "several"] = "several"
    indexed: bool = True
    relation: int = 500_000
    intervals: int = 40
    length: int = 2_000_000
    rounds: int = 9
    seconds: float = 1.0
    seed: int = 1

    @property
    def setting(self) -> str:
        """How missing keys are asked, in a few words."""
        return f"lookups {self.lookups}{'' if self.indexed else ', no index'}"


def cells_of(scale: Scale, *points: Mapping[str, Any]) -> list[Cell]:
    """Cells for these points, with the sizes of the scale."""
    sizes: dict[Scale, dict[str, Any]] = {
        "smoke": {"relation": 20_000, "length": 80_000, "rounds": 1, "seconds": 0.05},
        "small": {},
        "paper": {"relation": 5_000_000, "length": 20_000_000, "seconds": 20.0},
    }
    return [asdict(SplitCell(**{**sizes[scale], **point})) for point in points]


def run(cell: Cell, url: str) -> Measurement:
    """Throughput of each division, in turns; every row that comes out is compared with a plain join."""
    one = SplitCell(**cell)
    keys = trace(
        "moving interval", length=one.length, relation=one.relation, intervals=one.intervals, share=0.01, seed=one.seed
    ).keys()
    batch = Batch(in_flight=1) if one.lookups == "one at a time" else Batch()

    def bench(split: Split) -> closing[Bench]:
        return closing(Bench(url, one.relation, keys, memory=one.memory, split=split, batch=batch, indexed=one.indexed))

    return _measured(one, bench)


def label(cell: Cell) -> str:
    """A cell in a few words."""
    one = SplitCell(**cell)
    return f"memory {one.memory:.0%} of the relation, {one.setting}"


def headline(figures: Mapping[str, Any]) -> str:
    """Its figures in a few words."""
    return "rows/s: " + ", ".join(f"{split} {median(figures['throughput'][split]):,.0f}" for split in SPLITS)


class Bench:
    """A join of a stream with a relation in so much memory, divided in one way.

    Args:
        url: of the server.
        relation: keys. keys: of the stream, which goes round.
        memory: share of what a cache of the whole relation would take.
        split: ``"auto"``, or the cache's share of the memory, as ``"30 %"``; ``"unbounded"``: all but a sixteenth.
        batch: how missing keys are asked.
        indexed: whether the relation's key has an index.

    Attributes:
        engine, join: cache and connections; its counts.
        entries: that the cache has room for now.
        queue_rows: that the rest of the memory has room for.
        output, plain_join: checksums of all that came out, and of what should have.
    """

    def __init__(
        self, url: str, relation: int, keys: I64, *, memory: float, split: str, batch: Batch, indexed: bool = True
    ) -> None:
        table = ensure_relation(url, relation, indexed=indexed)
        self._relation = _sorted_relation(url, table)
        self._keys, self._taken = keys, 0
        spec = relation_spec(url, table, batch, Cache())
        self.memory = int(memory * CacheMaker(spec, Cache()).contents.nbytes(size_bytes=None, size_rows=relation))
        size: dict[str, Any] = (
            {"size": "auto", "memory": self.memory} if split == "auto" else {"size": int(share_of(split) * self.memory)}
        )
        cache = Cache(**size, ttl=None, missing_ttl=None, shared=False)
        self.engine = Engine(replace(spec, settings=replace(spec.settings, cache=cache)))
        self.join = Core(self.engine, "any", None if split == "auto" else self._queue_bytes)
        self.output = self.plain_join = Checksum(0, 0)
        self.begin()

    def begin(self) -> None:
        """Count hits and lookups from here."""
        self._before = self.join.rows, self.join.hits, self.join.lookups

    @property
    def hit_ratio(self) -> float:
        """Of the rows since `begin`."""
        rows, hits, _ = self._before
        return (self.join.hits - hits) / max(self.join.rows - rows, 1)

    @property
    def missing_rows_a_lookup(self) -> float:
        """Since `begin`."""
        rows, hits, lookups = self._before
        return (self.join.rows - rows - self.join.hits + hits) / max(self.join.lookups - lookups, 1)

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
        return rows / self._joined(GivenSource(self._keys, self._taken, rows))

    def close(self) -> None:
        """Close its connections."""
        self.join.close()

    def _joined(self, source: GivenSource) -> float:
        begun = time.perf_counter()
        output = self.join.carry(source)
        seconds = time.perf_counter() - begun
        self._taken += source.taken
        if output:
            self.output = added((self.output, checksum(pa.concat_tables(output).combine_chunks())))
        self.plain_join = added((self.plain_join, checksum(plain_join(source.given(), self._relation))))
        return seconds


def share_of(split: str) -> float:
    """The cache's share of the memory.

    >>> share_of("20 %"), share_of("unbounded")
    (0.2, 0.9375)
    """
    # What grows as it likes leaves what nobody can do without.
    return _UNBOUNDED if split == "unbounded" else float(split.removesuffix("%")) / 100


def _measured(cell: SplitCell, opened: Callable[[Split], closing[Bench]]) -> Measurement:
    """In each round open each division, run on until the pattern has been found, and measure whole intervals."""
    interval = cell.length // cell.intervals
    found: dict[str, dict[Split, list[float]]] = {name: {split: [] for split in SPLITS} for name in ("throughput", *_FIGURES)}
    checksums, memories = [], []
    for number in range(cell.rounds):
        # Each begins in its turn: a machine that slows down while a round goes on shall not always meet the same ones.
        begin = number % len(SPLITS)
        for split in SPLITS[begin:] + SPLITS[:begin]:
            with opened(split) as bench:
                bench.throughput((_WARM - _INTERVALS[0]) * interval)
                wanted = cell.seconds * bench.throughput(_INTERVALS[0] * interval) / interval
                intervals = round(min(max(wanted, _INTERVALS[0]), _INTERVALS[1]))
                bench.begin()
                found["throughput"][split].append(round(bench.throughput(intervals * interval)))
                for name in _FIGURES:
                    found[name][split].append(getattr(bench, name))
                checksums.append((bench.output, bench.plain_join))
                memories.append(bench.memory)
    outputs, plain_joins = zip(*checksums, strict=True)
    figures: dict[str, Any] = {"throughput": found["throughput"], "memory": memories[0]}
    for name, digits in _FIGURES.items():
        figures[name] = {split: round(median(each), digits) for split, each in found[name].items()}
    return Measurement(figures, added(outputs), added(plain_joins))


@lru_cache(maxsize=1)
def _sorted_relation(url: str, table: str) -> pa.Table:
    """Read once for all that a cell opens."""
    return read_relation(url, table).sort_by("id")
