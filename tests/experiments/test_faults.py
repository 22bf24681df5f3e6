"""`srj experiment` with cells, files, ledgers and folders that are wrong: each is told in a sentence, and the others go on."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, quote_plus

import matplotlib as mpl
import pytest
from matplotlib.figure import Figure

from srj.errors import RequestError
from srj.experiments import cell_process, fig_4_22, rate_cell
from srj.experiments.experiment import load
from srj.experiments.ledger import Ledger
from srj.experiments.masking import masked, printable
from srj.experiments.pages import write
from srj.experiments.report import plotted
from srj.experiments.servers import Servers
from srj.experiments.traces import trace
from tests.experiments.own import lines, own, srj

if TYPE_CHECKING:
    from collections.abc import Callable

    from srj.experiments.experiment import Experiment

SRJ = Path(sys.executable).with_name("srj")
# Cells by what they do wrong; what they start is written down by its number.
BAD = r"""
import os
import subprocess
import time
import numpy as np
from pathlib import Path
from srj.experiments.experiment import Checksum, Experiment, Finding, Measurement


def start(**options):
    with Path("started").open("a") as file:
        file.write(f"{subprocess.Popen(['sleep', '600'], **options).pid}\n")


def answer(content):
    for number in range(3, 20):
        try:
            os.write(number, content)
        except OSError:
            pass
    os._exit(0)


def run(cell, url):
    name, figures = cell["name"], {"square": 1}
    if name == "bytes":
        os.write(1, b"\xff\xfe")
        os.write(2, b"\xfftold")
        os._exit(3)
    if name == "noise":
        print("noise")
        os.write(1, b"\xff")
        subprocess.run(["echo", "noise"])
    if name in ("5", "{}", '{"figures": 5}'):
        answer(name.encode())
    if name == "much":
        os.write(2, b"begin" + b"x" * 1_000_000 + b"end")
        os._exit(1)
    if name == "error":
        raise ValueError("half \ud800, red \x1b[31m")
    if name == "none":
        return None
    if name == "child":
        start()
    if name == "daemon":
        start(start_new_session=True)
    if name == "stuck":
        start()
        start(start_new_session=True)
        time.sleep(600)
    if name == "fork":
        os.fork()
    values = {"nan": float("nan"), "numpy": np.int64(1), "set": {1}, "text": "\ud800\x1b"}
    if name in values:
        figures["x"] = values[name]
    return Measurement(figures, Checksum(2, 5), Checksum(2, 5))


def headline(figures):
    return f"{figures['x']} is x"


EXPERIMENT = Experiment("bad", "Bad", "Does it end?", "it ends.", lambda scale: [{"name": name} for name in NAMES], run,
                        lambda records: [Finding("c", "agrees", "w")], lambda records, axes: axes.plot([1]),
                        label=lambda cell: cell["name"][:20], headline=headline, servers=())
"""


def bad(folder: Path, *names: str) -> str:
    """The file with these cells."""
    (folder / "bad.py").write_text(f"NAMES = {list(names)!r}\n{BAD}")
    return "bad.py"


def runs(process: int) -> bool:
    """Whether it has not ended."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def started(folder: Path) -> list[int]:
    """What cells started."""
    path = folder / "started"
    return [int(line) for line in path.read_text().splitlines()] if path.exists() else []


def ends(is_true: Callable[[], bool]) -> bool:
    """Whether it comes to be so."""
    until = time.monotonic() + 20
    while not is_true() and time.monotonic() < until:
        time.sleep(0.02)
    return is_true()


def test_whatever_a_cell_does_is_a_record_and_nothing_of_it_stays(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each gets its state and, as text that can be shown, its reason; what it started has ended."""
    monkeypatch.setattr(cell_process, "_GRACE", 0.3)
    answers = ("5", "{}", '{"figures": 5}')
    failed = ("bytes", "much", *answers, "error", "none", "nan", "numpy", "set")
    finished = ("noise", "child", "daemon", "fork", "text")
    done = srj("run", bad(folder, *failed, *finished, "stuck", "noise"), "--timeout", "3", code=1)
    assert f"{len(finished)} cells finished, {len(failed)} failed, 1 took too long" in done.stdout
    told = {line["cell"]["name"]: line for line in lines(folder)}
    assert {name: told[name]["state"] for name in failed} == dict.fromkeys(failed, "failed")
    assert {name: told[name]["state"] for name in finished} == dict.fromkeys(finished, "finished")
    assert told["bytes"]["error"] == "expected figures, but the process ended with 3: \ufffd\ufffd\ufffdtold"
    assert told["much"]["error"].startswith("expected figures, but the process ended with 1: begin")
    assert told["much"]["error"].endswith("end")
    assert told["error"]["error"] == "ValueError: half \\ud800, red \\x1b[31m"
    assert told["none"]["error"] == "expected a Measurement, got NoneType"
    for name in ("nan", "numpy", "set"):
        assert told[name]["error"].startswith("expected figures as JSON knows them, got: ")
    assert told["text"]["figures"]["x"] == "\\ud800\\x1b"
    assert told["child"]["figures"] == {"square": 1, "output_rows": 2, "checksum": "0000000000000005"}
    assert told["stuck"]["state"] == "timeout"
    assert len(started(folder)) == 4
    assert not [process for process in started(folder) if runs(process)]
    assert "\x1b[31m" not in done.stdout
    assert "its headline fails: KeyError: 'x'" in done.stdout


def test_what_a_cell_leaves_in_its_temporary_folder_goes_with_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where it is ended, and can't tidy up itself."""
    place = folder / "temporary"
    place.mkdir()
    monkeypatch.setenv("TMPDIR", str(place))
    monkeypatch.setattr("tempfile.tempdir", None)
    left = 'import tempfile\ntempfile.mkdtemp()\nopen(tempfile.mkstemp()[1], "w").write("rows")\n'
    name = own(folder, 0, 2, 4)
    path = folder / name
    path.write_text(path.read_text().replace("def run(cell, url):", f"def run(cell, url):\n    exec({left!r})"))
    assert "1 cells finished, 1 failed, 1 took too long" in srj("run", name, "--timeout", "2", code=1).stdout
    assert [path.name for path in place.iterdir()] == [f"srj-experiments-{os.getuid()}.lock"]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
def test_a_run_that_is_ended_leaves_no_cell_behind(folder: Path, number: signal.Signals) -> None:
    """However it ends; where it can, it says so."""
    run = subprocess.Popen(
        [SRJ, "experiment", "run", bad(folder, "stuck")],
        stderr=subprocess.PIPE,
        text=True,
        # Under nohup, and who starts the tests may be, it is ignored, as it should be.
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),  # noqa: PLW1509  no threads here
    )
    assert ends(lambda: len(started(folder)) == 2)
    cell = int(Path(f"/proc/{started(folder)[0]}/stat").read_text().rpartition(")")[2].split()[1])
    run.send_signal(number)
    _, errors = run.communicate(timeout=20)
    assert ends(lambda: not any(map(runs, [cell, *started(folder)])))
    if number != signal.SIGKILL:
        assert (run.returncode, errors) == (130, "stopped; what has finished is kept\n")


@pytest.mark.parametrize("options", [["--timeout", "1e7"], ["--timeout", "nan"], ["--timeout", "inf"]])
def test_a_time_limit_is_bounded(folder: Path, options: list[str]) -> None:
    assert "--timeout" in srj("run", own(folder, 0), *options, code=2).stderr


@pytest.mark.parametrize("output", ["file", "file/below", "ledger"])
def test_a_folder_that_can_not_be_written_is_told_before_anything_runs(folder: Path, output: str) -> None:
    (folder / "file").touch()
    (folder / "ledger" / "ledger.jsonl").mkdir(parents=True)
    done = srj("run", bad(folder, "child"), "--output", output, code=2)
    assert done.stderr.startswith("srj: expected a ledger that can be written, got ")
    assert done.stderr.count("\n") == 1
    assert not started(folder)


def test_a_damaged_ledger_gives_what_can_be_read(folder: Path) -> None:
    """Fields of other versions are left out or empty; lines that are no records are counted, once."""
    srj("run", own(folder, 0, 5))
    path = folder / "experiment-results" / "ledger.jsonl"
    first, second = lines(folder)
    del second["error"], second["server"]
    wrong: list[dict[str, Any]] = [{"cell": 5}, {"figures": None}, {"scale": "huge"}, {"state": "odd"}, {"dialect": "../x"}]
    wrong += [{"seconds": "x"}, {"seconds": float("nan")}, {"versions": [1]}, {"versions": {"a": 1}}, {"started": 5}, {"key": [1]}]
    damaged = [b"\xff", b"5", b"[" * 100_000, *(json.dumps(first | one).encode() for one in wrong)]
    good = [json.dumps(one).encode() for one in (first | {"more": 1, "error": "a\u2028b"}, second)]
    path.write_bytes(b"\n".join([*damaged, *good]) + b"\n")
    ledger = Ledger(path)
    assert [record.cell["n"] for record in ledger.records()] == [0, 5]
    for command in (["run", "own.py"], ["report", "own.py"], ["plot", "own.py"], ["list"]):
        done = srj(*command)
        assert done.stderr.count(f"srj: {len(damaged)} lines of ") == 1
    assert "2 were finished before" in srj("run", "own.py").stdout


def test_a_record_that_can_not_be_shown_does_not_stop_the_others(folder: Path) -> None:
    """The report has it in its place, with the reason."""
    srj("run", own(folder, 0))
    path = folder / "experiment-results" / "ledger.jsonl"
    old = lines(folder)[0] | {"experiment": "fig_4_15", "cell": load("fig_4_15").cells("small")[0], "figures": {}}
    with path.open("a") as file:
        file.write(json.dumps(old) + "\n")
    srj("report", "fig_4_15", "own.py")
    page = (folder / "experiment-results.md").read_text()
    assert "1 cells" in page
    assert "Its results can't be shown: KeyError: 'rate'" in page
    done = srj("plot", "fig_4_15", "own.py", code=1)
    assert "fig_4_15 can't be drawn: KeyError: 'rate'" in done.stderr
    assert "own.png" in done.stdout


def test_an_experiment_of_ones_own_may_have_dataclasses_and_any_name(folder: Path) -> None:
    """Whose annotations are looked up in their module; and a file named as a library's module replaces none."""
    own(folder, 0)
    params = "from dataclasses import dataclass\n@dataclass(frozen=True)\nclass Params:\n    n: int = 1\n"
    text = (folder / "own.py").read_text()
    (folder / "random.py").write_text(f"from __future__ import annotations\n{params}{text}")
    (folder / "own.py").unlink()
    assert "1 cells finished" in srj("run", "random.py").stdout


@pytest.mark.parametrize("name", ["headline", "check", "plot", "details"])
def test_a_function_of_ones_own_that_exits_ends_nothing(folder: Path, name: str) -> None:
    """Cells go on, and what was measured is kept."""
    path = folder / own(folder, 0, 5)
    added = f"def leave(*_):\n    sys.exit(7)\n\nfrom dataclasses import replace\nEXPERIMENT = replace(EXPERIMENT, {name}=leave)\n"
    path.write_text(f"{path.read_text()}{added}")
    assert "2 cells finished" in srj("run", path.name).stdout
    srj("report", path.name)
    srj("plot", path.name, code=int(name == "plot"))


def test_figures_that_are_nested_too_deeply_are_a_failed_cell(folder: Path) -> None:
    path = folder / own(folder, 0, 1)
    deep = 'def deep():\n    figures = {}\n    for _ in range(700):\n        figures = {"in": figures}\n    return figures\n'
    path.write_text(path.read_text().replace('{"square": cell["n"] ** 2}', "deep()") + deep)
    assert "2 failed" in srj("run", path.name, code=1).stdout
    assert "nested less deeply" in lines(folder)[0]["error"]


def test_a_page_stays_as_it_was_where_writing_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a full disk, in the middle of it."""
    page, whole = tmp_path / "page.md", Path.write_bytes
    page.write_text("before")

    def half(path: Path, content: bytes) -> int:
        whole(path, content[:3])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", half)
    with pytest.raises(RequestError, match="No space left on device"):
        write(page, b"after it")
    assert page.read_text() == "before"
    assert list(tmp_path.iterdir()) == [page]


def test_two_pages_never_share_a_file_and_a_page_has_a_suffix(folder: Path) -> None:
    """Before anything is written."""
    srj("run", own(folder, 0))
    same = (["--markdown", "experiment-results/report.html"], ["--markdown", "R.md", "--readme", "./R.md"])
    for options in (*same, ["--markdown", "page"]):
        done = srj("report", "own.py", *options, code=2)
        assert done.stderr.startswith("srj: expected a ")
    assert sorted(path.name for path in folder.iterdir()) == ["experiment-results", "own.py"]
    assert [path.name for path in (folder / "experiment-results").iterdir()] == ["ledger.jsonl"]


def test_who_can_not_be_told_loses_no_measurement(folder: Path) -> None:
    own(folder, 0, 5)
    with Path("/dev/full").open("w") as full:
        subprocess.run([SRJ, "experiment", "run", "own.py"], stdout=full, stderr=subprocess.DEVNULL, check=False)
    assert [line["state"] for line in lines(folder)] == ["finished", "finished"]


def test_lost_cells_of_a_way_have_one_label() -> None:
    """However many there are; their gaps are all shown."""
    cells = load("fig_4_22").cells("small")
    lost = [replace(_record(), experiment="fig_4_22", cell=cell, state="failed", figures={}) for cell in cells]
    axes = Figure().subplots()
    load("fig_4_22").plot(lost, axes)
    labels = axes.get_legend_handles_labels()[1]
    assert labels == ["one by one: failed (8)", "srj, 30 keys: failed (14)", "srj, 1 key: failed (6)", "srj auto: failed (8)"]


def test_a_page_that_can_not_be_written_is_told_and_the_others_are_not_touched(folder: Path) -> None:
    """As one that would say nothing: without any result pages stay as they are."""
    page = folder / "experiment-results.md"
    page.write_text("before")
    (folder / "docs").mkdir()
    assert "expected results to report, found none" in srj("report", code=2).stderr
    srj("run", own(folder, 0))
    assert "found none of these in" in (told := srj("report", code=2).stderr)
    assert "but of own; name these, or the files that they are from" in told
    (folder / "latin").write_bytes(b"\xff")
    for options in (["--markdown", "docs"], ["--readme", "none.md"], ["--readme", "latin"], ["--markdown", "latin/x.md"]):
        done = srj("report", "own.py", *options, code=2)
        assert done.stderr.startswith("srj: expected ")
        assert done.stderr.count("\n") == 1
    assert page.read_text() == "before"
    assert not (folder / "experiment-results" / "report.html").exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("1 / 0", "expected a file that Python can import, got '/.*own.py': ZeroDivisionError: division by zero; correct it"),
        ("raise SystemExit(3)", "expected a file that Python can import, .* SystemExit: 3; correct it"),
        ("def (", "expected a file that Python can import, .* SyntaxError"),
        ("a/b", "expected a name of letters, digits, spaces, dots and hyphens in 'own.py', got 'a/b'; correct it"),
        ("cells=lambda scale: 1 / 0", "expected cells of the experiment in 'own.py' to work, got ZeroDivisionError"),
        ("cells=lambda scale: [5]", "expected cells of 'own.py' that are dicts as JSON knows them, got 5; correct it"),
        (
            "cells=lambda scale: [{'n': {1}}]",
            "expected cells of 'own.py' that are dicts as JSON knows them, got .'n': .1..; correct it",
        ),
        ("cells=lambda scale: [{'n': float('nan')}]", "expected cells of 'own.py' that are dicts as JSON knows them"),
        ("label=lambda cell: 1 / 0", "expected label of the experiment in 'own.py' to work, got ZeroDivisionError"),
        ("can_run=lambda cell: exit()", "expected can_run of the experiment in 'own.py' to work, got SystemExit"),
        ("timeouts={}", "expected a tuple of servers, of postgresql and mysql, and seconds for each scale in 'own.py'"),
    ],
)
def test_a_file_of_ones_own_that_is_wrong_is_told_in_one_sentence(folder: Path, content: str, message: str) -> None:
    path = folder / own(folder, 0)
    if content == "a/b":
        path.write_text(path.read_text().replace('"own"', '"a/b"'))
    elif content.partition("=")[0] in {"cells", "label", "can_run", "timeouts"}:
        path.write_text(f"{path.read_text()}\nimport dataclasses\nEXPERIMENT = dataclasses.replace(EXPERIMENT, {content})\n")
    else:
        path.write_text(content)
    done = srj("run", "own.py", code=2)
    assert done.stderr.count("\n") == 1
    with pytest.raises(RequestError, match=message):
        _used(load(str(path)))


def _used(experiment: Experiment) -> None:
    for cell in experiment.cells("small"):
        experiment.label(cell)
        experiment.can_run(cell)


def test_passwords_are_masked_however_they_are_spelled(monkeypatch: pytest.MonkeyPatch) -> None:
    """In figures too; a very short one only where it stands in a URL, for it is found in any word."""
    password = "pä/s\"s \\w'%ord+x"  # noqa: S105  made up
    monkeypatch.setenv("SRJ_SECRET", password)
    spellings: list[Callable[[str], str]] = [str, quote, quote_plus, lambda text: quote(text, safe=""), repr, ascii, json.dumps]
    spellings += [
        lambda text: json.dumps(text, ensure_ascii=False),
        lambda text: quote(text).lower(),
        lambda text: repr(repr(text)),
    ]
    for url in (f"mysql://u:{quote(password, safe='')}@h/d", "mysql://u:${SRJ_SECRET}@h/d"):
        for spelled in spellings:
            text = masked(f"before {spelled(password)} after", url)
            assert text.replace("\\", "").replace("'", "").replace('"', "") == "before *** after"
        assert masked({"a": [password, 1, {password: None}]}, url) == {"a": ["***", 1, {"***": None}]}
    assert masked("ab is no word: u:ab@h", "mysql://u:ab@h/d") == "ab is no word: u:***@h"
    assert printable(["a\nb\tc\xa0d", "\x1b\u202e\ud800", 1]) == ["a\nb\tc\xa0d", "\\x1b\\u202e\\ud800", 1]


def test_names_of_figures_stay_where_a_password_is_one_of_them() -> None:
    assert masked({"rate": "the rate"}, "mysql://u:rate@h/d", names=False) == {"rate": "the ***"}


def test_a_server_is_known_by_what_its_variable_stands_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another host is another server; without the variable the command is wrong."""
    servers = []
    for host in ("one", "two"):
        monkeypatch.setenv("DBHOST", host)
        servers.append(Servers("postgresql://u@${DBHOST}/d").identified("postgresql"))
    assert servers == ["postgresql at one:5432/d", "postgresql at two:5432/d"]
    monkeypatch.delenv("DBHOST")
    done = srj("run", "fig_4_15", "--postgres-url", "postgresql://u@${DBHOST}/d", "--output", os.devnull, code=2)
    assert "expected the environment variable DBHOST" in done.stderr


def test_two_traces_of_ones_own_are_told_apart(tmp_path: Path) -> None:
    cells = [fig_4_22.own(tmp_path / name, "page")[0] for name in ("a.csv", "b.csv")]
    assert [rate_cell.label(cell) for cell in cells] == [
        "one by one (10% cached, a.csv page)",
        "one by one (10% cached, b.csv page)",
    ]
    records: Any = [replace(_record(), cell=cell) for cell in cells]
    assert fig_4_22._names(records) == ["a.csv page", "b.csv page"]
    assert fig_4_22._of(records, "b.csv page", "both") == records[1:]


def test_a_trace_of_ones_own_that_is_a_folder_or_has_lists_is_told(tmp_path: Path) -> None:
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.parquet as pq  # noqa: PLC0415

    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(RequestError, match="which is a folder; name a file in it"):
        trace("file", path=tmp_path / "folder.csv", column="a")
    pq.write_table(pa.table({"a": [[1], [2]], "b": [{"x": 1}, {"x": 2}]}), tmp_path / "lists.parquet")
    for column in ("a", "b"):
        with pytest.raises(RequestError, match=f"expected keys of a plain type in column '{column}'"):
            trace("file", path=tmp_path / "lists.parquet", column=column)


def test_pictures_do_not_depend_on_the_users_settings() -> None:
    experiment = replace(load("fig_4_15"), plot=lambda _, axes: axes.plot([1]))
    before = plotted(experiment, [_record()])
    with mpl.rc_context({"axes.facecolor": "black", "font.size": 30}):
        assert plotted(experiment, [_record()]) == before
        assert mpl.rcParams["font.size"] == 30


def _record() -> Any:
    from srj.experiments.ledger import Record  # noqa: PLC0415

    return Record("", "fig_4_15", "small", {}, "", "failed", "", 1.0, {}, "E", {}, "M", "S")
