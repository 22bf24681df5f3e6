"""The operator's core without Spark, where a lookup fails, or the engine is closed: who hears of it, and what goes on."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from collections import Counter
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from srj import Batch, ConnectionFailedError, LookupFailedError, MultipleMatchesError
from srj.lookup.operator import Operator
from tests.joining import as_batches, run_in_order, run_out_of_order, values_of
from tests.scripted import ArrowRows, Scripted, scripted_engine

if TYPE_CHECKING:
    from collections.abc import Iterator

    from srj.lookup.flight import Flight


def test_a_failed_lookups_keys_are_asked_again_by_the_next_who_wants_them() -> None:
    """Its error is for those who waited, not for those who come later."""
    database = Scripted({1: ["one"]}, fault=lambda number: LookupFailedError("refused") if number == 0 else None)
    engine = scripted_engine(database)
    try:
        with pytest.raises(LookupFailedError, match="refused"):
            run_in_order(Operator(engine), [[1]])
        assert run_in_order(Operator(engine), [[1]]) == [(0, "one")]
    finally:
        engine.close()
    assert database.asked == [[1], [1]]


@pytest.mark.parametrize("ordered", [True, False])
def test_a_failed_lookup_fails_the_operator_with_its_cause(ordered: bool) -> None:
    """A refused lookup is not tried again, and never taken for an absent key: the next query asks again."""
    database = Scripted({1: ["one"]}, fault=lambda number: LookupFailedError("no such thing") if number == 0 else None)
    engine = scripted_engine(database)
    run = run_in_order if ordered else run_out_of_order
    try:
        with pytest.raises(LookupFailedError, match="no such thing"):
            run(Operator(engine), [[1]])
        assert len(database.asked) == 1
        assert run_in_order(Operator(engine), [[1]]) == [(0, "one")]
    finally:
        engine.close()


def test_a_failed_connection_is_tried_again() -> None:
    """The answer comes from the next attempt, on a new connection, and the retry is counted."""
    database = Scripted({1: ["one"]}, fault=lambda number: ConnectionFailedError("broken") if number == 0 else None)
    engine = scripted_engine(database)
    operator = Operator(engine)
    try:
        assert run_in_order(operator, [[1]]) == [(0, "one")]
    finally:
        engine.close()
    assert operator.metrics.retries == 1
    assert database.open == 0


def test_retries_end() -> None:
    """After the last attempt the error says how many there were."""
    database = Scripted({}, fault=lambda _: ConnectionFailedError("broken"))
    engine = scripted_engine(database, retries=1)
    try:
        with pytest.raises(ConnectionFailedError, match=r"broken \(given up after 2 attempts\)"):
            run_in_order(Operator(engine), [[1]])
    finally:
        engine.close()
    assert len(database.asked) == 2


def test_a_dead_server_is_given_up_by_all_flights_alike() -> None:
    """Flights that try at the same time don't take each other for open connections and try for ever."""
    database = Scripted({}, refuses=True)
    engine = scripted_engine(database, batch=Batch(size=1, in_flight=4), retries=1)
    try:
        with pytest.raises(ConnectionFailedError, match=r"refused \(given up after 2 attempts\)"):
            run_in_order(Operator(engine), [[1, 2, 3, 4]])
        seen = 0
        while database.attempts > seen:  # until nobody tries any more
            seen = database.attempts
            time.sleep(0.5)
    finally:
        engine.close()
    assert database.attempts == 8


def test_several_rows_are_an_error_when_asked() -> None:
    """on_multiple='error' names the key and its number of rows."""
    engine = scripted_engine(Scripted({1: ["a", "b"]}), on_multiple="error")
    try:
        with pytest.raises(MultipleMatchesError, match="got 2 for 1; use on_multiple='first' or 'all'"):
            run_in_order(Operator(engine), [[1]])
    finally:
        engine.close()


class Unheard:
    """Arrivals in the moment in which a flight has landed and is not there yet."""

    def __init__(self) -> None:
        self.has_landed = threading.Event()

    def put(self, _flight: Flight) -> None:
        """It is on its way."""
        self.has_landed.set()

    def empty(self) -> bool:
        """Not there yet."""
        return True


def test_an_error_is_raised_though_its_arrival_has_not_been_heard_of() -> None:
    """Else the last batch of a partition would leave with several rows of a key."""
    engine = scripted_engine(Scripted({1: ["a", "b"]}), on_multiple="error")
    operator, arrivals = Operator(engine), Unheard()
    operator._arrivals = arrivals

    def batches() -> Iterator[tuple[pa.Array, ...]]:
        yield (pa.array([1]),)
        engine.flush()
        assert arrivals.has_landed.wait(10)

    try:
        with pytest.raises(MultipleMatchesError):
            list(operator.in_order(batches()))
    finally:
        engine.close()


def test_a_unique_key_that_has_become_ambiguous_is_an_error() -> None:
    """The table was described as unique; a second row is refused rather than dropped."""
    engine = scripted_engine(Scripted({1: ["a", "b"]}), unique=True)
    try:
        with pytest.raises(LookupFailedError, match="as its unique index promised"):
            run_in_order(Operator(engine), [[1]])
    finally:
        engine.close()


def test_a_closed_engine_gives_its_caches_memory_back() -> None:
    """At once: one that waited for the garbage collector would stand beside its successor's."""
    engine = scripted_engine(Scripted({1: ["one"]}))
    assert run_in_order(Operator(engine), [[1]]) == [(0, "one")]
    block = weakref.ref(engine._cache._block)
    gc.disable()
    try:
        engine.close()
        assert block() is None
    finally:
        gc.enable()


def test_an_abandoned_operator_leaves_the_engine_usable() -> None:
    """As after LIMIT: what was in flight lands in the cache, and the next operator goes on."""
    database = Scripted(values_of(dict.fromkeys(range(50), 1)), delay=lambda _: 0.01)
    engine = scripted_engine(database, batch=5)
    try:
        started = Operator(engine).out_of_order(as_batches([[key] for key in range(50)]), ArrowRows())
        next(started)
        started.close()
        assert len(run_in_order(Operator(engine), [list(range(50))])) == 50
    finally:
        engine.close()
    assert set(Counter(key for keys in database.asked for key in keys).values()) == {1}
