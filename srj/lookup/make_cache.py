"""From what a user asked for to the cache that a worker gets."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from srj.errors import RequestError
from srj.lookup.cache import ColumnarCache
from srj.lookup.layout import block_bytes, check_fit, geometry_in
from srj.lookup.map_file import executor_folder, open_map
from srj.lookup.memory_limit import address_room
from srj.lookup.reference_cache import ReferenceCache
from srj.lookup.shared_cache import SharedCache
from srj.options import Cache as CacheOptions
from srj.quantities import parse_size

if TYPE_CHECKING:
    import mmap

    from srj.lookup.interface import Cache
    from srj.lookup.spec import LookupSpec

# Estimated bytes of a key of varying length, to divide the cache's memory by.
_KEY_WIDTH = 16


def make_cache(spec: LookupSpec, shared_as: str | None = None) -> Cache:
    """The cache that the settings ask for: the executor's if there is one and it can be had, else this process's own."""
    settings, description = spec.settings, spec.description
    if not isinstance(settings.cache, CacheOptions):
        return ReferenceCache(settings.cache, spec.columns, ttl=settings.ttl, missing_ttl=settings.missing_ttl)
    key_types = [column.type for column in description.key]
    size = _size(spec, settings.cache)

    def over(memory: mmap.mmap | None) -> ColumnarCache:
        return ColumnarCache(key_types, spec.columns, ttl=settings.ttl, missing_ttl=settings.missing_ttl, memory=memory, **size)

    nbytes = block_bytes(key_types, spec.columns, **size)
    least = block_bytes(key_types, spec.columns, **size | {"size_bytes": None, "size_rows": 1})
    room = address_room()
    if room is not None and nbytes > room:
        nbytes = size["size_bytes"] = _less(nbytes, max(room, least), "the address space that spark.executor.pyspark.memory leaves")
    folder = executor_folder()
    if shared_as is not None and folder is not None and settings.cache.shared:
        map_file = open_map(folder, shared_as, nbytes, over)
        if map_file is not None and geometry_in(map_file.memory) is not None:
            return SharedCache(over(map_file.memory), map_file)
    while True:
        try:
            return over(None)
        except RequestError as error:  # a smaller cache is better than a task that fails
            if nbytes <= least:
                raise
            nbytes = size["size_bytes"] = _less(nbytes, max(nbytes // 2, least), str(error))


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
        check_fit([column.type for column in spec.description.key], spec.columns, **_size(spec, cache))


def _size(spec: LookupSpec, cache: CacheOptions) -> dict[str, Any]:
    """What the size of a columnar cache is computed from; its policy is part of it, for each way keeps the rule's fields."""
    description = spec.description
    amount, unit = parse_size(cache.size)
    return {
        "size_bytes": amount if unit == "bytes" else None,
        "size_rows": amount if unit == "rows" else None,
        "unique": description.unique or spec.question.exists_only,
        "rows_per_key": description.rows_per_key,
        "widths": [_KEY_WIDTH] * len(description.key) + [column.width for column in description.columns],
        "policy": cache.chosen,
    }
