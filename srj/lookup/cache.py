"""The columnar cache: rows of keys as columns in one block of memory, probed and filled a batch at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from srj.cache_policies import LRU, Policy
from srj.lookup.encoding import INLINE, EncodedKeys, encode_keys, is_text, is_varying, views_of
from srj.lookup.entries import Entries
from srj.lookup.expiry import Expiry
from srj.lookup.hashing import hash_rows
from srj.lookup.interface import CacheStats, Found
from srj.lookup.keys import Keys
from srj.lookup.layout import HEAP_FILL, NOTES, At, Block, Contents, Geometry, geometry_in
from srj.lookup.reclaim import make_heap_room, make_page_room

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import numpy.typing as npt

    from srj.lookup.layout import Memory

    U64 = npt.NDArray[np.uint64]
    I64 = npt.NDArray[np.int64]
    I32 = npt.NDArray[np.int32]

_MOST_BYTES = 2**30  # of rows that one probe brings out
_LARGEST_INSERT = 2**16  # keys stored at once; more would only make the temporary arrays larger
_TICK_SHIFT = 6  # keys of a batch that share a tick of use: 2**6


class Copies(NamedTuple):
    """Entries of a cache, in memory of their own.

    Attributes:
        ways: where they stood.
        keys, counts, rows: as `ColumnarCache.insert` takes them.
        stamps: of their lookups.
        fields: what the policy's rule knows of each.
    """

    ways: I64
    keys: Keys
    counts: I32
    rows: pa.RecordBatch
    stamps: I64
    fields: dict[str, npt.NDArray[Any]]


class ColumnarCache:
    """A bounded cache of the rows of keys, a `srj.lookup.interface.Cache`.

    All memory is reserved at the start. A key can stand in 16 places, so a capacity that must hold a whole working set needs a
    slack of about 15 %. Not thread-safe, and not to be used on both sides of a fork. It reads no clock: times are seconds on
    any one clock of the caller's.

    Args:
        key_types: Arrow type of each key column.
        columns: the rows' columns; none at all where only the existence of rows is asked.
        size_bytes, size_rows: bounds; at least one is given, the smaller one counts.
        ttl: seconds from the start of its lookup until an entry expires; None: never.
        missing_ttl: the same for keys that have no rows.
        unique: no key has more than one row; answers with more are not kept.
        rows_per_key: estimated rows of a key that has any.
        widths: estimated mean bytes of each key column, then of each column, to divide the memory by; those of fixed-width types
            are ignored. Default 16 for each.
        policy: which entry leaves when room is needed.
        hash_words: the hash of keys given as (n, words) 64-bit words; another one only to test collisions.
        memory: a map that holds a cache of the same contents, whose sizes then count, or zeros; None reserves private memory.
        geometry: the sizes of its parts, in place of `size_bytes` and `size_rows`.

    Raises:
        RequestError: the size is too small for a handful of rows, the memory can't be had, or a type can't be kept.

    Example:
        >>> cache = ColumnarCache(
        ...     [pa.int64()],
        ...     pa.schema({"name": pa.string()}),
        ...     size_bytes=None,
        ...     size_rows=1000,
        ...     ttl=60.0,
        ...     missing_ttl=1.0,
        ...     unique=True,
        ... )
        >>> rows = pa.record_batch({"name": ["anna"]})
        >>> cache.insert(Keys((pa.array([7, 8]),)), np.array([1, 0], np.int32), rows, started=0.0)
        >>> found = cache.lookup(Keys((pa.array([8, 7, 9]),)), now=0.5)
        >>> found.hit.tolist(), found.counts.tolist(), found.rows["name"].to_pylist()
        ([True, True, False], [0, 1, 0], ['anna'])
    """

    def __init__(
        self,
        key_types: Sequence[pa.DataType],
        columns: pa.Schema,
        *,
        size_bytes: int | None,
        size_rows: int | None,
        ttl: float | None,
        missing_ttl: float | None,
        unique: bool,
        rows_per_key: float = 1.0,
        widths: Sequence[int] | None = None,
        policy: Policy = LRU,
        hash_words: Callable[[U64], U64] = hash_rows,
        memory: Memory | None = None,
        geometry: Geometry | None = None,
    ) -> None:
        contents = Contents.of(key_types, columns, unique=unique, rows_per_key=rows_per_key, widths=widths, policy=policy)
        there = None if memory is None else geometry_in(memory)
        geometry = there or geometry or contents.fit(size_bytes, size_rows)
        self._unique = unique
        self._columns = columns
        self._hash_words = hash_words
        self._expiry = Expiry(ttl, missing_ttl)
        self._steps: npt.NDArray[np.uint32] = np.zeros(0, np.uint32)
        self._block = Block(contents, geometry, memory)
        self._entries = Entries(contents, self._block, self._expiry)
        self._header = self._block.header
        if self._block.is_new:
            self._entries.begin()

    @property
    def geometry(self) -> Geometry:
        """The sizes of its parts."""
        return self._block.geometry

    @property
    def is_torn(self) -> bool:
        """Set while a change goes on by whoever shares the memory; found set by another, the change was never finished."""
        return bool(self._header[At.TORN])

    @is_torn.setter
    def is_torn(self, value: bool) -> None:
        self._header[At.TORN] = value

    @property
    def is_moved(self) -> bool:
        """Set when a cache of another size has taken the place of this one, in the file of its name."""
        return bool(self._header[At.MOVED])

    @is_moved.setter
    def is_moved(self, value: bool) -> None:
        self._header[At.MOVED] = value

    @property
    def most_hits(self) -> int:
        """Keys whose rows take no more than 1 GB together, however large they are."""
        return max(1, _MOST_BYTES // max(1, int(self._header[At.HEAVIEST])))

    @property
    def notes(self) -> npt.NDArray[np.float64]:
        """The second half of the header, free for whoever uses the cache."""
        return self._header[NOTES:].view(np.float64)

    def no_rows(self) -> pa.RecordBatch:
        """Rows of the table, none."""
        return self._entries.columns.gather(np.empty(0, np.int64))

    def encode(self, keys: Keys) -> EncodedKeys:
        """The keys as words and hashes, as this cache compares them."""
        return keys.encoded if self._hash_words is hash_rows else encode_keys(keys.columns, self._hash_words)

    def lookup(self, keys: Keys, now: float) -> Found:
        """Probe all keys (doubles allowed) and copy out the rows of those that are known and not expired at `now`."""
        entries, count = self._entries, len(keys)
        if not count:
            none = np.empty(0, np.int64)
            return Found(np.empty(0, np.bool_), np.empty(0, np.int32), entries.columns.gather(none))
        at = self._see(now)
        hit, ways, stamps = entries.placement.find(self.encode(keys))
        if self._expiry.is_needed:
            hit &= self._expiry.alive(stamps, at)
        all_hit = bool(hit.all())
        if not all_hit:
            ways = ways[hit]
        if ways.size > self.most_hits:
            # Who asked did not know yet how large rows are, which another process has stored: the others are asked of the database.
            hit[np.flatnonzero(hit)[self.most_hits :]] = False
            ways, all_hit = ways[: self.most_hits], False
        ticks = self._ticks(ways.size)
        if ways.size:
            entries.rule.on_hit(entries.fields, ways, ticks)
        if self._unique and not self._header[At.NEGATIVES]:
            return Found(hit, hit.astype(np.int32), entries.columns.gather(ways))
        held = entries.counts_of(ways)
        rows = ways if held.size and held.min() == held.max() == 1 else entries.rows_of(ways, held)
        if all_hit:
            return Found(hit, held, entries.columns.gather(rows))
        counts = np.zeros(count, np.int32)
        counts[hit] = held
        return Found(hit, counts, entries.columns.gather(rows))

    def insert(self, keys: Keys, counts: I32, rows: pa.RecordBatch, started: float) -> None:
        """Remember the answers of distinct keys (see `srj.lookup.interface.Cache.insert`).

        Not kept, and counted as refused, are keys with very many rows, with more bytes than a segment of the heap holds (and what
        was known of such a key is forgotten), and those for which the batch itself leaves no place.
        """
        stamp = self._see(started)
        keys, rows = Keys(tuple(_movable(column) for column in keys.columns)), _movable_rows(rows)
        self._keep(keys, counts, rows, np.full(len(keys), stamp))

    def most_useful(self, most: int) -> tuple[I64, npt.NDArray[np.uint32], I64]:
        """The ways of so many living entries at most; of what use each is, the less the sooner it would leave; all others' ways."""
        entries = self._entries
        ways = np.flatnonzero(entries.placement.tags)
        alive = entries.alive(ways)
        left_out, ways = ways[~alive], ways[alive]
        use = np.zeros(0, np.uint32)
        if ways.size:
            use = ~entries.rule.victim({name: field[ways] for name, field in entries.fields.items()}, int(self._header[At.TICK]))
        if ways.size <= most:
            return ways, use, left_out
        chosen = np.argpartition(use, ways.size - most)
        kept, others = chosen[-most:], chosen[:-most]
        return ways[kept], use[kept], np.concatenate([left_out, ways[others]])

    def ages(self, ways: I64) -> I64:
        """Numbers that grow as the entries at these ways came, as far as their texts tell."""
        return self._entries.ages(ways)

    def marks(self, ways: I64) -> U64:
        """For each of these ways a number that tells its entry from those that were there before; 0 for none."""
        placement = self._entries.placement
        marks = hash_rows(placement.records[ways]) | np.uint64(1)
        marks[placement.tags[ways] == 0] = 0
        return marks

    def copies(self, ways: I64) -> Copies:
        """The entries at these ways, but for expired ones, to be put into a cache of another size."""
        entries = self._entries
        ways = ways[entries.alive(ways)]
        counts = entries.counts_of(ways)
        return Copies(
            ways,
            Keys(entries.keys_of(ways)),
            counts,
            entries.columns.gather(entries.rows_of(ways, counts)),
            entries.placement.stamps[ways],
            {name: field[ways] for name, field in entries.fields.items()},
        )

    def adopt(self, copies: Copies) -> I64:
        """Keep another cache's entries as they were there, its rule's knowledge of them included, as far as there is room.

        Returns:
            Their ways; -1 for those that found no place.
        """
        keys = Keys(tuple(_movable(column) for column in copies.keys.columns))
        self._keep(keys, copies.counts, _movable_rows(copies.rows), copies.stamps)
        known, ways, stamps = self._entries.placement.find(self.encode(keys))
        known &= stamps >> 1 == copies.stamps >> 1
        for name, field in self._entries.fields.items():
            field[ways[known]] = copies.fields[name][known]
        return np.where(known, ways, -1)

    def drop(self, ways: I64) -> None:
        """Forget what is at these ways, if anything."""
        self._entries.drop(ways[self._entries.placement.tags[ways] != 0])

    def begin_as(self, other: ColumnarCache) -> None:
        """Go on for another cache: with its clocks, counters and notes."""
        for at in (At.TICK, At.LATEST, At.EVICTIONS, At.REFUSED):
            self._header[at] = other._header[at]
        self.notes[:] = other.notes

    def _keep(self, keys: Keys, counts: I32, rows: pa.RecordBatch, stamps: I64) -> None:
        kept, weights = self._acceptable(keys, counts, rows)
        if not kept.all():
            self._refuse(keys.take(np.flatnonzero(~kept)), stamps[~kept])
            keys, counts, rows, stamps = _subset(keys, counts, rows, stamps, kept)
            weights = weights[kept]
        self._header[At.HEAVIEST] = max(int(self._header[At.HEAVIEST]), int(weights.max(initial=0)))
        surplus = len(keys) - self._block.geometry.ways
        if surplus > 0:
            # The last keys of a batch are those that a cache filled one by one would hold in the end.
            last = np.arange(len(keys)) >= surplus
            self._refuse(keys.slice(0, surplus), stamps[:surplus])
            keys, counts, rows, stamps = _subset(keys, counts, rows, stamps, last)
            weights = weights[last]
        stops = np.concatenate([[0], counts.cumsum(dtype=np.int64)])
        try:
            for start, stop in self._portions(counts, weights):
                some = rows.slice(stops[start], stops[stop] - stops[start])
                self._insert(keys.slice(start, stop - start), counts[start:stop], some, stamps[start:stop])
        except BaseException:
            # Half an insert may have left a key with another's rows: a cold cache is better.
            self.clear()
            raise

    def clear(self) -> None:
        """Forget everything; what was counted since the start stays."""
        self._entries.clear()

    def stats(self) -> CacheStats:
        """Its present state. `bytes_reserved` is all it will ever take, but for 3 MB of work space."""
        entries, block = self._entries, self._block
        held = int(self._header[At.ENTRIES])
        heap = entries.heap
        of_heap = heap.segments * heap.segment_bytes
        per_row = (block.nbytes - of_heap) / max(block.geometry.rows, 1)
        used = 0 if entries.pages is None else entries.pages.count - entries.pages.free
        pages = 0 if entries.pages is None else used * entries.pages.page_rows
        return CacheStats(
            entries=held,
            capacity=block.geometry.ways,
            bytes_used=int((held + pages) * per_row) + heap.live_bytes,
            bytes_reserved=block.nbytes,
            evictions=int(self._header[At.EVICTIONS]),
            refused=int(self._header[At.REFUSED]),
            outside=heap.live_bytes,
            outside_room=int(HEAP_FILL * of_heap),
            heaviest=int(self._header[At.HEAVIEST]),
            pages=block.geometry.pages,
            pages_used=used,
        )

    def _see(self, time: float) -> int:
        """The stamp of a time; the latest one seen decides which entries an insert takes for expired."""
        stamp = self._expiry.stamp(time)
        self._header[At.LATEST] = max(stamp, int(self._header[At.LATEST]))
        return stamp

    def _ticks(self, count: int) -> npt.NDArray[np.uint32]:
        """The next ticks of use, for so many keys."""
        if self._steps.size < count:
            self._steps = (np.arange(2 * count, dtype=np.uint32) >> np.uint32(_TICK_SHIFT)) + np.uint32(1)
        tick = int(self._header[At.TICK])
        self._header[At.TICK] = tick + (count >> _TICK_SHIFT) + 1
        ticks: npt.NDArray[np.uint32] = self._steps[:count] + np.uint32(tick & 0xFFFFFFFF)
        return ticks

    def _acceptable(self, keys: Keys, counts: I32, rows: pa.RecordBatch) -> tuple[npt.NDArray[np.bool_], I64]:
        """Which answers can be kept at all, and the heap bytes that each takes."""
        beside = self._entries.heap.number_bytes
        weights = sum((_outside_bytes(column, beside) for column in keys.columns), np.zeros(len(keys), np.int64))
        of_rows = sum((_outside_bytes(column, beside) for column in rows.columns), np.zeros(rows.num_rows, np.int64))
        if of_rows.any():
            sums = np.concatenate([[0], of_rows.cumsum()])
            stops = counts.cumsum(dtype=np.int64)
            weights += sums[stops] - sums[stops - counts]
        kept = weights <= self._entries.heap.segment_bytes
        if self._unique:
            kept &= counts <= 1
        elif self._entries.pages is not None and len(self._columns):
            kept &= self._entries.pages.needed(counts) <= self._entries.pages.longest_chain
        return kept, weights

    def _refuse(self, keys: Keys, stamps: I64) -> None:
        """Forget what was known of keys whose answers can't be kept: it is out of date."""
        self._header[At.REFUSED] += len(keys)
        known, ways, present = self._entries.placement.find(self.encode(keys))
        self._entries.drop(ways[known & (present >> 1 <= stamps >> 1)])

    def _portions(self, counts: I32, weights: I64) -> Iterator[tuple[int, int]]:
        """Parts of a batch, each small enough that room for it can be made in the heap and among the pages."""
        heap, pages = self._entries.heap, self._entries.pages
        bytes_ = weights.cumsum()
        most_bytes = max(heap.segments // 4, 1) * heap.segment_bytes
        chained = (pages.needed(counts) if pages is not None and len(self._columns) else np.zeros(counts.size, np.int64)).cumsum()
        most_pages = 0 if pages is None else pages.count // 2
        start = 0
        while start < counts.size:
            before = start - 1
            stop = min(
                start + _LARGEST_INSERT,
                int(np.searchsorted(bytes_, (bytes_[before] if start else 0) + most_bytes, side="right")),
                int(np.searchsorted(chained, (chained[before] if start else 0) + most_pages, side="right")),
            )
            yield start, stop
            start = stop

    def _insert(self, keys: Keys, counts: I32, rows: pa.RecordBatch, stamps: I64) -> None:
        entries = self._entries
        encoded = self.encode(keys)
        views = [views_of(column) if is_varying(column.type) else None for column in rows.columns]
        lengths = [column.lengths for _, column in encoded.views] + [column.lengths for column in views if column is not None]
        if lengths:
            make_heap_room(entries, np.concatenate(lengths))
        if entries.pages is not None and len(self._columns):
            make_page_room(entries, int(entries.pages.needed(counts).sum()))
        known, ways, present = entries.placement.find(encoded)
        ways[~known] = -1
        outdated = known & (present >> 1 > stamps >> 1)
        if outdated.any():
            if not outdated.all():
                self._insert(*_subset(keys, counts, rows, stamps, ~outdated))
            return
        leaving = self._find_places(encoded.hashes, ways)
        entries.release(leaving)
        placed = ways >= 0
        if not placed.all():
            self._header[At.REFUSED] += np.count_nonzero(~placed)
            keys, counts, rows, stamps = _subset(keys, counts, rows, stamps, placed)
            ways, known = ways[placed], known[placed]
            encoded = self.encode(keys)
            views = [views_of(column) if is_varying(column.type) else None for column in rows.columns]
        stored_at = entries.write(ways, encoded, stamps | (counts == 0).astype(np.int64), counts)
        entries.store(stored_at, rows, views)
        self._note(ways, known)

    def _note(self, ways: I64, known: npt.NDArray[np.bool_]) -> None:
        """Tell the rule of what was stored: what was there already was used, for nothing left for it."""
        rule, fields, ticks = self._entries.rule, self._entries.fields, self._ticks(ways.size)
        if not known.any():
            if ways.size:
                rule.on_insert(fields, ways, ticks)
            return
        rule.on_hit(fields, ways[known], ticks[known])
        if not known.all():
            rule.on_insert(fields, ways[~known], ticks[~known])

    def _find_places(self, hashes: U64, ways: I64) -> I64:
        """Give each key without a way (-1) one, in place, unless the batch's other keys leave none.

        Returns:
            The ways whose present entries have to be released, replaced ones included.
        """
        entries = self._entries
        placement = entries.placement
        present = ways[ways >= 0]
        placement.taken[present] = 1
        absent = np.flatnonzero(ways < 0)
        latest = int(self._header[At.LATEST])
        places = placement.place(hashes[absent], entries.rule, entries.fields, int(self._header[At.TICK]), entries.alive_from())
        ways[absent] = places.ways
        placement.taken[ways[ways >= 0]] = 0
        victims = places.ways[(places.ways >= 0) & ~places.was_empty]
        alive = self._expiry.alive(placement.stamps[victims], latest)
        self._header[At.EVICTIONS] += np.count_nonzero(alive)
        if not alive.all():
            entries.forget_use(victims[~alive])  # they left by their time, not by the rule
        return np.concatenate([present, victims])


def _movable(column: pa.Array) -> pa.Array:
    """Arrow can neither take nor measure values of its view types."""
    if column.type in (pa.string_view(), pa.binary_view()):
        return column.cast(pa.large_string() if is_text(column.type) else pa.large_binary())
    return column


def _movable_rows(rows: pa.RecordBatch) -> pa.RecordBatch:
    columns = [_movable(column) for column in rows.columns]
    return rows if not columns else pa.RecordBatch.from_arrays(columns, rows.schema.names)


def _outside_bytes(column: pa.Array, beside: int) -> I64:
    """Bytes that each value takes in the heap, with those of its view's number."""
    if not is_varying(column.type):
        return np.zeros(len(column), np.int64)
    lengths: I64 = pc.binary_length(column).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    weights: I64 = np.where(lengths > INLINE, lengths + beside, 0)
    return weights


def _subset(
    keys: Keys, counts: I32, rows: pa.RecordBatch, stamps: I64, kept: npt.NDArray[np.bool_]
) -> tuple[Keys, I32, pa.RecordBatch, I64]:
    """The answers of some of the keys."""
    of_kept = pa.array(np.flatnonzero(np.repeat(kept, counts)))
    rows = rows.take(of_kept) if rows.num_columns else rows.slice(0, len(of_kept))
    return keys.take(np.flatnonzero(kept)), counts[kept], rows, stamps[kept]
