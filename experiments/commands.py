"""`srj experiment`: list, run, plot, report. What each needs is imported when it runs."""

from __future__ import annotations

import math
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from srj.errors import RequestError
from srj.experiments.command_ends import stopped_by_signals, told
from srj.experiments.masking import printable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from srj.experiments.experiment import Experiment
    from srj.experiments.ledger import Ledger, Record

app = typer.Typer(
    help="Measure the thesis's figures again, and experiments of your own.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _number(value: float | None) -> float | None:
    # Between no bounds, and outside none.
    if value is not None and math.isnan(value):
        raise typer.BadParameter("nan is no number of seconds.")
    return value


_Names = Annotated[list[str] | None, typer.Argument(metavar="NAME...", help="As in the list, or a Python file of your own.")]
_All = Annotated[bool, typer.Option("--all", help="All in the list.")]
_Scale = Literal["smoke", "small", "paper"]
_Output = Annotated[Path, typer.Option("--output", "-o", help="Folder of the ledger, the plots and the page.")]
_FOLDER = Path("experiment-results")


@app.command("list")
def list_experiments(output: _Output = _FOLDER) -> None:
    """Show all experiments, and how many of their cells are finished at each scale, of those that have run or can run here."""
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table as Grid  # noqa: PLC0415

    from srj.experiments.experiment import NAMES, SCALES, load  # noqa: PLC0415

    with told(), _ledger(output) as ledger:
        grid = Grid("name", "question", *SCALES, caption=f"cells finished / all, by {ledger.path}")
        for name in NAMES:
            experiment = load(name)
            counts = []
            for scale in SCALES:
                records = ledger.latest(experiment, scale)
                by_dialect: dict[str, list[Record]] = {}
                for record in records:
                    by_dialect.setdefault(record.dialect, []).append(record)
                ended = sum(record.state == "finished" for record in records)
                missing = sum(len(experiment.missing(scale, there)) for there in by_dialect.values() or [records])
                counts.append(f"{ended}/{len(records) + missing}")
            grid.add_row(name, experiment.question, *counts)
        Console(width=None if sys.stdout and sys.stdout.isatty() else 200).print(grid)


@app.command("run")
def run_experiments(
    names: _Names = None,
    every: _All = False,
    scale: Annotated[
        _Scale, typer.Option(help="smoke: seconds; small: minutes a figure on 2 cores; paper: as in the thesis.")
    ] = "small",
    fresh: Annotated[bool, typer.Option("--fresh", help="Measure finished cells again.")] = False,
    timeout: Annotated[
        float | None,
        typer.Option(help="Seconds for each cell, in place of the experiment's own.", min=0.1, max=1_000_000, callback=_number),
    ] = None,
    postgres_url: Annotated[
        str | None, typer.Option(metavar="URL", help="Of your own server, where tables srj_experiment_* are made and dropped.")
    ] = None,
    mysql_url: Annotated[
        str | None, typer.Option(metavar="URL", help="The same for MySQL or MariaDB; with both, each cell runs on each.")
    ] = None,
    output: _Output = _FOLDER,
) -> None:
    """Measure the cells that are not finished, each in a process of its own.

    Without a URL a PostgreSQL in a temporary folder is started, which needs the extra experiments. ${NAME} in a URL is
    replaced by that environment variable. Results are appended to ledger.jsonl. Exit codes: 0 all finished; 1 some failed; 2 the
    command is wrong.
    """
    from rich.console import Console  # noqa: PLC0415

    from srj.experiments.runner import run  # noqa: PLC0415
    from srj.experiments.servers import Servers  # noqa: PLC0415

    with told(), stopped_by_signals(), _ledger(output) as ledger:
        chosen = _chosen(names, every)
        servers = Servers(postgres_url, mysql_url)
        ledger.open_for_writing()
        try:
            with servers:
                tally = run(chosen, scale, ledger, servers, Console(), fresh=fresh, timeout=timeout)
            typer.echo(
                f"{tally.finished} cells finished, {tally.failed} failed, {tally.timeout} took too long, "
                f"{tally.skipped} were finished before"
            )
        finally:
            for what in servers.left:
                typer.echo(f"srj: {what}", err=True)
    if tally.failed or tally.timeout:
        raise typer.Exit(1)


@app.command("plot")
def plot_experiments(
    names: _Names = None,
    every: _All = False,
    scale: Annotated[_Scale | None, typer.Option(help="By default that which ran last.")] = None,
    output: _Output = _FOLDER,
) -> None:
    """Draw a picture of each experiment's results; measures nothing. Exit code 1: some can't be drawn."""
    with told(), _ledger(output) as ledger:
        from srj.experiments.pages import write  # noqa: PLC0415
        from srj.experiments.report import by_server, plotted  # noqa: PLC0415

        failed = False
        for experiment in _loaded(names, every):
            records = ledger.latest(experiment, scale)
            for name, of_server in by_server(experiment.name, records).items():
                path = output / f"{name}.png"
                try:
                    picture = plotted(experiment, of_server)
                except (Exception, SystemExit) as error:  # a record of another version, a plot of one's own: the others go on
                    typer.echo(f"srj: {name} can't be drawn: {printable(f'{type(error).__name__}: {error}')}", err=True)
                    failed = True
                else:
                    write(path, picture)
                    typer.echo(f"{path}")
            if not records:
                typer.echo(f"{experiment.name}: no results yet; run: srj experiment run {experiment.file or experiment.name}")
    if failed:
        raise typer.Exit(1)


@app.command("report")
def report_experiments(
    names: _Names = None,
    every: _All = False,
    scale: Annotated[_Scale | None, typer.Option(help="By default that which ran last.")] = None,
    markdown: Annotated[
        Path | None,
        typer.Option(
            help="The page in Markdown; its pictures go into a folder beside it. By default it stands beside the output folder, "
            "and has its name: docs/experiments.md with -o docs/experiments."
        ),
    ] = None,
    readme: Annotated[
        Path | None, typer.Option(help="A page between whose marks the table of the experiment peers is put, as README.md.")
    ] = None,
    output: _Output = _FOLDER,
) -> None:
    """Write report.html, one page with all in it, and a page in Markdown: plots, the thesis's claims, our findings."""
    with told(), _ledger(output) as ledger:
        from srj.experiments.experiment import load  # noqa: PLC0415
        from srj.experiments.peers_table import check_page, put_into  # noqa: PLC0415
        from srj.experiments.report import write_report  # noqa: PLC0415

        page = markdown or output.parent / f"{output.resolve().name or 'experiments'}.md"
        places = [place.resolve() for place in (output / "report.html", page, readme) if place is not None]
        if len({*places}) < len(places):
            raise RequestError(f"expected a file for each page, got {str(places[-1])!r} for two of them; name another")
        peers = [] if readme is None else ledger.latest(load("peers"), scale)
        if readme is not None:
            check_page(readme, peers)
        for path in write_report(_loaded(names, every or not names), ledger, scale, output / "report.html", page):
            typer.echo(f"{path}")
        if readme is not None:
            put_into(readme, peers)
            typer.echo(f"{readme}")


def _chosen(names: list[str] | None, every: bool) -> list[str]:
    from srj.experiments.experiment import NAMES, load  # noqa: PLC0415

    if bool(names) == every:
        raise RequestError("expected names of experiments, or --all, and not both; srj experiment list shows them")
    chosen = list(NAMES) if every else [str(Path(name).resolve()) if name.endswith(".py") else name for name in names or []]
    for name in chosen:
        load(name)
    return chosen


def _loaded(names: list[str] | None, every: bool) -> list[Experiment]:
    from srj.experiments.experiment import load  # noqa: PLC0415

    return [load(name) for name in _chosen(names, every)]


@contextmanager
def _ledger(output: Path) -> Iterator[Ledger]:
    """The folder's ledger; lines of it that can't be read are told at the end, whatever it is."""
    from srj.experiments.ledger import Ledger  # noqa: PLC0415

    ledger = Ledger(output / "ledger.jsonl")
    try:
        yield ledger
    finally:
        if ledger.unreadable:
            typer.echo(f"srj: {ledger.unreadable} lines of {ledger.path} can't be read, and are left out", err=True)
