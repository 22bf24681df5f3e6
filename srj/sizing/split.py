"""One memory divided between the cache and the rows that wait: where another byte buys more.

A larger cache misses less; with less room to wait, batches are smaller, and each key costs more. Nobody publishes this for a join
of a stream with a database; the model is that of a lookup's cost, C_batch(k) = a + b k, and of a miss-ratio curve.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    from srj.sizing.curve import MissRatioCurve

    F64 = npt.NDArray[np.float64]

FLOOR = 1 / 16  # of the memory that the cache has at least, and what waits too
SLACK = 1.15  # entries for each of a working set: a key of the columnar cache can stand in 16 places only
_SIZES = 65  # that are compared
_AS_GOOD = 1.01  # what costs no more than so many times the least is as good; of these the smallest cache leaves most


class Costs(NamedTuple):
    """What entries, waiting rows and lookups cost.

    Attributes:
        entry: bytes of the cache for an entry.
        event: bytes of a row that waits.
        fixed, each: seconds of a lookup of k keys: fixed + each * k.
        in_flight: lookups at a time.
        most_keys: in a lookup.
        asked: keys that are asked for each row that misses: below 1, for rows of one key ask once.
        batch: rows that come at a time; those of them that wait do so whatever room there is.
        hits_wait: whether rows wait whose key is known: they do where rows leave in their order.
        work: seconds of the worker's processor for each key that is asked.
    """

    entry: float
    event: float
    fixed: float
    each: float
    in_flight: float = 1.0
    most_keys: float = 10_000.0
    asked: float = 1.0
    batch: float = 0.0
    hits_wait: bool = False
    work: float = 0.0

    def seconds(self, entries: npt.ArrayLike, curve: MissRatioCurve, memory: float) -> F64:
        """Seconds for each row of the stream, of database and worker, with caches of these sizes in so many bytes of memory.

        >>> from srj.sizing import MissRatioCurve
        >>> import numpy as np
        >>> curve = MissRatioCurve(np.array([0.0, 1000.0]), np.array([1.0, 0.0]), 1e6)
        >>> costs = Costs(entry=100, event=100, fixed=0.01, each=0.0, most_keys=1e9)
        >>> costs.seconds([0, 500, 900], curve, memory=100_000).round(7).tolist()  # 0.01 s for 500, 250 and 50 keys
        [2e-05, 2e-05, 2e-05]
        """
        entries = np.asarray(entries, np.float64)
        misses, room = curve.at(entries), (memory - entries * self.entry) / self.event
        missing = misses * room if self.hits_wait else room
        # Of what has room to wait one lookup is being filled while so many fly; what comes together is sent together.
        filled = np.maximum(missing / (self.in_flight + 1), misses * self.batch / self.in_flight)
        keys = np.clip(filled * self.asked, 1.0, self.most_keys)
        return np.asarray(misses * self.asked * ((self.fixed / keys + self.each) / self.in_flight + self.work))


def best_size(curve: MissRatioCurve, memory: float, costs: Costs) -> int:
    """The entries with which a row costs least; the smallest of those that are as good within 1 %.

    Args:
        curve: of the stream.
        memory: bytes, for entries and waiting rows.
        costs: of both, and of lookups.

    Example:
        >>> import numpy as np
        >>> from srj.sizing import MissRatioCurve
        >>> curve = MissRatioCurve(np.array([0.0, 999.0, 1000.0]), np.array([1.0, 1.0, 0.0]), 1e6)  # a loop of 1000 keys
        >>> 1150 <= best_size(curve, 1e6, Costs(entry=100, event=100, fixed=0.001, each=1e-6)) < 1400
        True
    """
    most, least = memory * (1 - FLOOR) / costs.entry, memory * FLOOR / costs.entry
    sizes = np.linspace(least, most, _SIZES)
    seconds = costs.seconds(sizes, curve.stretched(SLACK), memory)
    return int(np.ceil(sizes[np.flatnonzero(seconds <= _AS_GOOD * seconds.min())[0]]))
