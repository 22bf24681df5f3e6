"""`srj tune`. What it needs is imported when it runs."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from srj.errors import RequestError, SrjError
from srj.quantities import parse_duration, shown

if TYPE_CHECKING:
    from rich.progress import Progress

    from srj.tuning import KeySequence, Tuning

_WIDE = 1000  # characters
_TRACE = "The trace"
_PRICES = "Prices and limits"
_OUTPUT = "Output"


def tune_trace(
    trace: Annotated[
        str,
        typer.Argument(
            metavar="TRACE",
            help="Rows of the stream in their order: a .parquet file or a folder of them, a .csv file with a header, or a table "
            "as URL#TABLE. In a URL ${NAME} is replaced by that environment variable.",
        ),
    ],
    key: Annotated[
        list[str],
        typer.Option(
            "--key",
            "-k",
            metavar="COLUMN",
            help="The trace's key column. For a composite key repeat it, or write 'a,b'.",
            rich_help_panel=_TRACE,
        ),
    ],
    rows: Annotated[
        int | None,
        typer.Option("--rows", min=1, max=2**63 - 1, help="Read so many rows from the top. Default: all.", rich_help_panel=_TRACE),
    ] = None,
    order_by: Annotated[
        str | None,
        typer.Option(
            "--order-by",
            metavar="SQL",
            help="For a table: what puts its rows into the stream's order, as 'ordered_at'. Default: as the server reads them.",
            rich_help_panel=_TRACE,
        ),
    ] = None,
    where: Annotated[
        str | None,
        typer.Option("--where", "-w", metavar="SQL", help="For a table: a condition on its rows.", rich_help_panel=_TRACE),
    ] = None,
    url: Annotated[
        str | None,
        typer.Option(
            "--url",
            metavar="URL#TABLE",
            help="The table that the stream is joined with: its lookups are measured as by srj check, its rows' bytes estimated.",
            rich_help_panel=_PRICES,
        ),
    ] = None,
    table_key: Annotated[
        list[str] | None,
        typer.Option(
            "--table-key",
            metavar="COLUMN",
            help="The key's column in that table, if it is not called as in the trace.",
            rich_help_panel=_PRICES,
        ),
    ] = None,
    miss_cost: Annotated[
        float | None,
        typer.Option(
            "--miss-cost",
            metavar="SECONDS",
            help="What the database works for a missed key. Default: measured by --url, else 0.001.",
            rich_help_panel=_PRICES,
        ),
    ] = None,
    row_bytes: Annotated[
        float | None,
        typer.Option(
            "--row-bytes",
            metavar="BYTES",
            help="What a key takes in the cache with its rows. Default: by --url, else 100.",
            rich_help_panel=_PRICES,
        ),
    ] = None,
    memory: Annotated[
        str | None,
        typer.Option(
            "--memory",
            metavar="SIZE",
            help="Most memory of the cache: '512 MB', '100_000 rows' or bytes. Default: no limit.",
            rich_help_panel=_PRICES,
        ),
    ] = None,
    memory_cost: Annotated[
        float,
        typer.Option(
            "--memory-cost",
            metavar="SECONDS",
            help="What a GB of cache has to save during this trace to be worth it, in seconds of the database's work. Default 0: "
            "memory is free up to its limit, and no more is taken than has a use.",
            rich_help_panel=_PRICES,
        ),
    ] = 0.0,
    update_period: Annotated[
        str | None,
        typer.Option(
            "--update-period",
            metavar="DURATION",
            help="How often the table's data is renewed ('1 h', '10 min', 'forever' for never): the time to live.",
            rich_help_panel=_PRICES,
        ),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Leave out the curves of all policies but LRU.", rich_help_panel=_OUTPUT)
    ] = False,
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="The settings, for config=; one that srj tune wrote is replaced.",
            rich_help_panel=_OUTPUT,
        ),
    ] = Path("srj.toml"),
    plot: Annotated[
        Path | None,
        typer.Option("--plot", metavar="FILE", help="The curves as .png or .svg; needs matplotlib.", rich_help_panel=_OUTPUT),
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option(
            "--html", metavar="FILE", help="All of it as one page, picture inside; needs matplotlib.", rich_help_panel=_OUTPUT
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print all of it as JSON.", rich_help_panel=_OUTPUT)] = False,
    timeout: Annotated[
        float,
        typer.Option("--timeout", min=0.1, help="Seconds each question to a database may take.", rich_help_panel=_PRICES),
    ] = 30.0,
) -> None:
    """Find policy, size, ttl and batch for a stream, from a trace of its keys, and write them to srj.toml.

    Prints the miss ratios of all policies by the size of the cache, and the choice with its reasons; of the policies it
    recommends only those that cache= takes by name. Use the file by srj_enrich(..., config="srj.toml").

    Exit codes: 0 done; 1 it could not be, with one sentence on standard error that says why; 2 an option is
    unknown, or its value of another kind.

    Example: srj tune orders.parquet --key product_id --memory '256 MB' --html tuning.html
    """
    from srj.table import Table  # noqa: PLC0415  `srj --help` needs none of these
    from srj.tuning import priced, tune  # noqa: PLC0415
    from srj.tuning.page import PAGE_MARK  # noqa: PLC0415
    from srj.tuning.picture import PICTURE_MARKS, form_of  # noqa: PLC0415
    from srj.tuning.prices import ROW_BYTES, Prices  # noqa: PLC0415
    from srj.tuning.report import check_own  # noqa: PLC0415

    try:
        names = _split(key)
        if table_key and url is None:
            raise RequestError("expected --table-key only with --url, whose table it is of; leave it out, or give --url")
        limit = int(memory) if memory is not None and memory.isdecimal() else memory
        # Mistakes first, before minutes of reading.
        Prices(
            miss_cost=1 if miss_cost is None else miss_cost,
            row_bytes=row_bytes if row_bytes is not None else ROW_BYTES if url is None else 1,
            memory=limit,
            memory_cost=memory_cost,
        )
        if update_period is not None:
            parse_duration("--update-period", update_period)
        if plot is not None or html is not None:
            _check_matplotlib()
        if plot is not None:
            form_of(plot)
        _check_places(trace, output, plot, html)
        check_own(output, "--output")
        if html is not None:
            check_own(html, "--html", [PAGE_MARK.encode()])
        if plot is not None:
            check_own(plot, "--plot", PICTURE_MARKS)
        with _bars() as bars:
            measuring = None if url is None else bars.add_task("measuring the table", total=None)
            prices = priced(
                miss_cost=miss_cost,
                row_bytes=row_bytes,
                memory=limit,
                memory_cost=memory_cost,
                table=None if url is None else Table(url),
                key=_split(table_key) if table_key else names,
                timeout=timeout,
                progress=lambda step: None if measuring is None else bars.update(measuring, description=step),
            )
            if measuring is not None:
                bars.update(measuring, total=1.0, completed=1.0, description="measured")
            keys = _read(trace, names, rows, order_by, where, timeout, bars)
            task = bars.add_task("simulating", total=1.0)
            found = tune(
                keys,
                prices,
                update_period=update_period,
                curves=not quick,
                trace=_shown(trace, names),
                progress=lambda step, share: bars.update(task, description=step, completed=share),
            )
        _write(found, output, plot, html)
    except SrjError as error:
        typer.echo(f"srj: {error}", err=True)
        raise typer.Exit(1) from None
    _print(found, [path for path in (output, plot, html) if path is not None], as_json=as_json)


def _split(names: list[str]) -> list[str]:
    try:
        return [name.strip() for row in csv.reader(names, skipinitialspace=True) for name in row]
    except csv.Error as error:
        raise RequestError(f"expected names of columns with commas between them, got {error}; correct --key") from None


def _shown(trace: str, key: list[str]) -> str:
    """The trace without its folder, or the table without the password."""
    from srj.table import Table  # noqa: PLC0415

    place = ".".join(Table(trace).name) if "://" in trace else Path(trace).name
    return f"{', '.join(key)} of {place}"


def _check_places(trace: str, output: Path, plot: Path | None, html: Path | None) -> None:
    """No file shall replace another, or the trace."""
    named = {"--output": output, "--plot": plot, "--html": html}
    if "\0" in trace:
        raise RequestError(f"expected a trace's name without NUL, got {shown(trace)}; correct it")
    seen = {} if "://" in trace else {Path(trace).resolve(): "the trace"}
    for option, path in named.items():
        if path is None:
            continue
        other = seen.setdefault(path.resolve(), option)
        if other != option:
            raise RequestError(f"expected another file for {option} than {other}, got {str(path)!r} for both; choose another")


def _check_matplotlib() -> None:
    from importlib.util import find_spec  # noqa: PLC0415

    if find_spec("matplotlib") is None:
        raise RequestError("expected matplotlib for --plot and --html, which is not installed; run: pip install matplotlib")


def _bars() -> Progress:
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn  # noqa: PLC0415

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


def _read(
    trace: str, key: list[str], rows: int | None, order_by: str | None, where: str | None, timeout: float, bars: Progress
) -> KeySequence:
    from srj.tuning import read_trace  # noqa: PLC0415

    task = bars.add_task("reading", total=None)

    def progress(share: float | None, done: int) -> None:
        total = None if share is None else 1.0
        bars.update(task, total=total, completed=share or 0.0, description=f"reading: {done:,} rows")

    keys = read_trace(trace, key, rows=rows, order_by=order_by, where=where, timeout=timeout, progress=progress)
    bars.update(task, total=1.0, completed=1.0)
    return keys


def _write(found: Tuning, output: Path, plot: Path | None, html: Path | None) -> None:
    from srj.tuning.report import write  # noqa: PLC0415

    # The settings last: where they are, all is.
    if plot is not None:
        found.plot(plot)
    if html is not None:
        write(html, found.html().encode())
    found.write(output)


def _print(found: Tuning, written: list[Path], *, as_json: bool) -> None:
    from rich.console import Console  # noqa: PLC0415

    from srj.tuning.report import show  # noqa: PLC0415

    if as_json:
        sys.stdout.write(json.dumps(found.as_json(), indent=2, ensure_ascii=False) + "\n")
        return
    # Where nobody looks at the lines, none is broken.
    show(found, Console() if sys.stdout.isatty() else Console(width=_WIDE))
    for path in written:
        typer.echo(f"wrote {path}")
