"""The README's table of peers, rendered from the ledger between two marks: no figure in it is copied by hand."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from srj.errors import RequestError, SrjError
from srj.experiments.pages import check_writable, write, write_text
from srj.experiments.peers import PeerCell, Way

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from srj.experiments.ledger import Record

BEGIN, END = "<!-- peers: begin -->", "<!-- peers: end -->"
_DIALECTS = {"postgresql": "PostgreSQL", "mysql": "MySQL or MariaDB"}
_NONE = "-"
_NOTE = (
    "All ways join streams of the same make on two cores, with the server on the same machine: keys that come once "
    "each (cold), or of which a share is among 10,000 that came before. Each figure is of one run, and runs of the "
    "same cell differ by a fifth as a rule, and by half now and then.\n"
    "\n"
    "- Rows a second: those of micro-batches of 100,000 rows over what Spark calls their execution. Flink "
    "has no micro-batches: its rows after the warm ones, from reading the first to joining the last.\n"
    "- Delay: from when the files of a micro-batch of 5,000 rows appear until a row has left the join. Of Flink, to which "
    "they are bursts in the middle of its stream: from when it reads the first row of one; that it looks for new files "
    "but now and then is not in it.\n"
    "- Queries: PostgreSQL's that name the table; of MySQL or MariaDB all SELECTs. CPU: of all the server's "
    "processes.\n"
    "- Memory: the most at a time of the JVM, which takes heap up to 4 GB as it likes, the Python workers, and what the "
    "driver's own Python needs more than before; of Flink, whose Python only starts the job, all of that.\n"
    "- srj, the two one by one and Flink have a cache of 100,000 rows: one for all workers with srj and Flink, else "
    "one for each. Asynchronous lookups are 32 at a time in each of two workers.\n"
    "- A query per row, the IN list (1,000 distinct keys of the micro-batch a query, from the driver) and the JDBC "
    "join (the whole table in each micro-batch) remember nothing. The broadcast join reads the table once, before "
    "anything is measured, and never sees a change.\n"
    "- No join is what Spark itself takes: the same rows, made by SQL from their keys alone, in the same micro-batches.\n"
    "\n"
    "`srj experiment run peers` measures it again, and `srj experiment report --readme README.md` writes it here."
)


def rendered(records: Sequence[Record]) -> str:
    """A table for each server and each size of the relation; a row for each way, in each cell one figure for each share of hits."""
    groups: dict[tuple[str, int], list[Record]] = {}
    for record in records:
        groups.setdefault((record.dialect, PeerCell(**record.cell).relation), []).append(record)
    return "\n\n".join("\n".join(_table(dialect, rows, group)) for (dialect, rows), group in sorted(groups.items()))


def put_into(page: Path, records: Sequence[Record]) -> None:
    """Replace what stands between the marks of a page.

    Raises:
        RequestError: the marks are not there, once each and in their order; or there are no results, or those of smoke scale, which
            say nothing.
    """
    if not records:
        raise RequestError("expected results of the experiment peers, found none; run: srj experiment run peers")
    if any(record.scale == "smoke" for record in records):
        raise RequestError(
            "expected results of scale small or paper for the table, got those of smoke, which say nothing; run more"
        )
    text = page.read_bytes().decode()
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end or BEGIN in rest or END in after:
        raise RequestError(f"expected {BEGIN} and then {END} in {page.name}, once each; write them where the table shall stand")
    table = f"\n{_NOTE}\n\n{rendered(records)}\n"
    ends = "\r\n" if "\r\n" in text else "\n"
    write(page, f"{before}{BEGIN}{table.replace(chr(10), ends)}{END}{after}".encode())


def check_page(page: Path, peers: Sequence[Record]) -> None:
    """See that the table of peers can be put into a page, before anything is written.

    Raises:
        RequestError: it can't.
    """
    check_writable(page)
    try:
        text = page.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise RequestError(f"expected a page in UTF-8, got {str(page)!r}, which can't be read: {_reason(error)}") from None
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / page.name
        write_text(copy, text)
        try:
            put_into(copy, peers)
        except (TypeError, KeyError, ValueError, ArithmeticError) as error:
            if isinstance(error, SrjError):
                raise
            raise RequestError(
                f"expected records of peers as this version writes them, got {_reason(error)}; run it again"
            ) from error


def _table(dialect: str, rows: int, records: Sequence[Record]) -> Iterator[str]:
    shares = sorted({PeerCell(**record.cell).hits for record in records})
    names = " · ".join(f"{share:.0%} hits" if share else "cold" for share in shares)
    last = max(records, key=lambda record: record.started)
    ran = f"{last.scale}, {last.started[:10]}, {last.machine}"
    yield f"**A table of {rows:,} rows, {_DIALECTS[dialect]}** ({ran}); in each cell: {names}."
    yield ""
    yield "| way | " + " | ".join(_COLUMNS) + " |\n" + "| --- " * (len(_COLUMNS) + 1) + "|"
    for way in get_args(Way):
        of_way = {PeerCell(**record.cell).hits: record for record in records if record.cell["way"] == way}
        if of_way:
            cells = (" · ".join(_figure(of_way.get(share), shown) for share in shares) for shown in _COLUMNS.values())
            yield f"| {way} | " + " | ".join(cells) + " |"


def _figure(record: Record | None, shown: Callable[[Mapping[str, Any]], str]) -> str:
    if record is None:
        return _NONE
    if record.state != "finished":
        return record.state
    return "does not fit" if "unfit" in record.figures else shown(record.figures)


def _delays(figures: Mapping[str, Any]) -> str:
    if figures["delay_p99_ms"] is None:
        return _NONE
    return f"{figures['delay_p50_ms']:,.0f}/{figures['delay_p99_ms']:,.0f}"


def _queries(figures: Mapping[str, Any]) -> str:
    if figures["queries"] is None:
        return _NONE
    queries = 1000 * figures["queries"] / figures["rows"]
    return f"{queries:,.0f}" if queries >= 100 else f"{queries:.2g}"


def _cpu(figures: Mapping[str, Any]) -> str:
    return _NONE if figures["cpu_seconds"] is None else f"{1e6 * figures['cpu_seconds'] / figures['rows']:,.1f}"


def _memory(figures: Mapping[str, Any]) -> str:
    """Older records have another figure."""
    return f"{figures['memory_bytes'] / 1e6:,.0f}" if "memory_bytes" in figures else _NONE


_COLUMNS: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "rows/s": lambda figures: f"{figures['rate']:,.0f}",
    "p50/p99 delay, ms": _delays,
    "queries for 1,000 rows": _queries,
    "database CPU, s for 1 M rows": _cpu,
    "memory, MB": _memory,
}


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or f"{type(error).__name__}: {error}"
