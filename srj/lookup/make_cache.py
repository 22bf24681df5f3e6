"""From what a user asked for to the cache that a worker gets."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from srj.errors import RequestError
from srj.lookup.cache import ColumnarCache
from srj.lookup.layout import Contents
from srj.lookup.map_file import executor_folder, open_map
from srj.lookup.memory_limit import address_room
from srj.lookup.reference_cache import ReferenceCache
from srj.lookup.shared_cache import SharedCache
from srj.options import Cache as CacheOptions
from srj.quantities import parse_size

if TYPE_CHECKING:
    import mmap
    from collections.abc import Callable

    from srj.lookup.interface import Cache
    from srj.lookup.map_file import MapFile
    from srj.lookup.spec import LookupSpec

# Estimated bytes of a key of varying length, to divide the cache's memory by.
_KEY_WIDTH = 16
# Times the room that this worker would give: the others have about as much, so one of them made a map that is a little larger.
_TOLERANCE = 1.25


def make_cache(spec: LookupSpec, shared_as: str | None = None) -> Cache:
    """The cache that the settings ask for: the executor's if there is one and it can be had, else this process's own."""
    settings, description = spec.settings, spec.description
    if not isinstance(settings.cache, CacheOptions):
        return ReferenceCache(settings.cache, spec.columns, ttl=settings.ttl, missing_ttl=settings.missing_ttl)
    key_types = [column.type for column in description.key]
    size, of_what = _size(settings.cache), _of_what(spec, settings.cache)
    contents = Contents.of(key_types, spec.columns, **of_what)

    def over(memory: mmap.mmap | None) -> ColumnarCache:
        bounds = size | {"ttl": settings.ttl, "missing_ttl": settings.missing_ttl}
        return ColumnarCache(key_types, spec.columns, memory=memory, **bounds, **of_what)

    asked = nbytes = contents.nbytes(**size)
    least = contents.nbytes(size_bytes=None, size_rows=1)
    room = address_room()
    most = None if room is None else max(room, least)
    if most is not None and nbytes > most:
        size["size_bytes"] = most
        nbytes = contents.nbytes(**size)
    map_file = None
    if shared_as is not None and settings.cache.shared:
        map_file = _usable_map(shared_as, nbytes, over, contents=contents, most=most)
    made = nbytes if map_file is None else len(map_file.memory)
    if made < asked:
        _less(asked, made, "the address space that spark.executor.pyspark.memory leaves")
    if map_file is not None:
        return SharedCache(over(map_file.memory), map_file)
    while True:
        try:
            return over(None)
        except RequestError as error:  # a smaller cache is better than a task that fails
            if nbytes <= least:
                raise
            nbytes = size["size_bytes"] = _less(nbytes, max(nbytes // 2, least), str(error))


def _usable_map(
    name: str, nbytes: int, prepare: Callable[[mmap.mmap], object], *, contents: Contents, most: int | None
) -> MapFile | None:
    """The executor's map, if this worker can use it; else it is told why not, and leaves it to the others."""
    folder = executor_folder()
    map_file = None if folder is None else open_map(folder, name, nbytes, prepare)
    if map_file is None:
        return None
    there = len(map_file.memory)
    if not contents.is_whole(map_file.memory):
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


def _less(asked: int, given: int, reason: str) -> int:
    warnings.warn(f"expected {asked:,} bytes for the cache, got {given:,} in this worker for want of room: {reason}", stacklevel=4)
    return given


def check_cache(spec: LookupSpec) -> None:
    """Find on the driver, without reserving memory, whether the cache that the settings ask for can be made.

    Raises:
        RequestError: its size is too small for the table.
    """
    cache = spec.settings.cache
    if isinstance(cache, CacheOptions):
        key_types = [column.type for column in spec.description.key]
        Contents.of(key_types, spec.columns, **_of_what(spec, cache)).fit(**_size(cache))


def _size(cache: CacheOptions) -> dict[str, Any]:
    """The bounds of a columnar cache, as `Contents.fit` takes them."""
    amount, unit = parse_size(cache.size)
    return {"size_bytes": amount if unit == "bytes" else None, "size_rows": amount if unit == "rows" else None}


def _of_what(spec: LookupSpec, cache: CacheOptions) -> dict[str, Any]:
    """What is known of the rows, as `Contents.of` takes it; the policy is part of it, for each way keeps the rule's fields."""
    description = spec.description
    return {
        "unique": description.unique or spec.question.exists_only,
        "rows_per_key": description.rows_per_key,
        "widths": [_KEY_WIDTH] * len(description.key) + [column.width for column in description.columns],
        "policy": cache.chosen,
    }
