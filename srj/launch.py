"""How the core gets into a Spark worker: a small function that travels by value and imports the rest there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def launcher(entry: str, *arguments: object) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """A function over a partition's batches that runs ``srj.operators.worker``'s function `entry` in the worker.

    The arguments are bytes and plain values, so a worker can load it before it turns out whether srj is installed there.
    """

    def run(batches: Iterator[Any]) -> Iterator[Any]:
        from importlib import import_module  # noqa: PLC0415  the function travels by value and can't rely on this module

        try:
            worker = import_module("srj.operators.worker")
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError(
                f"expected the package srj and what it needs where Spark's Python workers run, but the module {error.name!r} is "
                "missing there; install srj on every executor, or put it on their PYTHONPATH (spark.executorEnv.PYTHONPATH)"
            ) from None
        yield from getattr(worker, entry)(*arguments, batches)

    run.__name__ = "srj_lookup"  # what plans and the UI show
    return run
