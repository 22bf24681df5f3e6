"""One memory for the cache and for the rows that wait, divided in one way: what figure 5.4 consists of."""

from __future__ import annotations

import time
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from statistics import geometric_mean, median
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from srj import Batch, Cache
from srj.experiments.experiment import Checksum, Measurement
from srj.experiments.joins import Core, relation_spec
from srj.experiments.plain_join import added, checksum, compared, plain_join
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
_SHARE = 0.01  # of the relation, that an interval's keys are
_WARM = 4  # intervals before anything is measured, and as many more as fill the cache: without evictions it would seem faster
_TURNS = 5  # of each division, an interval each, that are a round
AS_GOOD = 0.97  # times another division's throughput: what srj's shall have at least
_FIGURES = {"entries": None, "queue_rows": None, "hit_ratio": 4, "missing_rows_a_lookup": 1}  # of a bench, and their digits


@dataclass(frozen=True)
class SplitCell:
    """A memory, and how missing keys are asked; all divisions of that memory are open side by side and measured in turns.

    A turn of a tenth of a second differs from another by some 15 %, and nothing else does: where equal joins had 40 turns each,
    what one opening said and another differed by no more than that explains.

    Attributes:
        memory: share of what a cache of the whole relation would take.
        lookups: ``"one at a time"`` as in the thesis; ``"several"`` as srj has them.
        indexed: whether the relation's key has an index.
        relation: keys. intervals: of the stream, each uniform over 1 % of the relation of its own. length: of the stream.
        openings: how often all are opened anew. seconds: that a division is measured for on average, in each of them.
        seed: of the stream.
    """

    memory: float
    lookups: Literal["one at a time", "several"] = "several"
    indexed: bool = True
    relation: int = 500_000
    intervals: int = 40
    length: int = 2_000_000
    openings: int = 3
    seconds: float = 7.0
    seed: int = 1

    @property
    def interval_keys(self) -> int:
        """Keys of an interval."""
        return round(_SHARE * self.relation)

    @property
    def setting(self) -> str:
        """How missing keys are asked, in a few words."""
        return f"lookups {self.lookups}{'' if self.indexed else ', no index'}"


def cells_of(scale: Scale, *points: Mapping[str, Any]) -> list[Cell]:
    """Cells for these points, with the sizes of the scale."""
    sizes: dict[Scale, dict[str, Any]] = {
        "smoke": {"relation": 20_000, "length": 80_000, "openings": 1, "seconds": 0.05},
        "small": {},
        "paper": {"relation": 5_000_000, "length": 20_000_000, "seconds": 60.0},
    }
    return [asdict(SplitCell(**{**sizes[scale], **point})) for point in points]


def run(cell: Cell, url: str) -> Measurement:
    """Throughput of each division, in turns; every row that comes out is compared with a plain join."""
    one = SplitCell(**cell)
    keys = trace(
        "moving interval", length=one.length, relation=one.relation, intervals=one.intervals, share=_SHARE, seed=one.seed
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
    return "rows/s: " + ", ".join(f"{split} {geometric_mean(figures['throughput'][split]):,.0f}" for split in SPLITS)


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
    """All divisions in turns, an interval each, once their caches are full; the rates are those of rounds of some turns."""
    interval, keys = cell.length // cell.intervals, max(cell.interval_keys, 1)
    found: dict[str, dict[Split, list[float]]] = {name: {split: [] for split in SPLITS} for name in ("throughput", *_FIGURES)}
    checksums, memory = [], 0
    for _ in range(cell.openings):
        with ExitStack() as stack:
            benches = {split: stack.enter_context(opened(split)) for split in SPLITS}
            for bench in benches.values():
                bench.throughput((_WARM + -(-bench.entries // keys)) * interval)
                bench.begin()
            spent = 0.0
            while spent < cell.seconds * len(SPLITS):
                seconds = _round(benches, interval)
                spent += sum(seconds.values())
                for split, of_split in seconds.items():
                    found["throughput"][split].append(round(_TURNS * interval / of_split))
            for split, bench in benches.items():
                for name in _FIGURES:
                    found[name][split].append(getattr(bench, name))
                checksums.append((bench.output, bench.plain_join))
                memory = bench.memory
    outputs, plain_joins = zip(*checksums, strict=True)
    figures: dict[str, Any] = {"throughput": found["throughput"], "memory": memory}
    for name, digits in _FIGURES.items():
        figures[name] = {split: round(median(each), digits) for split, each in found[name].items()}
    return Measurement(figures, *compared(outputs, plain_joins))


def _round(benches: Mapping[Split, Bench], interval: int) -> dict[Split, float]:
    """Some turns of each; the seconds that each took."""
    seconds = dict.fromkeys(benches, 0.0)
    for number in range(_TURNS):
        # Each begins in its turn: a machine that slows down for a while shall not always meet the same ones.
        for split in (*SPLITS[number:], *SPLITS[:number]):
            seconds[split] += interval / benches[split].throughput(interval)
    return seconds


@lru_cache(maxsize=1)
def _sorted_relation(url: str, table: str) -> pa.Table:
    """Read once for all that a cell opens."""
    return read_relation(url, table).sort_by("id")
