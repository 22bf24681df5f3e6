"""The highest input rate of one way to join at one point: what figures 4.15 to 4.22 consist of."""

from __future__ import annotations

from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa

from srj import Batch, Cache
from srj.cache_policies import simulate
from srj.experiments.delay_proxy import apart
from srj.experiments.experiment import Measurement
from srj.experiments.joins import Ask, Core, OneByOne, columnar_cache, lru_cache, relation_spec
from srj.experiments.plain_join import added, checksum, compared, plain_join
from srj.experiments.relation import ensure_relation, plain_url, read_relation
from srj.experiments.search import Precision, highest_rate
from srj.experiments.source import PacedSource, Trial
from srj.experiments.traces import trace
from srj.lookup.engine import Engine
from srj.table import DatabaseUrl

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import numpy.typing as npt

    from srj.experiments.experiment import Cell, Checksum, Scale
    from srj.experiments.joins import Join

    I64 = npt.NDArray[np.int64]

Way = Literal["one by one", "srj", "srj auto"]
_WARM = 3  # times the distinct keys that go before, so that the cache holds what it would hold after a long stream
_SAMPLE = 50_000  # keys by which the hit ratio is foreseen
_ALL_AT_ONCE = 1e9  # rows a second, more than anything carries
_FOR_EVER = "1 d"  # how long a lookup may wait to be filled where, as in the thesis, only its size decides


@dataclass(frozen=True)
class RateCell:
    """A way to join, and where.

    Attributes:
        way: ``"one by one"``; ``"srj"``, with lookups of just `batch` keys; ``"srj auto"``, as srj chooses.
        batch, in_flight: keys of a lookup, and lookups at a time, of ``"srj"``; the thesis sends one at a time.
        order: ``"any"``; ``"input"``; a number: the thesis's order constraint, in seconds of the stream.
        relation: rows of the table. indexed: whether its key has an index.
        distinct, skew: of the stream, by Zipf's law.
        trace, parameters: another stream, which decides the three above; see `srj.experiments.traces`.
        cached: share of the distinct keys that the cache holds.
        delay: milliseconds of the network, each way.
        seed: of the stream.
        share, least_seconds, most_seconds, tries: see `Precision`.
        openings: how often the join is opened anew, of which the best counts. One lookup a row on an index has two modes, by where
            the system puts client and server, and so it is opened several times.
        settling: seconds that ``"srj auto"`` has to find its size before it is measured.
    """

    way: Way
    batch: int = 0
    in_flight: int = 1
    order: Literal["any", "input"] | float = "any"
    relation: int = 1_000_000
    indexed: bool = True
    distinct: int = 200_000
    skew: float = 0.0
    cached: float = 0.5
    delay: float = 0.0
    seed: int = 1
    share: float = 0.05
    least_seconds: float = 0.5
    most_seconds: float = 30.0
    tries: int = 2
    openings: int = 1
    settling: float = 4.0
    trace: str = "zipf"
    parameters: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """In a few words."""
        return f"srj, {self.batch:,} key{'s' * (self.batch != 1)}" if self.way == "srj" else self.way

    @property
    def stream(self) -> str:
        """The trace; of one's own the file and the column, for there may be several."""
        if self.trace != "file":
            return self.trace
        return f"{PurePath(self.parameters.get('path', 'file')).name} {self.parameters.get('column', '')}".strip()


def cells_of(scale: Scale, *points: Mapping[str, Any], **common: Any) -> list[Cell]:
    """Cells for these points, with the sizes of the scale."""
    sizes: dict[Scale, dict[str, Any]] = {
        "smoke": {
            "relation": 20_000,
            "distinct": 4000,
            "share": 0.4,
            "least_seconds": 0.1,
            "most_seconds": 1.0,
            "tries": 1,
            "settling": 0.2,
        },
        "small": {"relation": 1_000_000, "distinct": 200_000},
        "paper": {
            "relation": 10_000_000,
            "distinct": 2_000_000,
            "share": 0.03,
            "least_seconds": 2.0,
            "most_seconds": 120.0,
            "settling": 20.0,
        },
    }
    return [asdict(_opened_often(RateCell(**{**sizes[scale], **common, **point}), scale)) for point in points]


def _opened_often(cell: RateCell, scale: Scale) -> RateCell:
    has_modes = cell.way == "one by one" and cell.indexed and not cell.delay
    return replace(cell, openings=3) if has_modes and scale != "smoke" else cell


def run(cell: Cell, url: str) -> Measurement:
    """Find the highest rate of a cell; every row that comes out in any of its trials is compared with a plain join."""
    with ExitStack() as stack:
        return _Bench(RateCell(**cell), url, stack).measure()


def label(cell: Cell) -> str:
    """A cell in a few words."""
    one = RateCell(**cell)
    where = [f"{one.cached:.0%} cached", f"skew {one.skew:g}" if one.trace == "zipf" else one.stream]
    where += [f"{one.delay:g} ms away"] * bool(one.delay) + ["no index"] * (not one.indexed)
    where += ["in order"] * (one.order in ("input", 0.0))
    where += [f"{one.order:g} s out of order"] if not isinstance(one.order, str) and one.order else []
    return f"{one.name} ({', '.join(where)})"


def headline(figures: Mapping[str, Any]) -> str:
    """Its figures in a few words."""
    asking, keys = 1 - figures["hit_ratio"], figures["keys_per_lookup"]
    at_once = f", {figures['hit_at_once']:.0%} hit at once" if "hit_at_once" in figures else ""
    return f"{figures['rate']:,.0f} rows/s{at_once}, {asking:.0%} asked a key, {keys:,.1f} keys a lookup"


class Counts(NamedTuple):
    """Of a trial: rows, those that hit at once, lookups, and their keys."""

    rows: int
    hits: int
    lookups: int
    keys: int


def _counts(join: Join) -> Counts:
    return Counts(join.rows, join.hits, join.lookups, join.keys)


class _Bench:
    """One cell's relation, stream and join."""

    def __init__(self, cell: RateCell, url: str, stack: ExitStack) -> None:
        self._cell = cell
        stream = stream_of(cell)
        self._keys, self._capacity = stream.keys, max(16, round(cell.cached * stream.distinct))
        table = ensure_relation(url, stream.relation, indexed=cell.indexed)
        self._relation = read_relation(url, table).sort_by("id")
        if cell.delay:
            url = stack.enter_context(far_away(url, cell.delay / 1000))
        contents = last_distinct(stream.before, self._capacity)
        self._open: Callable[[], Join] = lambda: stack.enter_context(closing(self._made(url, table, contents)))
        self._join = self._open()
        self._misses = _expected_misses(contents, self._keys, self._capacity)
        self._taken = 0
        self._distances: list[tuple[float, int, int]] = []
        self._counts: dict[float, Counts] = {}
        self._outputs: list[Checksum] = []
        self._plain_joins: list[Checksum] = []

    def measure(self) -> Measurement:
        """Search, and say what was seen, each time that it is opened; the best counts."""
        cell = self._cell
        precision = Precision(cell.share, cell.least_seconds, cell.most_seconds, cell.tries)
        searches = []
        for number in range(cell.openings):
            if number:
                self._counts, self._distances, self._join = {}, [], self._open()
            if cell.way == "srj auto":
                self._carries(Trial(_ALL_AT_ONCE, cell.settling, waiting=0, growth=int(_ALL_AT_ONCE)))
            searches.append((highest_rate(self._carries, self._grain, precision), self._counts, self._distances))
        found, counts, distances = max(searches, key=lambda one: one[0].rate)
        rows, hits, lookups, keys = counts[found.rate]
        figures = {
            "rate": found.rate,
            "above": found.above,
            **({"opened": [round(one.rate, 1) for one, *_ in searches]} if len(searches) > 1 else {}),
            # As in a simulation: of rows that wait for the same key but one is a miss; beside it those whose key was there.
            "hit_ratio": 1 - keys / max(rows, 1),
            "hit_at_once": hits / max(rows, 1),
            "expected_hit_ratio": 1 - self._misses,
            "lookups": lookups,
            "keys_per_lookup": keys / max(lookups, 1),
            "trials": [[round(rate, 3), carried] for rate, carried in found.trials],
            **_distances_at(found.rate, distances),
        }
        return Measurement(figures, *compared(self._outputs, self._plain_joins))

    def _grain(self, rate: float) -> float:
        """Rows that come and go with the lookups that are under way, hits between them included."""
        keys = self._cell.batch * self._cell.in_flight if self._cell.way == "srj" else 1
        rows = keys / max(self._misses, 0.01)
        # Where srj chooses, by Little's law: what comes while a lookup takes its time, and while the next is filled.
        return max(rows, 2 * rate * self._join.lookup_seconds) if self._cell.way == "srj auto" else rows

    def _carries(self, trial: Trial) -> bool:
        source, before = PacedSource(self._keys, self._taken, trial), _counts(self._join)
        output = self._join.carry(source)
        self._taken += source.taken
        self._outputs.append(added(checksum(part) for part in _joined_together(output)))
        self._plain_joins.append(checksum(plain_join(source.given(), self._relation)))
        if source.is_carried:
            self._counts[trial.rate] = Counts(*(now - then for now, then in zip(_counts(self._join), before, strict=True)))
        if isinstance(self._join, Core) and source.is_carried:
            self._distances.append((trial.rate, self._join.distance, self._join.predicted_distance))
        return source.is_carried

    def _made(self, url: str, table: str, contents: I64) -> Join:
        cell = self._cell
        if cell.way == "one by one":
            return OneByOne(Ask(url, table, indexed=cell.indexed), lru_cache(self._capacity, contents, self._relation))
        batch = Batch() if cell.way == "srj auto" else Batch(size=cell.batch, in_flight=cell.in_flight, max_wait=_FOR_EVER)
        spec = relation_spec(url, table, batch, Cache(size=f"{self._capacity} rows", ttl=None, shared=False))
        return Core(Engine(spec, cache=columnar_cache(spec, contents, self._relation)), cell.order)


def last_distinct(keys: I64, count: int) -> I64:
    """The last distinct keys, the oldest first: what an LRU cache of that size holds after them.

    >>> last_distinct(np.array([1, 2, 3, 2]), 2)
    array([3, 2])
    """
    distinct, newest = np.unique(keys[::-1], return_index=True)
    order = np.argsort(newest)[:count]
    return np.asarray(distinct[order[::-1]])


@dataclass(frozen=True)
class Stream:
    """Keys of a cell.

    Attributes:
        before: what came before the trials. keys: of the trials, which go round.
        distinct: that occur, or by Zipf's law can. relation: rows of the table that they are looked up in.
    """

    before: I64
    keys: I64
    distinct: int
    relation: int


def stream_of(cell: RateCell) -> Stream:
    """By Zipf's law as many as it takes; of another trace the first half comes before the trials, which begin with the second."""
    if cell.trace == "zipf":
        before = _WARM * cell.distinct
        length = before + max(5 * cell.distinct, _SAMPLE)
        made = trace("zipf", length=length, distinct=cell.distinct, relation=cell.relation, skew=cell.skew, seed=cell.seed)
        keys = made.keys()
        return Stream(keys[:before], keys[before:], cell.distinct, made.relation)
    made = trace(cell.trace, **cell.parameters)
    keys = made.keys()
    # All of it goes round: half of a stream whose keys move on would have but half of the keys, and fit the cache.
    return Stream(keys[: len(keys) // 2], np.roll(keys, -(len(keys) // 2)), made.distinct, made.relation)


def _distances_at(rate: float, distances: list[tuple[float, int, int]]) -> dict[str, int]:
    """The largest scrambling distance that was seen at a rate, and the thesis's prediction for it; none for one by one."""
    at_rate = [(distance, predicted) for one, distance, predicted in distances if one == rate]
    return dict(zip(("distance", "predicted_distance"), max(at_rate), strict=True)) if at_rate else {}


def _expected_misses(contents: I64, keys: I64, capacity: int) -> float:
    """The share of rows that an exact LRU with these contents misses."""
    sample = keys[:_SAMPLE]
    # Putting the contents in takes a miss each.
    return (simulate(np.concatenate([contents, sample]), capacity, "lru").misses - len(contents)) / len(sample)


def _joined_together(parts: list[pa.Table]) -> list[pa.Table]:
    """As one table: a checksum of each of thousands of small ones would take longer than the join."""
    return [pa.concat_tables(parts).combine_chunks()] if parts else []


@contextmanager
def far_away(url: str, seconds: float) -> Iterator[str]:
    """The URL of the same server behind a slow network; itself for no delay."""
    if not seconds:
        yield url
        return
    known = DatabaseUrl.parse(url).resolve()
    with apart(known.host, known.port, seconds) as port:
        yield plain_url(url, host="127.0.0.1", port=port)
