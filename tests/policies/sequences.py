"""Sequences of references, synthetic and real, and the numbers of misses that another implementation counts on them."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import libcachesim
import numpy as np

from srj.experiments.traces import trace
from srj.experiments.traces.synthetic import zipf_keys

if TYPE_CHECKING:
    import numpy.typing as npt

    I64 = npt.NDArray[np.int64]

_RECORD = np.dtype([("time", "<u4"), ("id", "<u8"), ("size", "<u4"), ("next", "<i8")])
_REAL = 30_000


def zipf(count: int, distinct: int, skew: float, seed: int) -> I64:
    """Independent references, the i-th most frequent key as likely as 1 / i ** skew; keys in no order."""
    rng = np.random.default_rng(seed)
    return rng.permutation(distinct)[zipf_keys(rng, count, distinct, skew)]


@cache
def sequence(name: str) -> npt.NDArray[Any]:
    """Integer keys, in the order of their references."""
    if name == "zipf":
        return zipf(30_000, 3000, 0.9, 1)
    if name == "loop":
        return np.tile(np.arange(700), 40)
    if name == "shifting":
        return np.concatenate([zipf(3000, 2000, 1.0, seed) + 300 * seed for seed in range(10)])
    if name == "flights":
        return trace("new york flights", length=_REAL).keys()
    if name == "movielens":
        return trace("movielens", length=_REAL).keys()
    raise ValueError(name)


@cache
def temperatures() -> I64:
    """Melbourne's daily maximum temperatures in tenths of a degree, 1981 to 1990."""
    return trace("melbourne").keys()


def misses_elsewhere(keys: npt.NDArray[Any], capacity: int, algorithm: str) -> int:
    """What libcachesim counts."""
    codes = np.unique(keys, return_inverse=True)[1]
    records = np.zeros(codes.size, _RECORD)
    records["time"], records["id"], records["size"], records["next"] = np.arange(codes.size), codes + 1, 1, _next(codes)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.bin"
        records.tofile(path)
        options = libcachesim.ReaderInitParam(ignore_obj_size=True)
        reader = libcachesim.TraceReader(str(path), libcachesim.TraceType.ORACLE_GENERAL_TRACE, options)
        # A small table of hashes: the default takes 128 MB for each cache.
        ratio, _ = getattr(libcachesim, algorithm)(capacity, hashpower=16).process_trace(reader)
    return round(ratio * codes.size)


def _next(codes: I64) -> I64:
    """The position, from 1, of each key's next reference; -1: never."""
    order = np.argsort(codes, kind="stable")
    following = np.full(codes.size, -1)
    same = codes[order[1:]] == codes[order[:-1]]
    following[order[:-1][same]] = order[1:][same] + 1
    return following
