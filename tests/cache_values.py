"""Keys and rows for the cache's tests: every value is made from its key's number, so a mix-up shows."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from srj.lookup.cache import ColumnarCache
from srj.lookup.keys import Keys

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

COLUMN_TYPES: tuple[pa.DataType, ...] = (
    pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64(),
    pa.float32(), pa.float64(), pa.date32(), pa.timestamp("us"), pa.timestamp("us", "UTC"), pa.time64("us"),
    pa.decimal128(20, 3), pa.decimal256(50, 3), pa.binary(5), pa.binary(16), pa.string(), pa.binary(), pa.large_string(),
    pa.large_binary(), pa.string_view(), pa.binary_view(),
)  # fmt: skip
KEY_TYPES: tuple[tuple[pa.DataType, ...], ...] = (
    (pa.int64(),), (pa.int32(),), (pa.int16(),), (pa.int8(),), (pa.uint64(),), (pa.bool_(),), (pa.date32(),),
    (pa.timestamp("us"),), (pa.decimal128(38, 2),), (pa.float64(),), (pa.binary(16),), (pa.binary(3),), (pa.string(),),
    (pa.binary(),), (pa.large_string(),), (pa.string(), pa.int32()), (pa.int64(), pa.bool_(), pa.string(), pa.string()),
    (pa.decimal128(10, 0), pa.date32()),
)  # fmt: skip
INT = (pa.int64(),)
NAME = pa.schema([pa.field("name", pa.string())])
ALL_COLUMNS = pa.schema([pa.field(str(type_), type_) for type_ in COLUMN_TYPES])
TEXT_LENGTHS = (0, 3, 12, 13, 16, 24, 40, 255, 256, 257, 300)


def make_cache(types: Any = INT, schema: pa.Schema = NAME, **options: Any) -> ColumnarCache:
    """A cache that never expires, with room for 1,000 rows, unless `options` say otherwise."""
    defaults = {"size_bytes": None, "size_rows": 1000, "ttl": None, "missing_ttl": None, "unique": True}
    return ColumnarCache(types, schema, **{**defaults, **options})


def value(type_: pa.DataType, seed: int) -> Any:
    """A value that tells the seed, as far as the type can."""
    types = pa.types
    if types.is_boolean(type_):
        return seed % 2 == 1
    if types.is_integer(type_):
        return seed % 2 ** (type_.bit_width - 1)
    if types.is_floating(type_):
        return float(seed)
    if types.is_decimal(type_):
        return Decimal(seed)
    if types.is_temporal(type_):
        return seed % 86_400_000_000
    if types.is_fixed_size_binary(type_):
        return seed.to_bytes(16, "little")[: type_.byte_width]
    length = TEXT_LENGTHS[seed % len(TEXT_LENGTHS)]
    # The number stands last: long values agree in length and in their first bytes.
    text = f"{seed:x}".rjust(length, "-") if length else ("" if seed == 0 else f"{seed:x}")
    return text if types.is_string(type_) or types.is_large_string(type_) or types.is_string_view(type_) else text.encode()


def column(type_: pa.DataType, values: Sequence[Any]) -> pa.Array:
    """Values as an array; dates and times are given as Arrow's integers."""
    if pa.types.is_temporal(type_):
        return pa.array(values, pa.int32() if type_.bit_width == 32 else pa.int64()).view(type_)
    return pa.array(values, type_)


def make_keys(types: Sequence[pa.DataType], numbers: Sequence[int]) -> Keys:
    """A key for each number; columns after the first tell only a part of it."""
    columns = [
        column(type_, [value(type_, number if position == 0 else number // 2) for number in numbers])
        for position, type_ in enumerate(types)
    ]
    return Keys(tuple(columns))


def key_numbers(types: Sequence[pa.DataType]) -> int:
    """How many numbers make different keys of these types."""
    width = 1 if pa.types.is_boolean(types[0]) else types[0].bit_width - 1 if pa.types.is_integer(types[0]) else 15
    return min(2**width, 3000)


def make_rows(schema: pa.Schema, seeds: Sequence[int]) -> pa.RecordBatch:
    """A row for each seed, with a NULL now and then."""
    if not len(schema):
        return pa.RecordBatch.from_arrays([pa.nulls(len(seeds))], ["none"]).select([])
    arrays = [
        column(field.type, [None if field.nullable and (seed + at) % 7 == 0 else value(field.type, seed) for seed in seeds])
        for at, field in enumerate(schema)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def seeds_of(number: int, version: int, count: int) -> list[int]:
    """The seeds of a key's rows: they tell the key, the version and the row."""
    return [(number * 1000 + version) * 64 + row for row in range(count)]


def audit(cache: ColumnarCache) -> None:
    """Check that what the header counts is what the arrays hold."""
    entries = cache._entries
    used = np.flatnonzero(entries.placement.tags)
    stats = cache.stats()
    assert stats.entries == used.size <= stats.capacity
    assert stats.bytes_used <= stats.bytes_reserved
    assert not entries.placement.taken.any()
    counts = entries.counts_of(used)
    if entries.pages is not None and len(cache._columns):
        assert entries.pages.needed(counts).sum() + entries.pages.free == entries.pages.count
    live = np.zeros(max(entries.heap.segments, 1), np.int64)
    for views in entries.all_views():
        lengths = (views[:, 0] & np.uint64(0xFFFFFFFF)).astype(np.int64)
        long = lengths > 12
        np.add.at(live, (views[long, 1] & np.uint64(0xFFFFFFFF)).astype(np.int64), lengths[long])
    assert live[: entries.heap.segments].tolist() == entries.heap._live.tolist()
    assert (entries.heap._live <= entries.heap._used).all()
    assert (entries.heap._used <= entries.heap.segment_bytes).all()


class Answer(NamedTuple):
    """What a lookup found: when it started, which version of the table it saw, how many rows the key had."""

    started: float
    version: int
    count: int


class Model:
    """A dictionary that knows which answers a cache may give for each key."""

    def __init__(self, types: Sequence[pa.DataType], schema: pa.Schema, ttl: float | None, missing_ttl: float | None) -> None:
        self.types = types
        self.schema = schema
        self.lives = (ttl, missing_ttl)
        self.known: dict[int, list[Answer]] = {}

    def insert(self, cache: Any, numbers: Sequence[int], version: int, count_of: Callable[[int], int], started: float) -> None:
        """Insert distinct keys into the cache and the model."""
        counts = [count_of(number) for number in numbers]
        seeds = [seed for number, count in zip(numbers, counts, strict=True) for seed in seeds_of(number, version, count)]
        cache.insert(make_keys(self.types, numbers), np.array(counts, np.int32), make_rows(self.schema, seeds), started)
        for number, count in zip(numbers, counts, strict=True):
            # An answer from a later lookup stays, unless it was evicted: then this one takes its place.
            later = [answer for answer in self.known.get(number, []) if answer.started > started]
            self.known[number] = [*later, Answer(started, version, count)]

    def check(self, cache: Any, numbers: Sequence[int], now: float, *, complete: bool = False) -> int:
        """Look keys up: a hit must be an answer that the cache may give and that has not expired.

        With `complete` the cache had room for all: no key may be lost, and the answer is that of the latest lookup.

        Returns:
            The number of hits.
        """
        found = cache.lookup(make_keys(self.types, numbers), now)
        assert found.hit.shape == found.counts.shape == (len(numbers),)
        assert found.rows.schema.equals(self.schema)
        found.rows.validate(full=True)
        start = 0
        seeds: list[int] = []
        for number, hit, count in zip(numbers, found.hit.tolist(), found.counts.tolist(), strict=True):
            answers = self.known.get(number, [])[: 1 if complete else None]
            alive = [a for a in answers if (life := self.lives[a.count == 0]) is None or now < a.started + life]
            if not hit:
                assert count == 0
                assert not (complete and alive), f"key {number} was lost"
                continue
            possible = [seeds_of(number, a.version, a.count) for a in alive if a.count == count]
            assert possible, f"key {number} has {count} rows, of none of {alive}"
            if len(possible) > 1:
                rows = found.rows.slice(start, count)
                possible = [given for given in possible if rows.equals(make_rows(self.schema, given))]
                assert possible, f"key {number} has rows of none of {alive}"
            seeds += possible[0]
            start += count
        assert found.rows.num_rows == start
        assert found.rows.equals(make_rows(self.schema, seeds))
        return int(found.hit.sum())
