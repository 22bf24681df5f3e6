"""Plots, and the report: one HTML page with all in it, and the same in Markdown with its pictures beside it."""

from __future__ import annotations

import base64
import html
import io
from dataclasses import dataclass
from typing import TYPE_CHECKING

import matplotlib as mpl
from matplotlib.figure import Figure

from srj.errors import RequestError
from srj.experiments.experiment import Finding
from srj.experiments.ledger import code_hash
from srj.experiments.masking import printable
from srj.experiments.pages import check_writable, write, write_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from srj.experiments.experiment import Experiment, Scale
    from srj.experiments.ledger import Ledger, Record

_SIZES = {"smoke": " (tiny, to try the program: its figures say nothing)", "small": "", "paper": " (the thesis's)"}
_DIALECTS = {"postgresql": "PostgreSQL", "mysql": "MySQL or MariaDB"}
_THESIS = (
    "The thesis is Roozbeh Derakhshan's, on the stream-relation join (Griffith University); figures have its numbers. What it saw "
    "it saw with another engine, MySQL, and machines of its time, so that ratios are compared, and no times."
)
_WORDS = {
    "highest input rate": "the thesis's metric: rows a second that may arrive for ever without more and more of them waiting. It "
    "is searched for in steps of 5 % (4.22: a tenth); runs of the same cell differ by up to 1.3 times, and what differs by less "
    "is called open, or no difference.",
    "one by one": "one lookup for each row whose key an LRU cache lacks, waited for: the thesis's baseline. By hand it took four "
    "times as long with client and server held on two cores as on one, and the system may put them either way: so on an index "
    "nearby it is opened three times, and the best counts.",
    "srj, n keys": "srj's core, with just n keys in a lookup and one lookup at a time; **srj auto** chooses both.",
    "cached": "share of the stream's distinct keys that the cache has room for; **skew**: exponent of Zipf's law; 0: all alike.",
    "hit at once, asked a key": "rows whose key the cache had; rows for which a key was asked. The others waited for a key that "
    "was on its way.",
    "ms away": "each way: a round trip takes twice as long.",
    "s out of order": "the order constraint, in seconds of the stream: so far may a row leave before one that came earlier.",
    "agrees, differs, open": "whether our figures bear the claim out; open: cells are missing, or chance may be all.",
}
_STYLE = (
    "body{font:16px/1.5 sans-serif;max-width:60em;margin:2em auto;padding:0 1em}img{max-width:100%}table{border-collapse:collapse}"
    "td,th{border:1px solid #ccc;padding:.2em .6em;text-align:left;vertical-align:top}.agrees{color:#060}.differs{color:#a00}"
    ".open{color:#850}"
)


def plotted(experiment: Experiment, records: Sequence[Record]) -> bytes:
    """The experiment's picture as PNG."""
    # The same bytes for the same records, on each machine: no date in it.
    with mpl.rc_context():
        mpl.rcdefaults()  # whatever the user's own are
        mpl.rcParams["figure.dpi"] = 110
        figure = Figure(figsize=(7, 4.5), layout="constrained")
        axes = figure.subplots()
        experiment.plot(records, axes)
        figure.suptitle(_title(experiment, records), fontsize="large")  # above all panels, if there are several
        content = io.BytesIO()
        figure.savefig(content, format="png", metadata={"Software": None})
    return content.getvalue()


def found(experiment: Experiment, records: Sequence[Record]) -> list[Finding]:
    """What a server's records say; where cells that can run here have not run, nothing, and at scale smoke they are not judged."""
    missing = len(experiment.missing(records[0].scale, records))
    if missing:
        return [
            Finding(
                experiment.claim,
                "open",
                f"{missing} cells have not run; run: srj experiment run {experiment.file or experiment.name}",
            )
        ]
    if records[0].scale == "smoke":
        return [Finding(one.claim, "open", f"not judged at scale smoke; {one.why}") for one in experiment.check(records)]
    return experiment.check(records)


def by_server(name: str, records: Sequence[Record]) -> dict[str, list[Record]]:
    """The records of each server's dialect, by the name of their picture."""
    groups: dict[str, list[Record]] = {}
    for record in records:
        groups.setdefault(f"{name}_{record.dialect}" if record.dialect else name, []).append(record)
    return groups


def write_report(experiments: Sequence[Experiment], ledger: Ledger, scale: Scale | None, page: Path, markdown: Path) -> list[Path]:
    """Write both pages of all experiments that have results.

    Args:
        experiments: in the order of the pages.
        ledger: their results.
        scale: of the cells; None: of each experiment that which ran last.
        page, markdown: the files.

    Returns:
        What was written.

    Raises:
        RequestError: there are no results at all, or files that can't be written.
    """
    results = [(experiment, ledger.latest(experiment, scale)) for experiment in experiments]
    if not any(records for _, records in results):
        others = sorted({record.experiment for record in ledger.records()} - {experiment.name for experiment in experiments})
        there = f", but of {printable(', '.join(others))}; name these, or the files that they are from" if others else ""
        raise RequestError(
            f"expected results to report, found none of these in {str(ledger.path)!r}"
            f"{there or '; run: srj experiment run, or name --output'}"
        )
    pictures = markdown.parent / markdown.stem
    if pictures == markdown:
        raise RequestError(f"expected a page whose name ends with .md, got {markdown.name!r}, which its pictures' folder needs")
    for path in (page, markdown):
        check_writable(path)
    sections: list[_Section] = []
    for experiment, all_records in results:
        if not all_records:
            shown = f"<h2>{html.escape(experiment.title)}</h2><p>Not run.</p>"
            sections.append(_Section(shown, f"## {experiment.title}\n\nNot run.\n"))
        for name, records in by_server(experiment.name, all_records).items():
            try:
                sections.append(_section(experiment, records, pictures.name, name))
            except (Exception, SystemExit) as error:  # a record of another version, a check of one's own: the others are shown
                sections.append(_failed(experiment, records, f"{type(error).__name__}: {error}"))
    drawn = {pictures / f"{one.name}.png": one.picture for one in sections if one.name}
    for path, picture in drawn.items():
        write(path, picture)
    head = f'<!doctype html><html lang="en"><meta charset="utf-8"><title>srj: experiments</title><style>{_STYLE}</style>'
    verdicts = [verdict for one in sections for verdict in one.verdicts]
    write_text(
        page, f"{head}<h1>Experiments</h1>{_html_words()}{_html_overview(verdicts)}{''.join(one.page for one in sections)}</html>\n"
    )
    introduction = "# Experiments\n\nWritten by `srj experiment report`, from the results of `srj experiment run`.\n\n"
    words = "".join(f"- **{word}**: {meaning}\n" for word, meaning in _WORDS.items())
    introduction += f"{_THESIS}\n\n{words}\n"
    write_text(markdown, f"{introduction}{_overview(verdicts)}\n" + "\n".join(one.markdown for one in sections))
    return [page, markdown, *drawn]


@dataclass(frozen=True)
class _Section:
    """Of an experiment on a server: in both pages, its claims for the overview, and its picture, if it has one."""

    page: str
    markdown: str
    verdicts: Sequence[tuple[str, Finding]] = ()
    name: str = ""
    picture: bytes = b""


def _section(experiment: Experiment, records: Sequence[Record], folder: str, name: str) -> _Section:
    findings, picture = found(experiment, records), plotted(experiment, records)
    page = "".join(_html_section(experiment, records, findings, picture))
    markdown = "\n".join(_markdown_section(experiment, records, findings, f"{folder}/{name}.png"))
    where = f"{_title(experiment, records)} ({records[0].scale})"
    return _Section(page, markdown, [(where, one) for one in findings], name, picture)


def _failed(experiment: Experiment, records: Sequence[Record], why: str) -> _Section:
    title, told = _title(experiment, records), f"Its results can't be shown: {_cell(printable(why))}"
    page = f"<h2>{html.escape(title)}</h2><p>{html.escape(told)}</p>"
    return _Section(page, f"## {title}\n\n{told}\n", [(title, Finding(experiment.claim, "open", told))])


def _overview(verdicts: Sequence[tuple[str, Finding]]) -> str:
    """All claims with what was found, a line each."""
    lines = (f"| {_cell(title)} | {_cell(one.claim)} | {one.verdict} |" for title, one in verdicts)
    return "\n".join(["| experiment | claim | we find |\n| --- | --- | --- |", *lines, ""])


def _html_words() -> str:
    words = "".join(f"<li><b>{word}</b>: {meaning.replace('**', '')}" for word, meaning in _WORDS.items())
    return f"<p>{html.escape(_THESIS)}</p><ul>{words}</ul>"


def _html_overview(verdicts: Sequence[tuple[str, Finding]]) -> str:
    escaped = html.escape
    lines = (
        f'<tr><td>{escaped(title)}<td>{escaped(one.claim)}<td class="{escaped(one.verdict)}">{escaped(one.verdict)}'
        for title, one in verdicts
    )
    return f"<table><tr><th>experiment<th>claim<th>we find{''.join(lines)}</table>"


def _markdown_section(
    experiment: Experiment, records: Sequence[Record], findings: Sequence[Finding], picture: str
) -> Iterator[str]:
    yield f"## {_cell(_title(experiment, records))}\n"
    yield _cell(f"{experiment.question} {experiment.claimed_by}: {experiment.claim}") + "\n"
    yield f"![{_cell(experiment.title)}]({picture})\n"
    yield "| claim | we find | for |\n| --- | --- | --- |"
    yield from (f"| {_cell(one.claim)} | {one.verdict} | {_cell(one.why)} |" for one in findings)
    yield ""
    discussion = _discussion(experiment, records)
    if discussion:
        yield f"{discussion}\n"
    yield from (f"- {line}" for line in _notes(records))
    yield "\n| cell | result |\n| --- | --- |"
    yield from (f"| {_cell(experiment.label(record.cell))} | {_cell(_result(experiment, record))} |" for record in records)
    yield ""


def _html_section(experiment: Experiment, records: Sequence[Record], findings: Sequence[Finding], picture: bytes) -> Iterator[str]:
    escaped = html.escape
    encoded = base64.b64encode(picture).decode()
    yield f"<h2>{escaped(_title(experiment, records))}</h2>"
    yield f"<p>{escaped(experiment.question)} {escaped(experiment.claimed_by)}: {escaped(experiment.claim)}</p>"
    yield f'<img alt="{escaped(experiment.title)}" src="data:image/png;base64,{encoded}">'
    yield "<table><tr><th>claim<th>we find<th>for"
    for one in findings:
        yield f'<tr><td>{escaped(one.claim)}<td class="{escaped(one.verdict)}">{escaped(one.verdict)}<td>{escaped(one.why)}'
    yield "</table>"
    discussion = _discussion(experiment, records)
    if discussion:
        yield f"<p>{escaped(discussion)}</p>"
    yield "<ul>" + "".join(f"<li>{escaped(line)}" for line in _notes(records)) + "</ul>"
    yield "<details><summary>all cells</summary><table><tr><th>cell<th>result"
    for record in records:
        yield f"<tr><td>{escaped(experiment.label(record.cell))}<td>{escaped(_result(experiment, record))}"
    yield "</table></details>"


def _discussion(experiment: Experiment, records: Sequence[Record]) -> str:
    """With figures only where all cells have some."""
    is_whole = not experiment.missing(records[0].scale, records) and all(record.state == "finished" for record in records)
    return " ".join([experiment.discussion, *(experiment.details(records) if is_whole else ())]).strip()


def _title(experiment: Experiment, records: Sequence[Record]) -> str:
    dialect = records[0].dialect
    return f"{experiment.title}, on {_DIALECTS[dialect]}" if dialect else experiment.title


def _notes(records: Sequence[Record]) -> Iterator[str]:
    """What it ran on: all that occurs, for cells may have run at different times."""
    scale = records[0].scale
    yield f"scale {scale}{_SIZES[scale]}; {len(records)} cells, {sum(record.seconds for record in records):,.0f} s"
    yield from dict.fromkeys(f"{record.machine}; {_versions(record)}" for record in records)
    yield f"until {max(record.started for record in records)}; {', '.join(dict.fromkeys(record.server for record in records))}"
    older = sum(record.code != code_hash() for record in records)
    if older:
        care = ", and not all of the same: compare with care" if len({record.code for record in records}) > 1 else ""
        yield f"{older} of the cells are of an earlier state of the code{care}"
    rows = sum(int(record.figures.get("output_rows", 0)) for record in records)
    yield f"{rows:,} rows came out of the finished cells, the same as a plain join gives"


def _versions(record: Record) -> str:
    return ", ".join(f"{name} {version}" for name, version in record.versions.items())


def _result(experiment: Experiment, record: Record) -> str:
    if record.state == "finished":
        return experiment.headline(record.figures)
    return f"{record.state}: {record.error}"


def _cell(text: str) -> str:
    """As it can stand in a table."""
    return " ".join(text.replace("|", "\\|").replace("<", "&lt;").split())
