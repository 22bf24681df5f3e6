"""How commands end that can't go on: with one sentence, and with all tidied up."""

from __future__ import annotations

import io
import signal
import sys
from contextlib import contextmanager
from threading import current_thread, main_thread
from typing import TYPE_CHECKING

import typer

from srj.errors import RequestError, SrjError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType


@contextmanager
def stopped_by_signals() -> Iterator[None]:
    """Who is told to end does so as by Ctrl-C: the cell ends, and no tables stay. What is ignored, as by nohup, stays so."""

    def stop(number: int, _: FrameType | None) -> None:
        raise KeyboardInterrupt(signal.Signals(number).name)

    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    ours = [number for number, handler in before.items() if handler == signal.SIG_DFL and current_thread() is main_thread()]
    for number in ours:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, before[number])


@contextmanager
def told() -> Iterator[None]:
    """Errors in one sentence, what is not installed among them; what the terminal has no letters for is shown escaped."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        yield
    except SrjError as error:
        typer.echo(f"srj: {error}", err=True)
        raise typer.Exit(2 if isinstance(error, RequestError) else 1) from None
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "srj":
            raise
        typer.echo(
            f"srj: expected the package {error.name}, which is not installed; install srj with its extra, as by "
            "pip install '.[experiments]'",
            err=True,
        )
        raise typer.Exit(2) from None
    except KeyboardInterrupt:
        typer.echo("stopped; what has finished is kept", err=True)
        raise typer.Exit(130) from None
