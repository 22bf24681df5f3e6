"""Ways to join that srj is compared with: their stream, the queries they send, cells that must fail, and the README's table."""

from __future__ import annotations

import io
import re
import subprocess
import sys
import time
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from matplotlib.figure import Figure
from rich.console import Console
from typer.testing import CliRunner

from srj.errors import RequestError
from srj.experiments import peer_worker, runner
from srj.experiments.cell_process import in_process
from srj.experiments.commands import app
from srj.experiments.experiment import load
from srj.experiments.jdbc import JARS, driver_settings, table_options
from srj.experiments.ledger import Ledger, Record
from srj.experiments.peer_stream import FILES, Phase, parts_of, write_part
from srj.experiments.peer_ways import InList
from srj.experiments.peers import FLINK, PeerCell, Way, by_point, cells, check, headline, plot
from srj.experiments.peers_table import BEGIN, END, put_into, rendered
from srj.experiments.relation import SCHEMA, drop_relations, ensure_relation, relation_name
from srj.experiments.report import found
from srj.experiments.server_usage import ServerUsage, Usage
from srj.experiments.servers import Servers
from srj.experiments.split_cell import SPLITS
from srj.table import DatabaseUrl

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.servers import Server

ROWS = 2_000
KEYS = np.array([1, 2, 1, 5 * ROWS, 3] * 4)  # 3 distinct ones that the table has, and one that it lacks
SMALL: dict[str, Any] = {"relation": ROWS, "hot": 50, "entries": 500, "rows": 200, "delay_rows": 50, "warm": 1, "heap": "1g"}
SMALL |= {"seconds": {"rate": 0.2, "delay": 0.1}, "batches": {"rate": 2, "delay": 2}}
SMALL["java"] = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


@pytest.fixture(scope="module", params=["postgresql", "mysql"])
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    """Of a server as experiments start it, which counts PostgreSQL's queries; and of the tests' MariaDB."""
    if request.param == "mysql":
        mariadb: Server = request.getfixturevalue("mariadb")
        yield mariadb.url
        drop_relations(mariadb.url)
        return
    with Servers() as servers:
        yield servers.url("postgresql")


def test_the_stated_share_of_rows_has_a_key_that_came_before() -> None:
    """Of each micro-batch; all other keys come once, and the cache is filled before."""
    first, *others = parts_of([("warm", 100), ("rate", 400), ("delay", 200)], hits=0.75, hot=20, relation=1_000, seed=1)
    known = set(first.keys.tolist())
    assert len(known) == 20
    assert first.keys.tolist() == FILES * first.keys[:20].tolist()
    assert [(part.phase, len(part.keys)) for part in others] == [("warm", 100), ("rate", 400), ("delay", 200)]
    assert [np.isin(part.keys, list(known)).mean() for part in others] == [0.75] * 3
    new = np.concatenate([part.keys[~np.isin(part.keys, list(known))] for part in others])
    assert len(np.unique(new)) == len(new) == 175
    cold = parts_of([("rate", 30), ("delay", 20)], hits=0.0, hot=20, relation=50, seed=1)
    assert sorted(np.concatenate([part.keys for part in cold]).tolist()) == list(range(50))
    with pytest.raises(RequestError, match="expected a table of at least 51 rows"):
        parts_of([("rate", 31), ("delay", 20)], hits=0.0, hot=0, relation=50, seed=1)


@pytest.mark.parametrize("hits", [0.0, 0.5])
def test_fewer_micro_batches_have_the_same_rows(hits: float) -> None:
    """Keys that come once in their order, as far as they go; the same hot ones; and the same rows to measure the delay."""
    cell = PeerCell("srj", hits)

    def parts(sizes: list[tuple[Phase, int]]) -> dict[Phase, list[np.ndarray]]:
        made = parts_of(sizes, hits=hits, hot=cell.hot, relation=cell.relation, seed=cell.seed)
        return {phase: [part.keys for part in made if part.phase == phase] for phase in get_args(Phase)}

    rated = [("rate", 10_000)] * 4  # as Flink has them
    large, small = parts(cell.sizes()), parts([("warm", 10_000), *rated, *(size for size in cell.sizes() if size[0] == "delay")])
    hot = set(large["warm"][0].tolist()) if hits else set()
    assert len(hot) == (10_000 if hits else 0)
    assert hot == (set(small["warm"][0].tolist()) if hits else set())
    for ours, other in zip(large["delay"], small["delay"], strict=True):
        assert np.array_equal(ours, other)

    def once(phases: dict[Phase, list[np.ndarray]]) -> set[int]:
        return set(np.concatenate(phases["rate"]).tolist()) - hot

    fewer, more = sorted([once(large), once(small)], key=len)
    assert 0 < len(fewer) < len(more)
    assert fewer <= more
    assert not (set(np.concatenate(large["warm"] + large["delay"]).tolist()) & more) - hot


def test_all_ways_have_micro_batches_of_the_same_sizes() -> None:
    """What Spark takes for one would weigh differently."""
    for hits in (0.0, 0.5, 0.95):
        assert len({tuple(PeerCell(way, hits).sizes()) for way in get_args(Way)}) == 1


_MEMORY = """
import subprocess, sys
import numpy as np
from srj.experiments.server_usage import MemoryPeak

with MemoryPeak(every=1e6) as memory:
    memory.look()
    alone = memory.bytes
    own = np.ones(80_000_000, np.uint8)
    takes = "import sys; text = b'1' * 100_000_000; print(flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", takes], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        child.stdout.readline()
        memory.look()
    both = memory.bytes
    del own
    memory.look()
print(alone, both, memory.bytes)
"""


def test_the_memory_is_what_all_processes_have_more_at_a_time() -> None:
    """80 MB here and 100 MB of a child; what was there before does not count."""
    before = "import numpy; held = numpy.ones(200_000_000, numpy.uint8)"
    done = subprocess.run([sys.executable, "-c", f"{before}\n{_MEMORY}"], capture_output=True, text=True, check=True)
    alone, both, peak = map(int, done.stdout.split())
    assert alone < 5e6
    assert 180e6 <= both < 220e6
    assert peak == both


def test_a_micro_batch_is_a_file_for_each_core(tmp_path: Path) -> None:
    (part,) = parts_of([("rate", 5)], hits=0.0, hot=0, relation=100, seed=1)
    write_part(tmp_path / "new", part)
    keys = [pq.read_table(path)["id"].to_pylist() for path in sorted((tmp_path / "new").iterdir())]
    assert keys == [part.keys[:3].tolist(), part.keys[3:].tolist()]


@pytest.mark.parametrize(
    ("make", "queries"),
    [
        (lambda table, counts: peer_worker.one_by_one(table, 100, counts), 4),
        (lambda table, counts: peer_worker.one_by_one_async(table, 100, 3, counts), 4),
        (peer_worker.query_per_row, 2 * len(KEYS)),
    ],
)
def test_a_way_sends_as_many_queries_as_its_name_says(
    make: Callable[[str, Path], Any], queries: int, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the server's count and by its own, in two batches of the same keys; each row is the table's, NULLs where it has none."""
    table = ensure_relation(url, ROWS, indexed=True)
    monkeypatch.setenv(peer_worker.URL, url)
    monkeypatch.setattr(peer_worker, "_state", [])
    batch = pa.record_batch({"id": KEYS})
    with ServerUsage(url, table) as usage:
        before = usage()
        output = pa.Table.from_batches(list(make(table, tmp_path)(iter([batch, batch]))))
        assert _more(usage(), before) == peer_worker.noted(tmp_path) == queries
    assert output["id"].to_pylist() == [*KEYS.tolist(), *KEYS.tolist()]
    absent = dict.fromkeys(SCHEMA.names[1:])
    known = {key: {"name": f"item-{key:011}", "price": key / 4, "quantity": key} for key in (1, 2, 3)}
    assert output.to_pylist() == [{"id": key, **known.get(key, absent)} for key in [*KEYS.tolist(), *KEYS.tolist()]]


def test_an_in_list_asks_a_thousand_keys_a_query(url: str) -> None:
    """And gets the rows of those that are there; the server's processor time is known."""
    table = ensure_relation(url, ROWS, indexed=True)
    with ServerUsage(url, table) as usage:
        before, begun = usage(), time.perf_counter()
        rows = InList(url, table)(range(500, ROWS + 1_500))
        taken, after = time.perf_counter() - begun, usage()
    assert sorted(rows["id"].to_pylist()) == list(range(500, ROWS))
    assert _more(after, before) == 3
    assert before.cpu is not None
    assert after.cpu is not None
    assert 0 < before.cpu <= after.cpu
    if url.startswith("postgresql"):
        assert before.executing is not None
        assert after.executing is not None
        assert 0 < after.executing - before.executing < taken
    assert InList(url, table)([ROWS, ROWS + 1]).num_rows == 0


def test_a_cell_fails_where_its_rows_are_others_than_a_plain_joins() -> None:
    """By a table whose rows are others each time they are read."""
    with Servers() as servers:
        url = servers.url("postgresql")
        ensure_relation(url, ROWS, indexed=True)
        name = relation_name(ROWS, indexed=True)
        _execute(
            url,
            f"ALTER TABLE {name} RENAME TO whole; CREATE VIEW {name} AS "
            "SELECT id, name, extract(epoch FROM clock_timestamp())::float8 AS price, quantity FROM whole; "
            f"COMMENT ON VIEW {name} IS 'made by srj experiment'",
        )
        cell = asdict(PeerCell("foreachBatch + IN list", 0.5, **SMALL))
        state, _, error = in_process({"experiment": "peers", "cell": cell, "url": url}, 120)
        assert state == "failed"
        assert error.startswith("expected the rows of a plain join")


def test_a_users_server_is_left_as_it_is(postgres: Server) -> None:
    """It counts nothing, so nothing is known of queries; its processor time is."""
    table = ensure_relation(postgres.url, ROWS, indexed=True)
    with ServerUsage(postgres.url, table) as usage:
        InList(postgres.url, table)([1])
        found = usage()
    drop_relations(postgres.url)
    assert (found.queries, found.executing) == (None, None)
    assert found.cpu is not None
    assert postgres.execute("SELECT 1 FROM pg_extension WHERE extname = 'pg_stat_statements'") == []


@pytest.mark.parametrize("url", ["postgresql"], indirect=True)
def test_an_ordinary_user_of_a_server_that_counts_knows_its_queries(url: str) -> None:
    """It may not say that its own connection is not counted."""
    table = ensure_relation(url, ROWS, indexed=True)
    _execute(
        url,
        "CREATE EXTENSION IF NOT EXISTS pg_stat_statements; CREATE ROLE ordinary LOGIN PASSWORD 'simple'; "
        f"GRANT pg_read_all_stats TO ordinary; GRANT SELECT ON {table} TO ordinary; "
        # To it, this is a server like any other.
        "ALTER ROLE ordinary SET srj.experiments = 'off'; ALTER ROLE ordinary SET pg_stat_statements.track = 'top'",
    )
    server = DatabaseUrl.parse(url).resolve()
    theirs = f"postgresql://ordinary:simple@{server.host}:{server.port}/{server.database}"
    with ServerUsage(theirs, table) as usage:
        before = usage()
        InList(theirs, table)([1])
        assert _more(usage(), before) == 1


def test_flink_is_always_listed_and_nobody_misses_it_where_its_python_is_not_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it is, its cells are missing until they have run; what has run stays in the report, here as there."""
    experiment = load("peers")
    everything = cells("small")
    assert sum(cell["way"] == "Flink" for cell in everything) == 6
    others = [_record("", 0.0, cell=cell) for cell in everything if cell["way"] != "Flink"]
    monkeypatch.setenv(FLINK, "python")
    assert cells("small") == everything
    assert [one.why.partition(";")[0] for one in found(experiment, others)] == ["6 cells have not run"]
    monkeypatch.delenv(FLINK)
    assert cells("small") == everything
    assert {one.verdict for one in found(experiment, others)} == {"agrees"}
    (flink,) = (cell for cell in everything if cell["way"] == "Flink" and (cell["relation"], cell["hits"]) == (1_000_000, 0.5))
    faster = [*others, _record("", 0.0, cell=flink, rate=2.0)]
    assert [one.claim.partition(": ")[2] for one in found(experiment, faster) if one.verdict == "differs"] == ["1 M rows, 50% hits"]
    assert len(experiment.missing("small", others[:1])) == len(others) - 1


def test_a_run_says_once_how_many_cells_can_not_run_here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """They are neither tried nor failed; the list does not wait for them either."""
    monkeypatch.delenv(FLINK, raising=False)
    tried: list[str] = []

    def run_cell(request: dict[str, Any], limit: float) -> tuple[str, dict[str, Any], str]:
        del limit
        tried.append(request["cell"]["way"])
        return "finished", dict(_record("srj", 0.0).figures), ""

    monkeypatch.setattr(runner, "in_process", run_cell)
    said = io.StringIO()
    ledger = Ledger(tmp_path / "ledger.jsonl")
    with Servers() as servers:
        tally = runner.run(["peers"], "smoke", ledger, servers, Console(file=said, width=200))
    assert (tally.finished, tally.failed, tally.timeout, tally.skipped) == (9, 0, 0, 0)
    assert len(tried) == 9
    assert "Flink" not in tried
    assert said.getvalue().count("left out") == 1
    assert f"peers: 1 of 10 cells are left out: they need Flink, whose Python the environment variable {FLINK}" in said.getvalue()
    listed = CliRunner().invoke(app, ["list", "--output", str(tmp_path)]).output
    assert re.search(r"peers .* 9/9 .* 0/54 .* 0/54 ", listed)
    monkeypatch.setenv(FLINK, "python")
    assert " 9/10 " in CliRunner().invoke(app, ["list", "--output", str(tmp_path)]).output


def test_a_driver_is_a_file_or_a_package_and_the_login_is_no_part_of_its_url() -> None:
    assert driver_settings("postgresql", {JARS: "/opt/driver.jar"}) == {"spark.jars": "/opt/driver.jar"}
    options = table_options("postgresql://reader:hidden@[::1]:5433/shop", "items", 10)
    assert options["url"] == "jdbc:postgresql://[::1]:5433/shop"
    assert (options["user"], options["password"]) == ("reader", "hidden")
    with pytest.raises(RequestError, match="expected a URL without options where Spark reads by JDBC, got sslmode"):
        table_options("postgresql://reader:hidden@db/shop?sslmode=require", "items", 10)


def test_the_table_holds_each_figure_once_and_replaces_what_stood_there(tmp_path: Path) -> None:
    """Ways as rows, shares of hits within a cell; what failed, did not fit or did not run is said."""
    records = [
        _record("srj", 0.0, rate=200_000.0, delay_p99_ms=90.0),
        _record("srj", 0.5, rate=300_000.4),
        _record("a query per row", 0.0, queries=10_000, rate=5_000.0),
        _record("a query per row", 0.5, state="timeout"),
        _record("broadcast join", 0.0, unfit="too large"),
    ]
    lines = rendered(records).splitlines()
    assert lines[0].startswith("**A table of 1,000,000 rows, PostgreSQL** (small, 2026-01-02, M); in each cell: cold · 50% hits.")
    assert lines[2].startswith("| way | rows/s | p50/p99 delay, ms | queries for 1,000 rows |")
    assert lines[4:] == [
        "| srj | 200,000 · 300,000 | 50/90 · 50/80 | 1.2 · 1.2 | 3.0 · 3.0 | 700 · 700 |",
        "| a query per row | 5,000 · timeout | 50/80 · timeout | 1,000 · timeout | 3.0 · timeout | 700 · timeout |",
        "| broadcast join | does not fit · - | does not fit · - | does not fit · - | does not fit · - | does not fit · - |",
    ]
    older = replace(records[0], figures={name: each for name, each in records[0].figures.items() if name != "memory_bytes"})
    assert rendered([older]).splitlines()[-1].endswith("| 1.2 | 3.0 | - |")
    assert "MB" not in headline(older.figures)
    page = tmp_path / "README.md"
    page.write_text(f"before\n{BEGIN}\nwhat was\n{END}\nafter\n")
    for _ in range(2):
        put_into(page, records)
        text = page.read_text()
        assert text.startswith(f"before\n{BEGIN}\nAll ways join streams of the same make on two cores")
        assert text.endswith(f"\n\n{rendered(records)}\n{END}\nafter\n")
        assert "what was" not in text
    page.write_bytes(f"before\r\n{BEGIN}\r\n{END}\r\nafter\r\n".encode())
    page.chmod(0o640)
    put_into(page, records)
    assert page.read_bytes().count(b"\n") == page.read_bytes().count(b"\r\n")
    assert page.stat().st_mode & 0o777 == 0o640
    assert [path.name for path in tmp_path.iterdir()] == ["README.md"]
    page.write_text("nothing\n")
    with pytest.raises(RequestError, match="write them where the table shall stand"):
        put_into(page, records)
    with pytest.raises(RequestError, match="got those of smoke, which say nothing"):
        put_into(page, [*records, replace(records[0], scale="smoke")])
    assert page.read_text() == "nothing\n"


def test_a_faster_peer_is_a_claim_that_differs() -> None:
    """With both figures; the other claim, which holds, agrees, as it does where the other is ahead by what runs differ."""
    records = [_record("srj", 0.5, rate=100.0), _record("one by one", 0.5, rate=126.0, delay_p99_ms=81.0)]
    fastest, shortest = check(records)
    assert (fastest.verdict, fastest.why) == ("differs", "100 rows/s; the best of the others, one by one: 126")
    assert (shortest.verdict, shortest.why) == ("agrees", "80 ms; the best of the others, one by one: 81 ms")
    near, far = (_record("one by one", 0.5, rate=124.0, delay_p99_ms=delay) for delay in (61.0, 59.0))
    assert [one.verdict for one in check([records[0], near])] == ["agrees", "agrees"]
    assert [one.verdict for one in check([records[0], far])] == ["agrees", "differs"]
    assert list(by_point(records)) == ["1 M rows, 50% hits"]
    axes = Figure().subplots()
    plot(records, axes)
    assert [bar.get_height() for bar in axes.patches] == [100.0, 126.0]
    assert headline(records[0].figures).startswith("100 rows/s, delay 50 ms (p99 80), 12 queries for 10,000 rows, 3.0 s of")


def test_a_peer_without_a_rate_is_named_in_the_picture() -> None:
    """With what became of it, and without an empty bar; also where nothing has a rate."""
    records = [
        _record("srj", 0.5),
        _record("one by one", 0.5, state="timeout"),
        _record("broadcast join", 0.5, unfit="too large"),
        _record("broadcast join", 0.95, unfit="too large"),
    ]
    lost = [
        "one by one (1 M rows, 50% hits): timeout",
        "broadcast join (1 M rows, 50% hits): does not fit",
        "broadcast join (1 M rows, 95% hits): does not fit",
    ]
    assert legend("peers", records) == [*lost, "1 M rows, 50% hits"]
    axes = Figure().subplots()
    load("peers").plot(records, axes)
    assert [bar.get_height() for bar in axes.patches] == [1.0]
    assert legend("peers", records[1:]) == lost


def test_a_lost_level_is_named_in_the_picture() -> None:
    """The baseline, and srj's own choice, which have no size at which a gap could be."""
    figures = {"rate": 1000.0}
    made = [
        Record("", "fig_4_15", "small", cell, "postgresql", state, "", 1.0, figures if state == "finished" else {}, "", {}, "", "")
        for cell in load("fig_4_15").cells("small")
        for state in ["finished" if cell["way"] == "srj" else "failed"]
    ]
    assert legend("fig_4_15", made) == ["srj, so many keys, one lookup at a time", "one by one: failed", "srj auto: failed"]


def test_a_lost_setting_is_named_in_the_picture() -> None:
    """The others are drawn, with the divisions' names; where nothing has finished, only what was lost is told."""
    throughput = {"throughput": dict.fromkeys(SPLITS, (1000, 1100))}
    made = [
        Record(
            "", "fig_5_4", "small", cell, "postgresql", state, "", 1.0, throughput if state == "finished" else {}, "", {}, "", ""
        )
        for cell in load("fig_5_4").cells("small")
        for state in ["finished" if cell["indexed"] else "failed"]
    ]
    lost = ["4 cells without figures"]
    assert legend("fig_5_4", made) == [*lost, *SPLITS[:-1]]
    figure = Figure()
    load("fig_5_4").plot(made, figure.subplots())
    # A panel for each setting; in each also the lines at 1 and at what counts as no worse.
    points = [[len(line.get_xdata()) for line in panel.lines] for panel in figure.axes[1:]]
    assert points == [[0] + [2] * 2, [4] * 4 + [2] * 2, [4] * 4 + [2] * 2]
    assert legend("fig_5_4", [record for record in made if record.state == "failed"]) == lost


def legend(name: str, records: list[Record]) -> list[str]:
    """What the picture names; it can be drawn."""
    figure = Figure()
    load(name).plot(records, figure.subplots())
    figure.savefig(io.BytesIO())
    told = [axes.get_legend() for axes in figure.axes]
    assert any(told)
    return [text.get_text() for one in told if one is not None for text in one.get_texts()]


def _more(after: Usage, before: Usage) -> int:
    assert after.queries is not None
    assert before.queries is not None
    return after.queries - before.queries


def _execute(url: str, sql: str) -> None:
    import asyncio  # noqa: PLC0415

    import asyncpg  # noqa: PLC0415

    async def run() -> None:
        connection = await asyncpg.connect(url)
        await connection.execute(sql)
        await connection.close()

    asyncio.run(run())


def _record(way: Any, hits: float, state: Any = "finished", cell: Any = None, scale: Any = "small", **figures: Any) -> Record:
    measured = {"rate": 1.0, "rows": 10_000, "delay_p50_ms": 50.0, "delay_p99_ms": 80.0, "queries": 12, "cpu_seconds": 0.03}
    measured |= {"memory_bytes": 700_000_000}
    shown = figures if "unfit" in figures else measured | figures
    cell = cell or asdict(PeerCell(way, hits))
    started = "2026-01-02T03:04:05+00:00"
    return Record("k", "peers", scale, cell, "postgresql", state, started, 1.0, shown, "", {}, "M", "S")
