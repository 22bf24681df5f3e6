"""What an operator counts while it runs, and what srj has chosen by then."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import NamedTuple

from srj.sizing.pattern import Phase


@dataclass
class Metrics:
    """Counts since they were last taken; every row of the stream counts once as hit, miss, null or impossible.

    Attributes:
        rows: rows of the stream.
        hits: rows whose key the cache knew, be it present or absent in the table.
        misses: rows that waited for the database, alone or with others.
        absent: rows, hit or miss, whose key the table does not have.
        null_keys: rows with a NULL key: they match nothing and ask nothing.
        impossible_keys: rows whose key can't be a value of the table's key type: they match nothing and ask nothing.
        matches: rows of the table that were joined.
        batches: lookups sent to the database.
        keys: distinct keys asked in them.
        database_us: microseconds from sending a lookup to its answer, added up over lookups that overlap.
        retries: lookups sent again after their connection failed.
        evictions: cache entries removed to make room.
        uncached: answers that the cache could not keep.
        bypasses: probes and inserts that did without the cache, for another process kept it for too long.
        resizes: how often srj has changed the cache's size, with ``cache="auto"``.
        waiting, pinned: the most rows that waited at a time; the most of them whose matches were known and that had to stay for the
            sake of the order.
        distance: the largest scrambling distance.
        predicted_distance: the largest that the thesis predicted: what the waiting lookups take, in rows of the stream that come
            meanwhile. It decides nothing.
    """

    rows: int = 0
    hits: int = 0
    misses: int = 0
    absent: int = 0
    null_keys: int = 0
    impossible_keys: int = 0
    matches: int = 0
    batches: int = 0
    keys: int = 0
    database_us: int = 0
    retries: int = 0
    evictions: int = 0
    uncached: int = 0
    bypasses: int = 0
    resizes: int = 0
    waiting: int = 0
    pinned: int = 0
    distance: int = 0
    predicted_distance: int = 0

    def take(self) -> list[int]:
        """The counters in the order of `COUNTED`, which then start again from zero.

        >>> metrics = Metrics(rows=2, hits=2)
        >>> metrics.take()[:2], metrics.take()[:2]
        ([2, 2], [0, 0])
        """
        values = [getattr(self, name) for name in COUNTED]
        for name in COUNTED:
            setattr(self, name, 0)
        return values


PHASES = tuple(phase.value for phase in Phase)
UNKNOWN = -1


class Chosen(NamedTuple):
    """The cache and the lookups as they are now, whether srj or the user has chosen them; `UNKNOWN` where nobody can say.

    Attributes:
        cache_capacity: entries that the cache has room for.
        cache_bytes: memory that it takes; unknown where a function of the user's has made it.
        cache_phase: with ``cache="auto"``, where the search for the size stands, as a position in `PHASES`; known to the one worker
            that watches the keys of all.
        cache_bound: and the size that was found, in keys, beyond which more buys nothing; 0 for none.
        batch_size: keys in a lookup that is full.
        in_flight: lookups sent at a time.
    """

    cache_capacity: int
    cache_bytes: int
    cache_phase: int
    cache_bound: int
    batch_size: int
    in_flight: int


COUNTED = tuple(field.name for field in fields(Metrics))
# What an operator tells: first when, by which what several have told is put into its order.
METRICS = ("told_us", *COUNTED, *Chosen._fields)
# Of all tasks of a micro-batch these are not added up: the largest counts. They stand last of what is counted.
LARGEST = ("waiting", "pinned", "distance", "predicted_distance")
