"""`srj demo`, run as a user runs it."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import subprocess
import time
from typing import TYPE_CHECKING, Any

import asyncpg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from srj import demo
from tests.test_cli import SRJ, run_srj

PLANES, JANUARY = 3322, 27004  # rows of the data set

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def january(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The demo of January alone, its database kept until Ctrl-C: its output folder and what it showed."""
    output = tmp_path_factory.mktemp("demo") / "output"
    command = [SRJ, "demo", "--master", "local[2]", "--months", "1", "--output", str(output), "--keep"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        shown = ""
        while "until Ctrl-C" not in shown and (line := process.stdout.readline()):
            shown += line
        url = re.search("postgresql://[^ ]+", shown)
        assert url, shown + process.stderr.read()
        assert asyncio.run(count_planes(url[0])) == PLANES
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(timeout=60) == 0
        assert "Traceback" not in process.stderr.read()
    return output, shown


def test_the_demo_writes_every_flight_with_its_plane_and_airport(january: tuple[Path, str]) -> None:
    """As the files of the data set, joined by Arrow, have it."""
    output, _ = january
    enriched = pq.read_table(output / "enriched")
    data = demo._data_folder()
    flights = pq.read_table(output / "flights").select(["time_hour", "carrier", "flight", "tailnum", "origin", "dest"])
    planes = demo.read_csv(data / "planes.csv", demo.PLANES).select(["tailnum", "model", "seats", "year"])
    planes = planes.rename_columns(["tailnum", "plane_model", "plane_seats", "plane_year"])
    airports = (
        demo.read_csv(data / "airports.csv", demo.AIRPORTS)
        .select(["faa", "name", "lat"])
        .rename_columns(["dest", "dest_name", "dest_lat"])
    )
    expected = flights.join(planes, "tailnum").join(airports, "dest")
    assert enriched.num_rows == JANUARY
    assert rows(enriched, expected.column_names) == rows(expected, expected.column_names)


def test_the_demo_shows_rows_and_the_metrics_of_each_micro_batch(january: tuple[Path, str]) -> None:
    """Read from Spark's own progress reports."""
    _, shown = january
    for text in ("Some enriched flights", "Each micro-batch", "hits", "planes", "airports", "27,004", "no key", "keys at a time"):
        assert text in shown


def test_the_demo_replaces_its_own_folder_and_no_other(january: tuple[Path, str], tmp_path: Path) -> None:
    """A folder that holds somebody's files is left alone."""
    (tmp_path / "thesis.tex").write_text("the only copy")
    done = run_srj("demo", "--months", "1", "--output", str(tmp_path), code=1)
    assert "name another with --output" in done.stderr
    assert (tmp_path / "thesis.tex").read_text() == "the only copy"
    demo._prepare_output(demo.Folders(january[0]))
    assert [path.name for path in january[0].iterdir()] == [demo.MARKER]


def test_ctrl_c_ends_the_demo_and_its_database(tmp_path: Path) -> None:
    """With no traceback and the exit code of an interrupted command."""
    command = [SRJ, "demo", "--master", "local[2]", "--months", "1", "--output", str(tmp_path / "output")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        address = process.stdout.readline()
        checkpoint = tmp_path / "output" / "checkpoint" / "offsets" / "0"
        deadline = time.monotonic() + 120
        while not checkpoint.exists() and time.monotonic() < deadline:
            time.sleep(0.1)
        assert checkpoint.exists()
        os.killpg(process.pid, signal.SIGINT)  # what a terminal does: every process of the group
        assert process.wait(timeout=60) == 130
        assert "Traceback" not in process.stderr.read()
    port = int(address.split(":")[1].split()[0])
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=5)


async def count_planes(url: str) -> int:
    """Ask the demo's database, as a curious user would."""
    connection = await asyncpg.connect(url)
    try:
        return int(await connection.fetchval("SELECT count(*) FROM planes"))
    finally:
        await connection.close()


def rows(table: pa.Table, names: list[str]) -> list[tuple[Any, ...]]:
    """The rows of these columns in an order of their own."""
    columns = [table[name].cast(pa.timestamp("us")) if pa.types.is_timestamp(table[name].type) else table[name] for name in names]
    return sorted(zip(*(column.to_pylist() for column in columns), strict=True), key=repr)
