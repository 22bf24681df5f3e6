"""From what a user asked for to the cache that a worker gets."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from srj.errors import RequestError
from srj.lookup.auto_size import AutoSize
from srj.lookup.cache import ColumnarCache
from srj.lookup.key_log import open_log
from srj.lookup.layout import Contents
from srj.lookup.map_file import executor_folder, open_map
from srj.lookup.memory_limit import address_room, free_memory
from srj.lookup.private_cache import PrivateCache
from srj.lookup.reference_cache import ReferenceCache
from srj.lookup.shared_cache import SharedCache
from srj.options import Cache as CacheOptions
from srj.quantities import parse_size

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from srj.lookup.batching import Batching
    from srj.lookup.entry_room import Answered
    from srj.lookup.interface import Cache
    from srj.lookup.layout import Geometry, Memory
    from srj.lookup.map_file import MapFile
    from srj.lookup.spec import LookupSpec

KEY_WIDTH = 16
"""Estimated bytes of a key of varying length, to divide the cache's memory by."""
# Times the room that this worker would give: the others have about as much, so one of them made a map that is a little larger.
_TOLERANCE = 1.25
# What cache="auto" gives to the cache of its memory before anything is known: a fair split with what waits.
_FAIR = 0.5


class CacheMaker:
    """Makes columnar caches of any size for a lookup.

    Args:
        spec: the lookup.
        cache: how its answers are remembered.

    Attributes:
        contents: what such a cache holds.
        size: the bounds that were asked for, as `Contents.fit` takes them.
    """

    def __init__(self, spec: LookupSpec, cache: CacheOptions) -> None:
        settings, description = spec.settings, spec.description
        self._key_types, self._columns = [column.type for column in description.key], spec.columns
        self._of_what: dict[str, Any] = {
            "unique": description.unique or spec.question.exists_only,
            "rows_per_key": description.rows_per_key,
            "widths": [KEY_WIDTH] * len(description.key) + [column.width for column in description.columns],
            "policy": cache.chosen,  # a part of it, for each way keeps the rule's fields
        }
        self._lives: dict[str, float | None] = {"ttl": settings.ttl, "missing_ttl": settings.missing_ttl}
        self.contents = Contents.of(self._key_types, self._columns, **self._of_what)
        if cache.is_auto:
            self.size: dict[str, int | None] = {"size_bytes": int(cache.memory_bytes * _FAIR), "size_rows": None}
        else:
            amount, unit = parse_size(cache.size)
            self.size = {"size_bytes": amount if unit == "bytes" else None, "size_rows": amount if unit == "rows" else None}

    def over(self, memory: Memory | None, geometry: Geometry | None = None) -> ColumnarCache:
        """A cache over a map, or in memory of its own; of this geometry if it is a new one, else of the size that was asked for."""
        more: dict[str, Any] = self.size | self._lives | self._of_what
        return ColumnarCache(self._key_types, self._columns, memory=memory, geometry=geometry, **more)


def make_cache(spec: LookupSpec, shared_as: str | None = None) -> Cache:
    """The cache that the settings ask for: the executor's if there is one and it can be had, else this process's own."""
    settings = spec.settings
    if not isinstance(settings.cache, CacheOptions):
        return ReferenceCache(settings.cache, spec.columns, ttl=settings.ttl, missing_ttl=settings.missing_ttl)
    maker = CacheMaker(spec, settings.cache)
    contents, size = maker.contents, maker.size
    least = contents.nbytes(size_bytes=None, size_rows=1)
    if settings.cache.is_auto and (there := available(settings.cache.memory_bytes)) < settings.cache.memory_bytes:
        _less(settings.cache.memory_bytes, there, "no more than half of what is free is taken", what="the cache and what waits")
        size["size_bytes"] = max(int(there * _FAIR), least)
    asked = nbytes = contents.nbytes(**size)
    room = address_room()
    most = None if room is None else max(room, least)
    if most is not None and nbytes > most:
        size["size_bytes"] = most
        nbytes = contents.nbytes(**size)

    def opened() -> MapFile | None:
        return None if shared_as is None else _usable_map(shared_as, nbytes, maker, most=most)

    map_file = opened() if settings.cache.shared else None
    made = nbytes if map_file is None else len(map_file.memory)
    if made < asked and not settings.cache.is_auto:
        _less(asked, made, "the address space that spark.executor.pyspark.memory leaves")
    if map_file is not None:
        return SharedCache(map_file, maker.over, opened)
    return _private(maker, nbytes, least, is_auto=settings.cache.is_auto)


def _private(maker: CacheMaker, nbytes: int, least: int, *, is_auto: bool) -> Cache:
    """A smaller cache than asked for is better than a task that fails."""
    asked, reason = nbytes, ""
    while True:
        try:
            made = PrivateCache(maker.over) if is_auto else maker.over(None)
        except RequestError as error:
            if nbytes <= least:
                raise
            reason = reason or str(error)
            nbytes = maker.size["size_bytes"] = max(nbytes // 2, least)
        else:
            if nbytes < asked:
                _less(asked, nbytes, reason)
            return made


def _usable_map(name: str, nbytes: int, maker: CacheMaker, *, most: int | None) -> MapFile | None:
    """The executor's map, if this worker can use it; else it is told why not, and leaves it to the others."""
    folder = executor_folder()
    map_file = None if folder is None else open_map(folder, name, nbytes, maker.over)
    if map_file is None:
        return None
    there = len(map_file.memory)
    if not maker.contents.is_whole(map_file.memory):
        problem = f"expected a whole cache in {map_file.path}, got {there:,} bytes that are none; remove that file"
    elif most is not None and there > _TOLERANCE * most:
        problem = (
            f"expected a cache of at most {most:,} bytes, for want of room, got {there:,} in {map_file.path}, by a worker that "
            "has more; give all as much"
        )
    else:
        return map_file
    warnings.warn(f"{problem}, for this worker has a cache of its own now", stacklevel=4)
    map_file.close()
    return None


def available(memory: int, held: int = 0) -> int:
    """As much of what cache="auto" was given as the machine can spare: half of what is free, for others want a part too.

    Args:
        memory: bytes that were given.
        held: bytes that the cache has taken of it already.
    """
    free = free_memory()
    return memory if free is None else max(min(memory, (free + held) // 2), 1)


def _less(asked: int, given: int, reason: str, *, what: str = "the cache") -> None:
    warnings.warn(f"expected {asked:,} bytes for {what}, got {given:,} in this worker for want of room: {reason}", stacklevel=4)


def make_auto_size(
    spec: LookupSpec,
    cache: Cache,
    batching: Batching,
    turn: AbstractContextManager[object],
    on_resize: Callable[[], None],
    answered: Callable[[], Answered],
    name: str | None,
) -> AutoSize | None:
    """What sizes a cache that `make_cache` made of these, where the settings ask for that."""
    options, folder = spec.settings.cache, executor_folder()
    if not isinstance(options, CacheOptions) or not options.is_auto or not isinstance(cache, (SharedCache, PrivateCache)):
        return None
    log = open_log(folder, name) if isinstance(cache, SharedCache) and folder is not None and name is not None else None
    if log is None and isinstance(cache, SharedCache):
        return None  # each worker would size the cache of all by its own part of the keys
    contents = CacheMaker(spec, options).contents
    memory, room = available(options.memory_bytes, cache.stats().bytes_reserved), address_room()
    if room is not None:  # for a new cache beside the old one
        memory = min(memory, room)
    return AutoSize(memory, cache, contents, batching, turn, log=log, answered=answered, on_resize=on_resize)


def check_cache(spec: LookupSpec) -> None:
    """Find on the driver, without reserving memory, whether the cache that the settings ask for can be made.

    Raises:
        RequestError: its size is too small for the table.
    """
    cache = spec.settings.cache
    if isinstance(cache, CacheOptions):
        maker = CacheMaker(spec, cache)
        try:
            maker.contents.fit(**maker.size)
        except RequestError:
            if not cache.is_auto:
                raise
            least = int(maker.contents.nbytes(size_bytes=None, size_rows=1) / _FAIR)
            raise RequestError(
                f"expected at least {least:,} bytes of memory for cache='auto' and this table's rows, got {cache.memory_bytes:,}; "
                "give more memory"
            ) from None
