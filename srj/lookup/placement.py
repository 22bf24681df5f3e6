"""Where keys stand: two candidate sets of eight ways each, found by their tags and confirmed by the stored key itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from srj.lookup.encoding import INLINE, EncodedKeys, lengths_of
from srj.lookup.hashing import equal_long
from srj.lookup.layout import WAYS, Block

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

    from srj.cache_policies import Rule
    from srj.lookup.heap import Heap

    U64 = npt.NDArray[np.uint64]
    I64 = npt.NDArray[np.int64]
    Flags = npt.NDArray[np.bool_]
    Fields = Mapping[str, npt.NDArray[Any]]

CHUNK = 16384  # keys probed at once: the scratch arrays then stay in the processor's cache
_ONE, _TAG, _HALF, _TOP = np.uint64(1), np.uint64(0xFF), np.uint64(32), np.uint64(7)
_EVERY_BYTE = np.uint64(0x0101010101010101)
_LOW_BITS = np.uint64(0x7F7F7F7F7F7F7F7F)
_HIGH_BITS = np.uint64(0x8080808080808080)
_SECOND_HASH = np.uint64(0x9E3779B97F4A7C15)
IS_EXPIRED, _IS_TAKEN = np.int64(2**33), np.int64(-1)


class Probe(NamedTuple):
    """What a probe found.

    Attributes:
        known: whether the key has an entry, expired or not.
        ways: where; no meaning for a key that has none.
        stamps: the entry's stamp; no meaning for a key that has none.
    """

    known: Flags
    ways: I64
    stamps: I64


class Places(NamedTuple):
    """Where new keys go.

    Attributes:
        ways: the way of each; -1 where all 16 candidates are taken by the same insert.
        was_empty: whether nothing has to leave for it.
    """

    ways: I64
    was_empty: Flags


class _Scratch:
    """Arrays for intermediate results, allocated once."""

    def __init__(self) -> None:
        self._arrays: dict[str, npt.NDArray[Any]] = {}

    def __call__(self, name: str, shape: tuple[int, ...], dtype: type[Any] = np.uint64) -> npt.NDArray[Any]:
        array = self._arrays.get(name)
        if array is None:
            array = self._arrays[name] = np.empty((CHUNK, *shape[1:]), dtype)
        return array[: shape[0]]


class Placement:
    """The tags and records of a block.

    Args:
        block: the cache's memory.
        heap: where long key values stand.
    """

    def __init__(self, block: Block, heap: Heap) -> None:
        self.ways = block.geometry.ways
        self._sets = block.geometry.sets
        self._tags: npt.NDArray[np.uint8] = block["tags"]
        self._tag_words: U64 = self._tags.view(np.uint64).ravel()
        self.tags: npt.NDArray[np.uint8] = self._tags.ravel()
        self.records: U64 = block["records"]
        self.stamps: I64 = self.records[:, -1].view(np.int64)
        self.taken: npt.NDArray[np.uint8] = block["taken"]
        self._heap = heap
        self._scratch = _Scratch()

    def find(self, keys: EncodedKeys) -> Probe:
        """Probe all keys, doubles allowed."""
        count = len(keys)
        if count <= CHUNK:
            return self._find(keys, 0, count)
        parts = [self._find(keys, start, min(start + CHUNK, count)) for start in range(0, count, CHUNK)]
        return Probe(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))

    def _find(self, keys: EncodedKeys, start: int, stop: int) -> Probe:
        words, scratch, count = keys.words[start:stop], self._scratch, stop - start
        first, second = self._sets_of(keys.hashes[start:stop])
        candidates = self._candidates(keys.hashes[start:stop], first, second)
        known = candidates != 0
        ways = self._lowest(candidates, first, second, np.empty(count, np.int64))
        records = scratch("records", (count, self.records.shape[1]))
        np.take(self.records, ways, axis=0, out=records, mode="clip")
        known &= self._same_keys(records, words, keys, start)
        stamps = records[:, -1].view(np.int64).copy()
        # A tag of eight bits is another key's now and then: those few go on to their next candidate.
        rest = np.flatnonzero(~known)
        candidates = candidates[rest]
        while True:
            candidates &= candidates - _ONE
            going_on = np.flatnonzero(candidates)
            if not going_on.size:
                return Probe(known, ways, stamps)
            rest, candidates = rest[going_on], candidates[going_on]
            tried = self._lowest(candidates, first[rest], second[rest], np.empty(rest.size, np.int64))
            records = self.records[tried]
            same = self._same_keys(records, words[rest], keys, start, rest)
            found = rest[same]
            known[found] = True
            ways[found] = tried[same]
            stamps[found] = records[same, -1].view(np.int64)
            rest, candidates = rest[~same], candidates[~same]

    def _sets_of(self, hashes: U64) -> tuple[I64, I64]:
        """The two sets of each key, never the same."""
        first = self._scratch("first", hashes.shape)
        np.right_shift(hashes, _HALF, out=first)
        first *= np.uint64(self._sets)
        first >>= _HALF
        second = self._scratch("second", hashes.shape)
        np.multiply(hashes, _SECOND_HASH, out=second)
        second >>= _HALF
        second *= np.uint64(self._sets - 1)
        second >>= _HALF
        second += second >= first
        return first.view(np.int64), second.view(np.int64)

    def _candidates(self, hashes: U64, first: I64, second: I64) -> U64:
        """Bit 8w (8w + 1) is set where way w of the first (second) set has the key's tag."""
        scratch, shape = self._scratch, hashes.shape
        pattern = np.bitwise_and(hashes, _TAG, out=scratch("pattern", shape))
        np.maximum(pattern, _ONE, out=pattern)
        pattern *= _EVERY_BYTE
        result = self._matching(first, pattern, scratch("matching", shape))
        result >>= _TOP
        other = self._matching(second, pattern, scratch("other", shape))
        other >>= _TOP - _ONE
        result |= other
        return result

    def _matching(self, sets: I64, pattern: U64, out: U64) -> U64:
        """The high bit of each byte of the sets' tags that equals the pattern's: no carry passes from byte to byte."""
        work = self._scratch("work", sets.shape)
        np.take(self._tag_words, sets, out=out, mode="clip")
        out ^= pattern
        np.bitwise_and(out, _LOW_BITS, out=work)
        work += _LOW_BITS
        out |= work
        np.invert(out, out=out)
        out &= _HIGH_BITS
        return out

    def _lowest(self, candidates: U64, first: I64, second: I64, out: I64) -> I64:
        """The way of each key's lowest candidate; some way where it has none."""
        bits = self._scratch("bits", candidates.shape)
        np.negative(candidates, out=bits)
        bits &= candidates
        bits -= _ONE
        place = np.bitwise_count(bits).astype(np.int64)
        np.subtract(second, first, out=out)
        out *= place & 1
        out += first
        out *= WAYS
        place >>= 3
        out += place
        return out

    def _same_keys(self, records: U64, words: U64, keys: EncodedKeys, start: int, rows: I64 | None = None) -> Flags:
        """Whether each record is the key's own.

        Args:
            records, words: of the keys compared, row by row.
            keys: of the batch; compared are its keys from `start` on, or the `rows` counted from there.
        """
        same: Flags = records[:, 0] == words[:, 0]
        second_words = {at + 1: views for at, views in keys.views}
        for position in range(1, words.shape[1]):
            equal = records[:, position] == words[:, position]
            views = second_words.get(position)
            if views is not None and views.long.size:
                long = np.flatnonzero((lengths_of(words[:, position - 1]) > INLINE) & same)
                wanted = start + (long if rows is None else rows[long])
                # Length and first bytes are equal already, so the stored value is as long.
                stored = self._heap.address(records[long, position])
                at = np.searchsorted(views.long, wanted)
                equal[long] = equal_long(self._heap.words, stored, views.memory, views.offsets[at], views.lengths[at])
            same &= equal
        return same

    def place(self, hashes: U64, rule: Rule, fields: Fields, tick: int, alive_from: I64 | None) -> Places:
        """Choose a way for each of n keys that have none.

        An empty way is taken first, of the set that has more of them, then an expired entry's, then the policy's victim's.
        Chosen ways are marked as taken; until `write` an empty one has a tag that means nothing.

        Args:
            hashes: of the keys.
            rule, fields, tick: the policy, its fields and its present tick.
            alive_from: lowest stamp of an entry with rows and of one without that has not expired; None when none has.
        """
        chosen = np.full(hashes.size, -1, np.int64)
        was_empty = np.zeros(hashes.size, np.bool_)
        for start in range(0, hashes.size, CHUNK):
            some = slice(start, min(start + CHUNK, hashes.size))
            first, second = (sets.copy() for sets in self._sets_of(hashes[some]))
            self._place_in_empty(first, second, chosen[some])
            was_empty[some] = chosen[some] >= 0
            self._replace(first, second, chosen[some], rule, fields, tick, alive_from)
        return Places(chosen, was_empty)

    def _place_in_empty(self, first: I64, second: I64, chosen: I64) -> None:
        pending = np.arange(first.size)
        while pending.size:
            sets = np.stack([first[pending], second[pending]])
            nothing = np.zeros(pending.size, np.uint64)
            empty = np.stack([self._matching(of_one, nothing, np.empty_like(nothing)) for of_one in sets])
            # Sets are filled evenly: that leaves the fewest keys without a way.
            left, right = np.bitwise_count(empty)
            side, column = (right > left).astype(np.intp), np.arange(pending.size)
            empty_ways, set_ = empty[side, column], sets[side, column]
            some = np.flatnonzero(empty_ways)
            lowest = (empty_ways[some] & -empty_ways[some]) - _ONE
            ways = set_[some] * WAYS + (np.bitwise_count(lowest).astype(np.int64) >> 3)
            # Keys that chose the same way: one gets it, the others look again.
            winning, winner = np.unique(ways, return_index=True)
            chosen[pending[some[winner]]] = winning
            self.tags[winning] = 1
            self.taken[winning] = 1
            losers = np.ones(some.size, np.bool_)
            losers[winner] = False
            pending = pending[some[losers]]

    def _replace(self, first: I64, second: I64, chosen: I64, rule: Rule, fields: Fields, tick: int, alive_from: I64 | None) -> None:
        pending = np.flatnonzero(chosen < 0)
        while pending.size:
            ways, scores = self._worst(first[pending], second[pending], rule, fields, tick, alive_from)
            open_ = np.flatnonzero(scores != _IS_TAKEN)
            winning, winner = np.unique(ways[open_], return_index=True)
            winner = open_[winner]
            chosen[pending[winner]] = winning
            self.taken[winning] = 1
            scores[winner] = _IS_TAKEN
            pending = pending[scores != _IS_TAKEN]

    def _worst(self, first: I64, second: I64, rule: Rule, fields: Fields, tick: int, alive_from: I64 | None) -> tuple[I64, I64]:
        """The way among each key's 16 whose entry shall leave first, and its score."""
        sets = np.stack([first, second], axis=1)
        by_set = {name: field.reshape(-1, WAYS).take(sets, axis=0, mode="clip") for name, field in fields.items()}
        scores = rule.victim(by_set, tick).astype(np.int64)
        if alive_from is not None:
            stamps = self.stamps.reshape(-1, WAYS)[sets]
            expired = stamps < alive_from[1]
            expired &= (stamps & 1).astype(np.bool_)
            expired |= stamps < alive_from[0]
            scores[expired] = IS_EXPIRED
        taken = self.taken.reshape(-1, WAYS).take(sets, axis=0, mode="clip").view(np.bool_)
        if taken.any():
            scores[taken] = _IS_TAKEN
        scores = scores.reshape(first.size, 2 * WAYS)
        worst = scores.argmax(axis=1)
        ways: I64 = np.where(worst < WAYS, first, second) * WAYS + worst % WAYS
        return ways, scores[np.arange(first.size), worst]

    def write(self, ways: I64, words: U64, hashes: U64, stamps: I64) -> None:
        """Store keys at ways that are free."""
        record = np.empty((ways.size, self.records.shape[1]), np.uint64)
        record[:, :-1] = words
        record[:, -1] = stamps.view(np.uint64)
        self.records[ways] = record
        self.tags[ways] = np.maximum(hashes & _TAG, _ONE)

    def occupied(self, ways: I64) -> I64:
        """Those of the ways that hold an entry."""
        occupied: I64 = ways[self.tags[ways] != 0]
        return occupied
