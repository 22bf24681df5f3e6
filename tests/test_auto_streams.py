"""cache="auto" on streams that could lead it astray: runs of one key, hot keys, rows that change their kind, very long values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest

from srj.lookup import auto_size
from srj.lookup.operator import Operator
from srj.sizing import Phase, Watch, hash_keys
from tests.scripted import Scripted, scripted_engine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import numpy.typing as npt

    I64 = npt.NDArray[np.int64]

LOOP = np.arange(2_000)


@pytest.fixture(autouse=True)
def _restless(monkeypatch: pytest.MonkeyPatch) -> None:
    """It decides as soon as it may: how long it rests goes by the clock, and so by what else the machine does."""
    for rest in ("_REST", "_REST_AFTER_MOVE", "_REST_FOR_NEWS"):
        monkeypatch.setattr(auto_size, rest, 0.0)


class Joined(NamedTuple):
    """Keys that the table was asked for, the cache's bytes at the end, and how often its size was changed."""

    asked: int
    nbytes: int
    resizes: int


def joined(
    keys: I64 | list[str], rows: dict[Any, list[str]], *, memory: int, batch: int = 1_000, unique: bool = True, **more: Any
) -> Joined:
    """What a stream of these keys does; each row checked, and moves waited for."""
    engine = scripted_engine(Scripted(rows), unique=unique, cache="auto", memory=memory, **more)
    operator, listed = Operator(engine), list(keys)

    def batches() -> Iterator[tuple[pa.Array]]:
        for start in range(0, len(listed), batch):
            yield (pa.array(listed[start : start + batch]),)
            moving = engine._auto._moving  # type: ignore[union-attr]
            if moving is not None:
                moving.join()

    try:
        for number, matches in enumerate(operator.in_order(batches())):
            _, found = matches.inner()
            wanted = [row for key in listed[number * batch : (number + 1) * batch] for row in rows[key]]
            assert found["value"].to_pylist() == wanted
        return Joined(operator.metrics.keys, engine.cache_stats().bytes_reserved, engine.take_resizes())
    finally:
        engine.close()


def hot(share: float, count: int) -> I64:
    """One key in so many of the rows; in the others 8,000 keys."""
    rng = np.random.default_rng(1)
    return np.where(rng.random(count) < share, 0, rng.integers(1, 8_000, count))


@pytest.mark.parametrize(
    ("keys", "most"),
    [
        (lambda: np.repeat(np.tile(LOOP, 60), 2), 2_000),
        (lambda: np.repeat(np.tile(LOOP, 20), 10), 2_000),
        (lambda: hot(0.95, 400_000), 8_000),
        (lambda: hot(0.7, 200_000), 8_000),
        # Pairs in turn, four times: only when a key comes in a second round is it known that the first pairs come again.
        (lambda: np.tile(np.tile(LOOP.reshape(-1, 2), 4).ravel(), 20), 4_500),
        # In six intervals of 2,000 keys each.
        (lambda: np.repeat(np.concatenate([2_000 * part + LOOP[np.random.default_rng(part).integers(0, 2_000, 12_000)]
                                           for part in range(6)]), 4), 12_500),
    ],
    ids=["runs of 2", "runs of 10", "95 % one key", "70 % one key", "pairs", "runs in intervals"],
)  # fmt: skip
def test_runs_and_hot_keys_are_no_sign_that_a_tiny_cache_would_do(keys: Callable[[], I64], most: int) -> None:
    """Each key is asked once, but for the pairs, though the same few come again at once; memory holds all keys."""
    trace = keys()
    rows = {key: [f"{'x' * 40}{key}"] for key in range(12_000)}
    assert joined(trace, rows, memory=3_000_000).asked <= most


def test_a_loop_of_runs_is_closed_once() -> None:
    keys, watch = np.repeat(np.tile(LOOP, 30), 10), Watch(20_000)
    for start in range(0, keys.size, 1_000):
        watch.add(hash_keys(keys[start : start + 1_000]))
    assert (watch.phase, watch.bound, watch.searches) == (Phase.CLOSED, 2_000, 1)


def test_the_next_search_ends_at_no_less_than_the_distance_that_began_it() -> None:
    """In pairs all distances are below two, until the first pair comes again: one more search, and not one for each round."""
    keys, watch = np.tile(np.tile(LOOP.reshape(-1, 2), 4).ravel(), 20), Watch(20_000)
    for start in range(0, keys.size, 1_000):
        watch.add(hash_keys(keys[start : start + 1_000]))
    assert (watch.phase, watch.bound) == (Phase.CLOSED, 2_000)
    assert watch.searches == 2


@pytest.mark.parametrize("short", ["a", "of twenty bytes or more "])
def test_rows_that_become_longer_find_room(short: str) -> None:
    """600 short rows, then as many of 3 kB among them: what the cache holds, the short ones, does not tell what rows take."""
    rows = {key: [f"{short}{key}"] for key in range(1_000)} | {key: ["b" * 3_000 + str(key)] for key in range(2_000, 3_000)}
    at = np.arange(600_000)
    keys = np.concatenate([np.arange(60_000) % 600, np.where(at % 2 == 0, at // 2 % 600, 2_000 + at // 2 % 600)])
    assert (
        joined(keys, rows, memory=8_000_000, batch=500).asked <= 40_000
    )  # was a fifth of all; half of 50,000 rows until it decides


def test_keys_that_get_more_rows_find_room() -> None:
    """1,000 keys with one row, then 1,000 with 60."""
    rows = {key: [f"a{key}"] for key in range(1_000)} | {key: [f"{key}-{row}" for row in range(60)] for key in range(2_000, 3_000)}
    keys = np.concatenate([np.arange(100_000) % 1_000, 2_000 + np.arange(600_000) % 1_000])
    # Was one in seven rows; of 50,000 until it decides it is as many as are not under way.
    assert joined(keys, rows, memory=8_000_000, batch=500, unique=False).asked <= 40_000


@pytest.mark.parametrize(
    ("length", "count", "memory"), [(10_000, 400, 6_000_000), (10_000, 400, 8_000_000), (100_000, 50, 10_000_000)]
)
def test_long_values_are_held_where_they_fit(length: int, count: int, memory: int) -> None:
    """4 MB of them in 6 and 8 MB, 5 MB in 10; described as 16 bytes each, so that the first cache holds few or none."""
    rows: dict[int, Any] = {key: ["x" * length + str(key)] for key in range(count)}
    found = joined(np.arange(40_000) % count, rows, memory=memory, batch=100)
    assert found.asked <= 10_000  # was more than half
    assert found.nbytes <= 15 / 16 * memory


@pytest.mark.parametrize("share", [0.88, 0.95, 0.99])
def test_a_cache_that_has_nearly_all_the_memory_is_not_made_anew_for_the_rest(share: float) -> None:
    """A loop of as many keys as that share of what memory holds: the cache grows a few times, and then stays."""
    engine = scripted_engine(Scripted({}), unique=True, cache="auto", memory=1_000_000)
    try:
        most = engine._auto._most  # type: ignore[union-attr]
    finally:
        engine.close()
    keys = np.arange(600_000) % int(share * most)
    rows = {key: [f"{'x' * 10}{key}"] for key in range(most)}
    assert 1 <= joined(keys, rows, memory=1_000_000).resizes <= 3


def test_few_keys_of_long_text_find_room() -> None:
    """100 keys of 36 letters, whose bytes are none of the rows'."""
    keys = [f"{number:036}" for number in range(100)]
    rows = {key: ["1"] for key in keys}
    assert joined(keys * 1_000, rows, memory=4_000_000, batch=500, key_type=pa.string()).asked <= 1_000
