"""Every batch size and number in flight by hand, and what ``batch="auto"`` reaches, in five regimes on two databases.

Run it as ``python -m benchmarks.batches``: it takes about half an hour, prints a table and draws a picture.
The stream has distinct keys only, and srj's core runs without Spark: what differs between cells is the lookups alone.
"""

from __future__ import annotations

import itertools
import json
import threading
import time
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import pyarrow as pa
import typer
from rich.console import Console

from srj import Batch, Cache, Table
from srj.databases.base import Question
from srj.errors import DatabaseError
from srj.experiments.delay_proxy import delayed
from srj.lookup.describe import describe
from srj.lookup.engine import Engine
from srj.lookup.operator import Operator
from srj.lookup.spec import LookupSpec
from srj.options import LookupSettings
from tests import servers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.servers import Server

SIZES = (1, 10, 30, 100, 300, 1000, 3000, 10_000)
IN_FLIGHT = (1, 2, 4, 8)
SETTLING, FIRST_LOOKUPS = 5.0, 64  # seconds and lookups, both, before auto, and what it is compared with, are measured
PAIRS, IN_PAIRS = 3, 8.0  # of which each is measured so many times as long as a cell
MOST_SETTLING = 40.0
NAMES = {"postgresql": "PostgreSQL", "mysql": "MariaDB"}
ROWS = {"items": 5_000_000, "plain_items": 1_000_000}  # with an index and without
INPUT = 10_000  # rows in Spark's Arrow batches
_LEAP = 7_368_787  # coprime to the tables' sizes, so that its multiples are distinct and far apart


@dataclass(frozen=True)
class Regime:
    """Where the database is, and what of it.

    Attributes:
        letter, title: for the table.
        table: which.
        seconds, jitter: of the network, each way.
        connections: what the server's user may have; None: enough.
    """

    letter: str
    title: str
    table: str = "items"
    seconds: float = 0.0
    jitter: float = 0.0
    connections: int | None = None


REGIMES = (
    Regime("a", "indexed, local"),
    Regime("b", "without an index", table="plain_items"),
    Regime("c", "indexed, 45 ms each way", seconds=0.045),
    Regime("d", "indexed, 5 ms each way, up to 5 ms more", seconds=0.005, jitter=0.005),
    Regime("e", "indexed, two connections", connections=2),
)


def fill(server: Server) -> None:
    """Both tables: id bigint, name of 16 bytes, price, quantity."""
    for name, rows in ROWS.items():
        if server.kind == "postgresql":
            server.execute(
                f"CREATE TABLE {name} AS SELECT id, 'item-' || lpad(id::text, 11, '0') AS name, id * 0.25::float8 AS price, "
                f"(id % 1000)::int AS quantity FROM generate_series(0::bigint, {rows - 1}) AS id"
            )
            if name == "items":
                server.execute(f"ALTER TABLE {name} ADD PRIMARY KEY (id)")
            server.execute(f"VACUUM ANALYZE {name}")
        else:
            key = ", PRIMARY KEY (id)" if name == "items" else ""
            server.execute(f"CREATE TABLE {name} (id BIGINT NOT NULL, name VARCHAR(16), price DOUBLE, quantity INT{key})")
            server.execute(
                f"INSERT INTO {name} SELECT seq, CONCAT('item-', LPAD(seq, 11, '0')), seq * 0.25, seq % 1000 "
                f"FROM seq_0_to_{rows - 1}"
            )
            server.execute(f"ANALYZE TABLE {name}")


@contextmanager
def place(server: Server, regime: Regime) -> Iterator[str]:
    """The URL of a database in this regime."""
    url = server.url
    with ExitStack() as stack:
        if regime.connections is not None:
            url = limited_url(server, regime.connections)
        if regime.seconds:
            proxy = stack.enter_context(delayed(server.host, server.port, regime.seconds, regime.jitter))
            url = url.replace(f":{server.port}/", f":{proxy.port}/")
        yield url


def limited_url(server: Server, connections: int) -> str:
    """The URL for a user who may have so many connections, besides the one that describes the table."""
    if server.kind == "postgresql":
        server.execute(
            f"DROP ROLE IF EXISTS few; CREATE ROLE few LOGIN PASSWORD 'few' CONNECTION LIMIT {connections}; "
            "GRANT SELECT ON ALL TABLES IN SCHEMA public TO few"
        )
    else:
        server.execute(
            f"CREATE OR REPLACE USER few IDENTIFIED BY 'few' WITH MAX_USER_CONNECTIONS {connections}; GRANT SELECT ON *.* TO few"
        )
    return server.url_for(user="few", password="few")  # noqa: S106  its only use


def spec_for(url: str, regime: Regime, batch: Batch) -> LookupSpec:
    """A lookup of all columns, with a cache that is never hit, and soon full: in a full one an insert takes longer."""
    table = Table(url, (regime.table,))
    question = Question(table.url, table.name, ("id",))
    return LookupSpec(question, describe(question, 30.0), replace(LookupSettings(), batch=batch, cache=Cache(size="4 MB")))


def keys_of(rows: int) -> Iterator[tuple[pa.Array]]:
    """Distinct keys for ever, or nearly."""
    for begin in itertools.count(0, INPUT):
        yield (pa.array(np.arange(begin, begin + INPUT) * _LEAP % rows),)


class Stream:
    """Distinct keys without end, looked up by an engine in a thread of its own.

    Args:
        spec: what is asked.
    """

    def __init__(self, spec: LookupSpec) -> None:
        self._rows = ROWS[spec.question.name[-1]]
        self.engine = Engine(spec)
        self._operator = Operator(self.engine)
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End it in the middle."""
        self._is_over.set()
        self.engine.close()
        self._thread.join(30)
        time.sleep(0.5)  # the server counts a connection for a moment after it was closed

    def wait(self, lookups: int, since: int = 0, until: float = float("inf")) -> None:
        """Until so many have been answered, `since` others, or till then on the monotonic clock."""
        while self.lookups < since + lookups and time.monotonic() < until:
            self._look()
            time.sleep(0.005)

    @property
    def lookups(self) -> int:
        """That have been answered."""
        return self._operator.metrics.batches

    def rate(self, seconds: float) -> float:
        """Keys a second, from an answer to another at least so many seconds later."""
        before, begun = self._next_answer()
        while True:
            answered, now = self._next_answer()
            if now - begun >= seconds:
                return (answered - before) / (now - begun)

    def _next_answer(self) -> tuple[int, float]:
        """How many keys have been answered when the next lookup is, and when that is."""
        before = self.engine._landed_keys  # noqa: SLF001  nothing is changed by looking
        while (answered := self.engine._landed_keys) == before:  # noqa: SLF001
            self._look()
            time.sleep(0.0005)
        return answered, time.perf_counter()

    def _look(self) -> None:
        if not self._thread.is_alive():
            raise DatabaseError("expected a stream without end, but it has ended; its thread says why")

    def _run(self) -> None:
        try:
            for _ in self._operator.in_order(keys_of(self._rows)):
                if self._is_over.is_set():
                    return
        except DatabaseError:
            if not self._is_over.is_set():
                raise


def throughput(spec: LookupSpec, warm: float, seconds: float, lookups: int = 0) -> float:
    """Keys a second, once it has run for a while, and has had so many lookups."""
    with closing(Stream(spec)) as stream:
        end = time.monotonic() + MOST_SETTLING
        time.sleep(warm)
        stream.wait(lookups, until=end)
        return stream.rate(seconds)


def sweep(
    server: Server, regime: Regime, seconds: float, report: Callable[[str], None], known: dict[tuple[int, int], float]
) -> dict[str, Any]:
    """All cells but those that are known, then auto and the best cell in turns: the machine's changes shall not favour either."""
    cells = dict(known)
    with place(server, regime) as url:
        spec = spec_for(url, regime, Batch())
        for size in SIZES:
            for flights in IN_FLIGHT:
                if (size, flights) in cells:
                    continue
                report(f"{server.kind}, {regime.title}: {size:,} keys, {flights} in flight")
                batch = Batch(size=size, in_flight=flights)
                cells[size, flights] = throughput(with_batch(spec, batch), seconds / 2, seconds)
        best = max(cells, key=lambda cell: cells[cell])
        report(f"{server.kind}, {regime.title}: auto")
        ratios = []
        with closing(Stream(spec)) as auto:
            time.sleep(SETTLING)
            auto.wait(FIRST_LOOKUPS, until=time.monotonic() + MOST_SETTLING)
            settled = auto.engine._batching  # noqa: SLF001  to show what was found
            found = {"size": round(settled._usual), "in_flight": settled.in_flight}  # noqa: SLF001
        for _ in range(PAIRS):
            by_hand = with_batch(spec, Batch(size=best[0], in_flight=best[1]))
            ours, theirs = (throughput(one, SETTLING, IN_PAIRS * seconds, FIRST_LOOKUPS) for one in (spec, by_hand))
            ratios.append(ours / theirs)
    return {
        "server": server.kind,
        "regime": regime.letter,
        "title": regime.title,
        "cells": {f"{size} {flights}": rate for (size, flights), rate in cells.items()},
        "best": best,
        "auto": found,
        "ratios": ratios,
    }


def follow(server: Server, best: dict[str, tuple[int, int]], seconds: float) -> list[dict[str, Any]]:
    """Auto from regime a to c and back in mid-stream, from the 50th lookup after each change, against the best cell of each."""
    results = []
    table = REGIMES[0]
    with delayed(server.host, server.port, 0.0) as proxy:
        spec = spec_for(server.url.replace(f":{server.port}/", f":{proxy.port}/"), table, Batch())
        for _ in range(PAIRS):
            with closing(Stream(spec)) as stream:
                time.sleep(SETTLING)
                rates = {}
                for letter, delay in (("c", REGIMES[2].seconds), ("a", 0.0)):
                    proxy.seconds = delay
                    stream.wait(50, since=stream.lookups)
                    rates[letter] = stream.rate(IN_PAIRS * seconds)
            for letter, delay in (("c", REGIMES[2].seconds), ("a", 0.0)):
                proxy.seconds = delay
                size, flights = best[letter]
                theirs = throughput(with_batch(spec, Batch(size=size, in_flight=flights)), SETTLING, IN_PAIRS * seconds)
                results.append({"to": letter, "ratio": rates[letter] / theirs})
    return results


def with_batch(spec: LookupSpec, batch: Batch) -> LookupSpec:
    """The same lookup in other batches."""
    return replace(spec, settings=replace(spec.settings, batch=batch))


@contextmanager
def servers_with_tables(kinds: list[str]) -> Iterator[list[Server]]:
    """New servers, gone at the end."""
    # The tables in memory, as PostgreSQL has them in the system's: what a disk adds is another regime.
    starts = {"postgresql": servers.start_postgres, "mysql": lambda: servers.start_mariadb({"innodb-buffer-pool-size": "2G"})}
    with ExitStack() as stack:
        started = []
        for kind in kinds:
            started.append(starts[kind]())
            stack.callback(started[-1].remove)
            fill(started[-1])
        yield started


def markdown(results: list[dict[str, Any]]) -> str:
    """A row a regime."""
    lines = [
        "| database | regime | best of the cells | auto chose | auto / best | auto / one by one |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for one in results:
        size, flights = one["best"]
        best, alone = one["cells"][f"{size} {flights}"], one["cells"]["1 1"]
        ratio = median(one["ratios"])
        lines.append(
            f"| {NAMES[one['server']]} | ({one['regime']}) {one['title']} | {size:,} keys, {flights} in flight "
            f"| {one['auto']['size']:,} keys, {one['auto']['in_flight']} in flight "
            f"| {ratio:.2f} ({min(one['ratios']):.2f} to {max(one['ratios']):.2f}) | {ratio * best / alone:,.0f} |"
        )
    return "\n".join(lines)


def draw(results: list[dict[str, Any]], path: Path) -> None:
    """A panel a regime: throughput by size, a line a number in flight, and where auto is."""
    import matplotlib as mpl  # noqa: PLC0415  only here

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415

    kinds = sorted({one["server"] for one in results}, reverse=True)
    letters = sorted({one["regime"] for one in results})
    figure, grid = plt.subplots(len(kinds), len(letters), figsize=(3 * len(letters), 2.8 * len(kinds)), squeeze=False)
    for one in results:
        axes = grid[kinds.index(one["server"])][letters.index(one["regime"])]
        for flights in IN_FLIGHT:
            rates = [one["cells"][f"{size} {flights}"] for size in SIZES]
            axes.plot(SIZES, rates, marker=".", label=f"{flights} in flight")
        best = one["cells"]["{} {}".format(*one["best"])]
        axes.plot(one["auto"]["size"], median(one["ratios"]) * best, "k*", markersize=12, label="auto")
        axes.set(xscale="log", yscale="log", title=f"{NAMES[one['server']]}, ({one['regime']})", xlabel="keys in a lookup")
        axes.grid(alpha=0.3)
    grid[0][0].set_ylabel("keys a second")
    grid[0][0].legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def _place(result: dict[str, Any]) -> tuple[str, str]:
    return result["server"], result["regime"]


def _in_order(results: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(results, key=lambda one: (list(NAMES).index(one["server"]), one["regime"]))


PICTURE = Path(__file__).resolve().parent.parent / "docs" / "batches.png"


def main(
    only: Annotated[str, typer.Option(help="Letters of the regimes.")] = "abcde",
    kind: Annotated[list[str] | None, typer.Option(help="postgresql, mysql; both by default.")] = None,
    seconds: Annotated[float, typer.Option(help="That each cell is measured, after half as long.")] = 1.5,
    again: Annotated[
        bool, typer.Option(help="Keep the cells of the file beside the picture; only auto and the best in turns.")
    ] = False,
    output: Annotated[Path, typer.Option(help="Where the picture is drawn.")] = PICTURE,
) -> None:
    """Sweep sizes and numbers in flight, and compare the best with auto."""
    console, figures = Console(), output.with_suffix(".json")
    results = json.loads(figures.read_text()) if figures.exists() else []  # of regimes that are not measured now
    with console.status("tables") as status, servers_with_tables(kind or list(NAMES)) as started:
        for server in started:
            for regime in REGIMES:
                if regime.letter in only:
                    before = [one for one in results if again and _place(one) == (server.kind, regime.letter)]
                    known = {tuple(map(int, cell.split())): rate for one in before for cell, rate in one["cells"].items()}
                    found = sweep(server, regime, seconds, status.update, known)
                    results = _in_order([one for one in results if _place(one) != _place(found)] + [found])
                    figures.write_text(json.dumps(results, indent=1))
                    console.print(markdown([found]).splitlines()[-1], soft_wrap=True)
            best = {one["regime"]: one["best"] for one in results if one["server"] == server.kind}
            if {"a", "c"} <= best.keys() and set("ac") & set(only):
                status.update(f"{server.kind}: a change in mid-stream")
                followed = follow(server, best, seconds)
                for letter in "ca":
                    ratios = [one["ratio"] for one in followed if one["to"] == letter]
                    console.print(
                        f"{NAMES[server.kind]}, 50 lookups after the change to ({letter}): {median(ratios):.2f} "
                        f"({min(ratios):.2f} to {max(ratios):.2f}) of the best cell"
                    )
    console.print(markdown(results), soft_wrap=True)
    draw(results, output)


if __name__ == "__main__":
    typer.run(main)
