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
