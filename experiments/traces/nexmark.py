"""The stream of NEXMark's query 13: bids, of which each asks a side table for its auction's number modulo 10,000.

The rules are those of the benchmark's generator: of 50 events one is a person, three are auctions, the rest are bids. A bid is for
the hot auction, the first of the latest hundred, but for one in `hot_ratio` that is for an auction still open, or about to open.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from srj.experiments.traces.trace import Trace, blocks_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from srj.experiments.traces.trace import I64

_PERSONS, _AUCTIONS, _EVENTS = 1, 3, 50
_BIDS = _EVENTS - _PERSONS - _AUCTIONS
_FIRST_AUCTION, _HOT_EVERY, _OPEN, _LEAD = 1000, 100, 100, 10


def nexmark(*, length: int = 1_000_000, relation: int = 10_000, hot_ratio: int = 2, seed: int = 0) -> Trace:
    """Bids of NEXMark, their auctions modulo the side table's size.

    Args:
        length: bids.
        relation: rows of the side table.
        hot_ratio: one in so many bids is not for the hot auction; the benchmark has 2.
        seed: of chance.
    """

    def blocks() -> Iterator[I64]:
        def make(rng: np.random.Generator, begin: int, count: int) -> I64:
            # Bids stand at the end of their fifty events, so the latest auction is the last of those.
            last = (begin + np.arange(count)) // _BIDS * _AUCTIONS + _AUCTIONS - 1
            hot = last // _HOT_EVERY * _HOT_EVERY
            oldest = np.maximum(last - _OPEN, 0)
            open_ = oldest + (rng.random(count) * (last - oldest + 1 + _LEAD)).astype(np.int64)
            return (np.where(rng.integers(0, hot_ratio, count) > 0, hot, open_) + _FIRST_AUCTION) % relation

        return blocks_of(length, seed, make)

    text = f"bids by their auctions modulo {relation:,}, one in {hot_ratio} not for the hot auction"
    return Trace("nexmark q13", text, "made by the rules of NEXMark's generator", length, relation, blocks)
