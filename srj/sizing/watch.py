"""The pattern query on a stream without end: exact while it searches, on a small sample while it only watches for a change."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from srj.quantities import whole_number
from srj.sizing.pattern import Pattern, Phase
from srj.sizing.sampling import EXACT_KEYS, Shards, check_hashes

if TYPE_CHECKING:
    import numpy.typing as npt

    from srj.sizing.curve import MissRatioCurve

    U64 = npt.NDArray[np.uint64]
    F64 = npt.NDArray[np.float64]

_RATES = 0.25, 0.05  # the most that is sampled while watching, with a bound and without
_KEYS = 250, 1000  # sampled keys that are enough to see a change of a bound, and that there is one
_SIGMAS = 4.0  # of the sample's noise that are no change
_NOISE = 0.02  # of the bound, without sampling
_COVERS = 4.0  # references for each key until hardly one of a working set has not come (e**-4)
_MISSED = 20  # sampled distances that the old pattern would have had in that time
_RARE = 0.02  # of the known keys may have come again after longer than a smaller bound
_OFTEN = 0.1  # of those looked at last: where so many have, there is none, which is known at a tenth of the cost
_SEVERAL = 5  # sampled distances: so many are no stray key's
_FULL_BEFORE = 1.6  # times a distance in keys: a query that waits for more than 1.5 times as many would be full before
_FADES = 4  # times as many references as memory holds keys
_EPOCHS, _PER_LIMIT = 128, 16  # of the recent past; as many references as the bound has entries are so many
# Windows of the recent past that are looked at: up to where the next one's part begins.
_PARTS = np.append(0, np.unique(np.geomspace(1, _EPOCHS, 16).astype(int))[:-1])
_SIZES = 2.0 ** np.arange(-8, 0.25, 0.25)  # of the bound, by which distances are counted
# References looked at together while watching, at least and most: a look takes some 100 us. With more of them, or three quarters
# of the bound in place of half, a new pattern is noticed an interval or two later.
_TOGETHER = 8_192, 16_384
_SLEEPS_AFTER = 8.0  # times as many references without a miss as the bound has entries
_REFILLS = 2.0  # times as many references after a sleep, until most known keys have come again


# Columns of an epoch: of those looked at first touches, then the others by distance, the last of which no cache of this memory
# could hold; and all references.
_FIRST, _KNOWN, _NEW, _PASSED = 0, slice(1, -2), -2, -1
_LARGER = 1 + _SIZES.size  # than the bound


class Watch:
    """Says how many entries an LRU cache of this stream can use at most, and notices when that changes.

    It searches with exact distances (a sample of 100,000 keys when there are more), and once the pattern is found goes on with
    one key in four or fewer. When a distance exceeds the bound by more than the sample's noise, or when all have been below it
    for so long that the old pattern is out of the question, it searches anew, exactly. Distances that no cache in this memory
    could hold count as first touches: keys that come again after so long are as good as new.

    Where all keys are known and none has missed for long, a smaller bound would gain nothing, and a larger one would show in
    misses: it sleeps until the next one. What it knew of the keys' order is of no use then.

    Args:
        memory: entries that memory can hold, not bytes.
        compiled: as in `reuse_distances`.

    Attributes:
        memory: as given.
        searches: how many have begun.
        is_asleep: whether it looks at nothing until a key misses.
        noise: of the bound: a change by no more than this share is not seen.

    Example:
        >>> import numpy as np
        >>> from srj.sizing import hash_keys
        >>> watch, rng = Watch(50_000), np.random.default_rng(1)
        >>> for part in range(3):
        ...     _ = watch.add(hash_keys(1_000 * part + rng.integers(0, 1_000, 10_000)))
        >>> 980 <= watch.bound <= 1_000
        True
    """

    def __init__(self, memory: int, *, compiled: bool | None = None) -> None:
        self.memory, self._compiled = whole_number("memory", memory, 1, 2**63 - 1), compiled
        self.searches, self.noise = 0, _NOISE
        self._provisional: float | None = None
        self._epochs = np.zeros((_EPOCHS, _LARGER + 3))  # a ring, filled backwards: behind each epoch is the one before
        self._newest = 0
        # Copies in one place: arrays that are kept alive drive what the join works on out of the processor's cache.
        self._waiting = np.empty(2 * _TOGETHER[1], np.uint64)
        self._held = self._references = self._unfaded = self._without_miss = 0
        self._rate_of_distances = 1.0
        self._together, self._limit = _TOGETHER[0], memory
        self.is_asleep, self._refilling = False, 0.0
        self._search(None)

    @property
    def phase(self) -> Phase:
        """Of the query now."""
        return self._pattern.state.phase

    @property
    def bound(self) -> int | None:
        """Entries beyond which more cache buys nothing; None: unknown as yet, or not below the memory.

        During a later search it is what is known for now: what the sample showed that began it, raised by what has been seen
        since; once that is so much that it says more, this alone.
        """
        if self.phase is Phase.SEARCHING and self._provisional is not None:
            return min(int(np.ceil(max(self._provisional, self._pattern.state.max_srd + 1))), self.memory) or None
        return self._pattern.bound

    def curve(self) -> MissRatioCurve:
        """The miss-ratio curve since the present search began; where there is no bound, of late.

        Beside a bound it is of the few keys that watching takes, and says nothing that the bound does not say better.
        What is older counts half as much each time four times as many keys have come as memory holds.
        """
        return self._shards.curve()

    @property
    def rate(self) -> float:
        """The share of the keys that is looked at now: those whose hash is below this share of 2**64."""
        return 0.0 if self.is_asleep else self._shards.rate

    def hold(self, memory: int) -> None:
        """Memory can hold so many entries, as has come out; while it searches."""
        self.memory = self._pattern.memory = memory

    def add(self, hashes: U64, references: int | None = None, *, missed: int = 1) -> bool:
        """Take the next references.

        Args:
            hashes: of their keys, 64 bits (`hash_keys`); those of keys that are not looked at (`rate`) may be left out.
            references: how many there were with those left out.
            missed: how many of them the cache did not know; where that is unknown it must not sleep.

        Returns:
            Whether they have been looked at, with others that had waited for that, or it has gone to sleep, or been woken.

        Raises:
            RequestError: no hashes.
        """
        check_hashes(hashes)
        references = hashes.size if references is None else references
        if self._is_settled:
            return self._watch(hashes, references, missed)
        _, distances = self._shards.add(hashes, references)
        self._fade(references)
        if self._pattern.add(distances, 1 / self._rate_of_distances) is not Phase.SEARCHING:
            self._settle()
        elif self._provisional is not None and self._pattern.state.references >= _COVERS * self._provisional:
            self._provisional = 0.0  # a sample's guess; what has been seen since says more
        self._rate_of_distances = self._shards.rate
        return True

    def _watch(self, hashes: U64, references: int, missed: int) -> bool:
        if missed:
            self._without_miss = 0
            if self.is_asleep:
                self._wake()
                return True
        elif self.is_asleep:
            return False
        else:
            self._without_miss += references
            if self._without_miss >= _SLEEPS_AFTER * self._limit and self.phase is Phase.CLOSED:
                self.is_asleep = True
                return True
        self._references += references
        begin, end = self._held, self._held + hashes.size
        if end <= self._waiting.size:
            self._waiting[begin:end] = hashes
            self._held = end
            if self._references < self._together:
                return False
            hashes = self._waiting[:end]
        else:
            hashes = np.concatenate([self._waiting[:begin], hashes])
        references, self._references, self._held = self._references, 0, 0
        distances = self._shards.add(hashes, references)[1]
        self._fade(references)
        self._look(distances, references)
        self._rate_of_distances = self._shards.rate
        return True

    def _fade(self, references: int) -> None:
        self._unfaded += references
        if self._unfaded >= _FADES * self.memory and self._pattern.bound is None:
            self._shards.fade(0.5)
            self._unfaded = 0

    def _search(self, provisional: float | None, *, floor: float = 0.0) -> None:
        self._provisional, self._is_settled = provisional, False
        self.is_asleep, self._refilling = False, 0.0
        self._without_miss = 0
        self._pattern = Pattern(self.memory, floor=floor)
        self._shards = Shards(keys=EXACT_KEYS, counted=False, compiled=self._compiled)
        self._rate_of_distances = 1.0
        self._unfaded = 0
        self._epochs[:] = 0
        self._held = self._references = 0
        self.searches += 1

    def _wake(self) -> None:
        self.is_asleep, self._refilling = False, _REFILLS * self._limit
        self._shards.forget_keys()
        self._epochs[:] = 0
        self._held = self._references = 0

    def _settle(self) -> None:
        """Go on with a sample; the keys in it are known already."""
        self._is_settled = True
        limit, has_bound = self._pattern.bound or self.memory, self._pattern.bound is not None
        self._limit = limit
        self._shards.lower(min(_RATES[0], _KEYS[0] / limit) if has_bound else min(_RATES[1], _KEYS[1] / limit))
        self._together = min(max(limit // 2, _TOGETHER[0]), _TOGETHER[1])
        self.noise = max(_NOISE, _SIGMAS * float(np.sqrt((1 - self._shards.rate) / (self._shards.rate * limit))))
        # Below the first edge are first touches, which have -1; above the last, keys that are as good as new.
        self._edges = np.concatenate([[-0.5], _SIZES * limit, [max(np.nextafter(self.memory, 0), limit)]])
        self._large = 1 + int(np.searchsorted(_SIZES, 1 - self.noise))

    def _look(self, distances: F64, references: int) -> None:
        limit = self._limit
        counts = np.bincount(np.searchsorted(self._edges, distances), minlength=self._edges.size + 1)
        if counts[_LARGER] and self._pattern.bound is not None:
            within = distances[distances < self.memory]
            larger = within[within >= limit * (1 + self.noise)]
            if larger.size:
                largest = float(larger.max())
                # One key that strays says nothing of the others; and where it is near the memory, no query would end before.
                floor = min(largest, self.memory / _FULL_BEFORE) if larger.size >= _SEVERAL else 0.0
                self._search(min(largest + 1, self.memory), floor=floor)
                return
        if self._epochs[self._newest, _PASSED] >= limit / _PER_LIMIT:
            self._newest = (self._newest - 1) % _EPOCHS
            self._epochs[self._newest] = 0
        newest = self._epochs[self._newest]
        newest[:_PASSED] += counts
        newest[_PASSED] += references
        if self._refilling > 0:  # a first touch may be of a known key, after a distance that has been slept through
            newest[_NEW] += counts[_FIRST]
            self._refilling -= references
        of_each = counts.tolist()
        if sum(of_each[self._large : -1]) <= _OFTEN * sum(of_each[1:-1]):
            recent = self._smaller(limit)
            if recent is not None:
                self._search(recent)

    def _smaller(self, limit: int) -> float | None:
        """What nearly all distances of late are below, if that is no chance; None: there is no such size.

        A window that reaches back before the change shows too large a size, so the least of all windows is taken.
        """
        past = np.cumsum(np.add.reduceat(np.roll(self._epochs, -self._newest, axis=0), _PARTS, axis=0), axis=0)
        references, new, known = past[:, _PASSED], past[:, _NEW], np.cumsum(past[:, _KNOWN], axis=1)
        is_free = self._pattern.bound is None  # then first touches are what a larger cache would not hit either
        if is_free:
            new = new + past[:, _FIRST]
        sizes, beyond = _SIZES * limit, known[:, -1:] - known[:, :-1]
        # Where an interval has just begun, hardly any key is known, and the few distances say nothing.
        fits = (beyond <= _RARE * known[:, -1:]) & (references[:, None] >= _COVERS * sizes) & (sizes < limit * (1 - self.noise))
        least = None
        for window in np.flatnonzero(fits.any(axis=1) & (known[:, -1] >= _MISSED)):
            size = np.argmax(fits[window])
            expected = self._shards.beyond(sizes[size] * (1 + self.noise), first=is_free) * references[window] * self._shards.rate
            if expected - beyond[window, size] - new[window] >= max(_MISSED, _SIGMAS * float(np.sqrt(expected))):
                least = float(sizes[size]) if least is None else min(least, float(sizes[size]))
        return least
