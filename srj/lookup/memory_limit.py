"""How much of its address space a worker may give to a cache: `spark.executor.pyspark.memory` bounds it."""

from __future__ import annotations

import mmap
from pathlib import Path

try:
    import resource
except ImportError:  # Windows, where Spark sets no such bound
    resource = None  # type: ignore[assignment]

_SHARE = 0.5  # of what is left at most; the rest is for rows
_KEPT = 192 * 2**20  # at least: threads' stacks and allocators' arenas take 124 MB before the first row
_STATE = Path("/proc/self/statm")
_MEMORY = Path("/proc/meminfo")
_CONTAINER = Path("/sys/fs/cgroup")


def free_memory() -> int | None:
    """Bytes that the system, or this process's container, can still give; None where it does not say."""
    known = [size for size in (_available(), _left_in_container()) if size is not None]
    return min(known, default=None)


def _available() -> int | None:
    lines = _MEMORY.read_text().splitlines() if _MEMORY.exists() else []
    found = next((line.split()[1] for line in lines if line.startswith("MemAvailable:")), None)
    return None if found is None else int(found) * 1024


def _left_in_container() -> int | None:
    try:
        limit, stat = (_CONTAINER.joinpath(name).read_text() for name in ("memory.max", "memory.stat"))
        # Not all that is in use: the rest is cached files, which give way.
        return int(limit) - next(int(line.split()[1]) for line in stat.splitlines() if line.startswith("anon "))
    except (OSError, ValueError, StopIteration):  # no such file, or no limit: "max"
        return None


def address_room() -> int | None:
    """Bytes that a cache may take; None without a bound, or where what is in use is not known."""
    if resource is None or not hasattr(resource, "RLIMIT_AS"):
        return None
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit == resource.RLIM_INFINITY or not _STATE.exists():
        return None
    in_use = int(_STATE.read_text().split()[0]) * mmap.PAGESIZE
    left = limit - in_use
    return max(min(int(left * _SHARE), left - _KEPT), 0)
