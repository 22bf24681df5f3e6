"""The cache's one block of memory: which arrays it holds, where each starts, how a budget is divided among them.

Everything a cache knows stands in the block, its sizes and counters in the header, so that a process that maps the same
memory and is told the same `Contents` sees the same cache.
"""

from __future__ import annotations

import mmap
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import IntEnum
from math import ceil
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from srj.cache_policies import LRU, CheckedRule
from srj.errors import RequestError
from srj.lookup.encoding import byte_width, is_varying, key_words, number_type
from srj.lookup.memory_limit import free_memory

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import numpy.typing as npt
    import pyarrow as pa

    from srj.cache_policies import Policy, Rule

Memory = mmap.mmap | memoryview  # of a map that processes share, or of one's own

WAYS = 8
MAGIC = int.from_bytes(b"srjcache", "little")
VERSION = 6
_HEADER_WORDS = 512
NOTES = 256  # where in the header the user's own numbers begin
POPULATE_WRITE = 23  # Linux's MADV_POPULATE_WRITE, which Python has no name for
_ALIGNMENT = 64
_HUGE_PAGE = 2**21
_PADDING = 16  # bytes behind the heap, so that its last bytes can be loaded as a word
_WIDEST_ROW = 1000  # bytes a value for which a size in rows makes room
_WIDTH = 16  # estimated mean bytes where nothing else is said
_SEGMENTS = 64
_LEAST_SEGMENTS = 4
_LEAST_SEGMENT_BYTES = 320
# Reclaiming a segment costs some 0.2 ms before it moves a value: where it holds few, new keys take twice as long.
_GOOD_SEGMENT_BYTES, _FEW_SEGMENTS = 8192, 8
_LARGEST_SEGMENT_BYTES = 2**30  # a view's offset is a signed 32-bit number
_NUMBER_BYTES = 4  # beside each value in the heap stands the number of its view
_OFFSET_BYTES = 4  # of a value of varying length in Arrow's own form
HEAP_FILL = 0.75  # share of the heap that live values may take, so that reclaiming a segment gains something
_SPARE_ROWS = 0.25  # further rows a key to reserve where the estimate says one row a key but does not promise it


class At(IntEnum):
    """Positions in the header, an array of 64-bit numbers."""

    MAGIC = 0
    VERSION = 1
    SETS = 2
    PAGES = 3
    PAGE_ROWS = 4
    SEGMENTS = 5
    SEGMENT_BYTES = 6
    TORN = 7  # not 0 while a change goes on
    TICK = 8  # the policy's count of use
    LATEST = 9  # the latest stamp seen, in a probe or an insert
    ENTRIES = 10
    NEGATIVES = 11
    EVICTIONS = 12
    REFUSED = 13
    FREE_PAGES = 14
    HEAD = 15  # the heap segment that is being filled
    FILLS = 16  # segments whose filling has begun
    PAGE_HAND = 17  # where the search for pages to free goes on
    HEAVIEST = 18  # the most bytes outside the views that a key's rows have taken so far
    TURNS = 19  # how often somebody has let go of the lock that he held alone
    ALL_ALIVE_TO = 20  # the stamp until which every entry may be used
    MOVED = 21  # not 0 when a cache of another size has taken this one's place, and its name


class Geometry(NamedTuple):
    """The sizes that a layout is computed from.

    Attributes:
        sets: sets of 8 ways.
        pages, page_rows: pages for the further rows of keys with several, and rows in each.
        segments, segment_bytes: the heap's parts.
    """

    sets: int
    pages: int
    page_rows: int
    segments: int
    segment_bytes: int

    @property
    def ways(self) -> int:
        """Keys that can be held."""
        return self.sets * WAYS

    @property
    def rows(self) -> int:
        """Rows that can be held: one at each way, the others in pages."""
        return self.ways + self.pages * self.page_rows


def geometry_in(memory: Memory) -> Geometry | None:
    """The sizes of the cache that some memory holds, made by this version; None where it holds none, or zeros."""
    if len(memory) < _HEADER_WORDS * 8:
        return None
    header = np.frombuffer(memory, np.int64, At.SEGMENT_BYTES + 1)
    if header[At.MAGIC] != MAGIC or header[At.VERSION] != VERSION:
        return None
    return Geometry(*header[At.SETS : At.SEGMENT_BYTES + 1].tolist())


class Array(NamedTuple):
    """An array of the block."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """Its bytes, rounded up so that the next array is aligned."""
        size = self.dtype.itemsize * int(np.prod(self.shape, dtype=np.int64))
        return -(-size // _ALIGNMENT) * _ALIGNMENT


@dataclass(frozen=True)
class Contents:
    """What a cache holds: all that determines its arrays apart from their sizes.

    Attributes:
        key_types, columns: of the keys and of the rows.
        widths: estimated mean bytes of each key column, then of each column; ignored for fixed-width types.
        unique: no key has more than one row.
        rows_per_key: estimated rows of a key that has any.
        policy: whose rule's fields each way keeps.
    """

    key_types: tuple[pa.DataType, ...]
    columns: pa.Schema
    widths: tuple[int, ...]
    unique: bool
    rows_per_key: float
    policy: Policy

    @classmethod
    def of(
        cls,
        key_types: Sequence[pa.DataType],
        columns: pa.Schema,
        *,
        unique: bool,
        rows_per_key: float = 1.0,
        widths: Sequence[int] | None = None,
        policy: Policy = LRU,
    ) -> Contents:
        """The contents for arguments as `ColumnarCache` takes them."""
        given = (_WIDTH,) * (len(key_types) + len(columns)) if widths is None else tuple(widths)
        return cls(tuple(key_types), columns, given, unique, rows_per_key, policy)

    @property
    def rule(self) -> Rule:
        """The policy's rule, its choices checked: it may be the user's own code.

        Raises:
            RequestError: it has none.
        """
        if self.policy.rule is None:
            raise RequestError(
                f"expected a policy with a rule for the columnar cache, got {self.policy.name!r}, which has only its exact "
                "form; choose another or give a factory of a cachetools cache"
            )
        return CheckedRule(self.policy.name, self.policy.rule)

    @property
    def fields(self) -> Mapping[str, np.dtype[Any]]:
        """The policy's fields."""
        return self.rule.fields

    @property
    def record_words(self) -> int:
        """Words of a way's record: the key, and the stamp of its lookup."""
        return sum(key_words(type_) for type_ in self.key_types) + 1

    @property
    def _further_rows(self) -> float:
        if self.unique or not len(self.columns):
            return 0.0
        return max(self.rows_per_key - 1, _SPARE_ROWS)

    @property
    def rows_of_a_key(self) -> float:
        """As a size in rows counts them, without spare ones."""
        return 1.0 if self.unique else max(self.rows_per_key, 1.0)

    def pages_of(self, rows: float) -> float:
        """Pages of a key with so many rows, on average; 0 where a key has one, or none has a column."""
        geometry = self.geometry(2)
        if not geometry.pages:
            return 0.0
        return max(rows - 1, 0.0) / geometry.page_rows + (0.5 if geometry.page_rows > 1 else 0.0)

    @property
    def inline_bytes(self) -> int:
        """Of what Arrow needs for a row, those of the columns themselves, without what stands in the heap."""
        return sum(_OFFSET_BYTES if is_varying(type_) else byte_width(type_) for type_ in self.columns.types)

    def arrays(self, geometry: Geometry) -> Iterator[Array]:
        """Every array of a cache of these sizes, in the order of the block."""
        sets, ways, rows = geometry.sets, geometry.ways, geometry.rows
        yield Array("header", np.dtype(np.int64), (_HEADER_WORDS,))
        yield Array("saw_null", np.dtype(np.uint8), (len(self.columns),))
        yield Array("tags", np.dtype(np.uint8), (sets, WAYS))
        yield Array("records", np.dtype(np.uint64), (ways, self.record_words))
        yield Array("taken", np.dtype(np.uint8), (ways,))
        for name, dtype in self.fields.items():
            yield Array(f"policy.{name}", dtype, (ways,))
        if not self.unique:
            yield Array("counts", np.dtype(np.int32), (ways,))
            yield Array("first_page", np.dtype(np.int32), (ways,))
            yield Array("next_page", np.dtype(np.int32), (geometry.pages,))
            yield Array("free_pages", np.dtype(np.int32), (geometry.pages,))
            yield Array("page_way", np.dtype(np.int32), (geometry.pages,))
        for position, field in enumerate(self.columns):
            yield Array(f"column.{position}", number_type(byte_width(field.type)), (rows,))
            yield Array(f"null.{position}", np.dtype(np.uint8), (rows,))
        yield Array("segment_used", np.dtype(np.int64), (geometry.segments,))
        yield Array("segment_live", np.dtype(np.int64), (geometry.segments,))
        yield Array("segment_values", np.dtype(np.int64), (geometry.segments,))
        yield Array("segment_filled", np.dtype(np.int64), (geometry.segments,))
        yield Array("heap", np.dtype(np.uint64), (-(-(geometry.segments * geometry.segment_bytes + _PADDING) // 8),))

    def view_counts(self, geometry: Geometry) -> list[int]:
        """Lengths of the arrays of views: of each key column of varying length, then of each such column."""
        of_keys = [geometry.ways for type_ in self.key_types if is_varying(type_)]
        return of_keys + [geometry.rows for type_ in self.columns.types if is_varying(type_)]

    def size(self, geometry: Geometry) -> int:
        """Bytes of the block."""
        return sum(array.nbytes for array in self.arrays(geometry))

    def is_whole(self, memory: Memory) -> bool:
        """Whether memory holds a cache of these contents, as far as its sizes say: a file may have been cut or written to."""
        there, nbytes = geometry_in(memory), len(memory)
        if there is None or min(there) < 0 or max(*there, there.rows, there.segments * there.segment_bytes) > nbytes:
            return False
        alike = all(bool(size) == bool(like) for size, like in zip(there, self.geometry(2), strict=True))
        return alike and self.size(there) == nbytes

    def geometry(self, sets: int, outside: float | None = None, heaviest: int = 0, paged: float | None = None) -> Geometry:
        """The sizes that go with a number of sets.

        Args:
            sets: of 8 ways.
            outside: bytes that the values of an entry take outside their views; None: as `widths` lets expect.
            heaviest: that those of one entry take at most, if it is known: so large a part of the heap has to be, to keep it.
            paged: pages of an entry, where keys have several rows; None: as `rows_per_key` lets expect.
        """
        ways, further = sets * WAYS, self._further_rows
        page_rows = min(max(int(further / 2), 1), 64)
        # Half a page a key stays empty on average, where a page has several rows.
        pages = ceil(ways * (further / page_rows + (0.5 if page_rows > 1 else 0.0)))
        if paged is not None and pages:
            pages = max(1, ceil(ways * paged))
        # Whether there is a heap is the same for all sizes, whatever was seen: it says which arrays a map holds.
        per_way = self._heap_bytes_per_way
        heap = ways * (max(outside, 1.0) if outside is not None and per_way else per_way) / HEAP_FILL
        if not heap:
            return Geometry(sets, pages, page_rows, 0, 0)
        widest = max(max(self.widths, default=0), int(outside or 0))
        least = -(-max(_LEAST_SEGMENT_BYTES, 4 * widest) // 8) * 8
        most = max(min(_SEGMENTS, int(heap // _GOOD_SEGMENT_BYTES)), _FEW_SEGMENTS, ceil(heap / _LARGEST_SEGMENT_BYTES))
        segments = min(max(int(heap // max(least, heaviest)), _LEAST_SEGMENTS), most)
        return Geometry(sets, pages, page_rows, segments, max(least, -(-ceil(heap / segments) // 8) * 8))

    @property
    def _heap_bytes_per_way(self) -> float:
        """Bytes outside the views; of values that are short on average, some are long all the same."""
        types = (*self.key_types, *self.columns.types)
        outside = [float(width + _NUMBER_BYTES if width > 12 else max(width / 2, 1)) if is_varying(type_) else 0.0
                   for type_, width in zip(types, self.widths, strict=True)]  # fmt: skip
        of_keys = sum(outside[: len(self.key_types)])
        return of_keys + (1 + self._further_rows) * sum(outside[len(self.key_types) :])

    def fit(self, size_bytes: int | None, size_rows: int | None) -> Geometry:
        """The largest geometry within the bounds given: bytes of the block, rows held. Reserves no memory.

        Raises:
            RequestError: no bound, or one too small for two sets.

        Example:
            >>> import pyarrow as pa
            >>> Contents.of([pa.int64()], pa.schema({"name": pa.string()}), unique=True).fit(1000, None)
            Traceback (most recent call last):
            ...
            srj.errors.RequestError: expected at least 6,528 bytes for a cache of this table's rows, got 1,000; give a larger size
        """
        if size_bytes is None and size_rows is None:
            raise RequestError("expected a cache size, got neither bytes nor rows; give one of them")
        if size_bytes is not None and self.size(self.geometry(2)) > size_bytes and max(self.widths, default=0) > _WIDTH:
            # Values so large that few would fit: a part of them will be kept, the others served without being kept.
            narrower = replace(self, widths=tuple(min(width, max(_WIDTH, max(self.widths) // 2)) for width in self.widths))
            return narrower.fit(size_bytes, size_rows)
        least = self.size(self.geometry(2))
        if size_rows is not None and size_rows < 1:
            raise RequestError(f"expected a cache of at least one row, got {size_rows}; give a larger size")
        if size_bytes is not None and size_bytes < least:
            raise RequestError(
                f"expected at least {least:,} bytes for a cache of this table's rows, got {size_bytes:,}; give a larger size"
            )
        sets = None if size_rows is None else max(2, ceil(size_rows / self.rows_of_a_key / WAYS))
        if size_bytes is None:
            return replace(self, widths=tuple(min(width, _WIDEST_ROW) for width in self.widths)).geometry(sets or 2)
        low, high = 2, max(2, size_bytes // (WAYS * 8))
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self.size(self.geometry(middle)) <= size_bytes else (low, middle - 1)
        if sets is not None and sets <= low:
            return self.geometry(sets)
        return self._with_rest(self.geometry(low), size_bytes)

    def nbytes(self, size_bytes: int | None, size_rows: int | None) -> int:
        """Bytes of the block of a cache within these bounds, as `fit` takes them."""
        return self.size(self.fit(size_bytes, size_rows))

    def _with_rest(self, geometry: Geometry, size_bytes: int) -> Geometry:
        """What sets of whole ways leave over goes to the heap."""
        if not geometry.segments:
            return geometry
        rest = max(size_bytes - self.size(geometry) - _ALIGNMENT, 0) // geometry.segments // 8 * 8
        return geometry._replace(segment_bytes=min(geometry.segment_bytes + rest, _LARGEST_SEGMENT_BYTES))


class Block:
    """Memory with a cache's arrays as views into it.

    Args:
        contents: what the cache holds.
        geometry: its sizes.
        memory: at least ``contents.size(geometry)`` writable bytes, zeros or a cache of the same contents and geometry; None
            reserves private memory now.

    Raises:
        RequestError: the system does not give that much memory.
    """

    def __init__(self, contents: Contents, geometry: Geometry, memory: Memory | None = None) -> None:
        self.geometry = geometry
        self.nbytes = contents.size(geometry)
        self.memory = reserve(self.nbytes) if memory is None else memory
        self._arrays: dict[str, npt.NDArray[Any]] = {}
        offset = 0
        for array in contents.arrays(geometry):
            self._arrays[array.name] = np.ndarray(array.shape, array.dtype, buffer=self.memory, offset=offset)
            offset += array.nbytes
        self.header: npt.NDArray[np.int64] = self._arrays["header"]
        self.is_new = self.header[At.MAGIC] != MAGIC
        if self.is_new:
            self.header[At.SETS : At.SEGMENT_BYTES + 1] = geometry
            self.header[At.VERSION] = VERSION
            self.header[At.MAGIC] = MAGIC

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        return self._arrays[name]

    def matching(self, prefix: str) -> dict[str, npt.NDArray[Any]]:
        """The arrays whose names start with `prefix`, by what follows it."""
        return {name.removeprefix(prefix): array for name, array in self._arrays.items() if name.startswith(prefix)}


def reserve(nbytes: int) -> memoryview:
    """Private memory, all of it given by the system now, so that a cache can't fail later for want of it.

    Where there are 2 MB of it or more it begins where a huge page of 2 MB can, on Linux.
    """
    free = free_memory()
    if free is not None and nbytes > free:
        # The system would promise it all the same, and end this process when it is used.
        raise RequestError(f"expected {nbytes:,} bytes of memory for the cache, got {free:,} that are free; give a smaller size")
    flags: Sequence[int] = (mmap.MAP_PRIVATE, mmap.MAP_ANONYMOUS) if hasattr(mmap, "MAP_PRIVATE") else ()
    room = nbytes + _HUGE_PAGE if nbytes >= _HUGE_PAGE and hasattr(mmap, "MADV_HUGEPAGE") else nbytes
    try:
        memory = mmap.mmap(-1, room, flags=flags[0] | flags[1]) if flags else mmap.mmap(-1, room)
    except (OSError, OverflowError, ValueError) as error:
        raise RequestError(f"expected {nbytes:,} bytes of memory for the cache, got {error}; give a smaller size") from error
    start = 0
    if room > nbytes:
        # Huge pages begin at such addresses; what lies before is never touched, so it takes no memory.
        start = -int(np.frombuffer(memory, np.uint8).ctypes.data) % _HUGE_PAGE
        with suppress(OSError):  # a kernel without huge pages: slower, not wrong
            whole = nbytes // _HUGE_PAGE * _HUGE_PAGE
            memory.madvise(mmap.MADV_HUGEPAGE, start, whole)
            # The last one would be taken as a whole, where the system gives huge pages to all.
            memory.madvise(mmap.MADV_NOHUGEPAGE, start + whole, room - start - whole)
    try:
        memory.madvise(POPULATE_WRITE, start, nbytes)
    except (AttributeError, OSError):  # a system without it: page by page, the same in four times the time
        np.frombuffer(memory, np.uint8)[start : start + nbytes : mmap.PAGESIZE] = 0
    return memoryview(memory)[start : start + nbytes]
