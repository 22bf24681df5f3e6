"""`srj experiment` from end to end: cells in processes, the ledger, resuming, time limits, failures, plots and the report."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from srj.errors import RequestError
from srj.experiments import fig_4_22
from srj.experiments import ledger as ledgers
from srj.experiments.experiment import NAMES, load
from srj.experiments.ledger import Ledger, Record, code_hash, key_of, versions
from srj.experiments.report import found, write_report
from srj.experiments.run_lock import alone_here
from tests.experiments.own import lines, own, srj

SRJ = Path(sys.executable).with_name("srj")


def test_each_end_of_a_cell_is_recorded_and_the_others_go_on(folder: Path) -> None:
    """Finished, an error, no end in time, another output than the plain join's, a process that dies."""
    done = srj("run", own(folder, 0, 1, 2, 3, 4, 5), "--scale", "smoke", "--timeout", "2.5", code=1)
    assert "2 cells finished, 3 failed, 1 took too long, 0 were finished before" in done.stdout
    states = {line["cell"]["n"]: (line["state"], line["error"]) for line in lines(folder)}
    assert [states[n][0] for n in range(6)] == ["finished", "failed", "timeout", "failed", "failed", "finished"]
    assert states[1][1] == "ValueError: one is no number"
    assert states[2][1].startswith("expected an end within 2.5 s, got none")
    assert states[3][1].startswith("expected the rows of a plain join, Checksum(rows=1, hashes=6), got")
    assert "ended with 1: gone" in states[4][1]
    finished = lines(folder)[-1]
    assert finished["figures"] == {"square": 25, "output_rows": 2, "checksum": "0000000000000005"}
    assert finished["versions"]["python"]
    assert finished["code"] == code_hash()
    assert finished["seconds"] > 0


def test_a_run_resumes_where_it_stopped(folder: Path) -> None:
    """Finished cells are not run again, but for --fresh; what failed is, and so is all when the experiment's code changes."""
    path = folder / "own.py"
    assert "2 cells finished, 0 failed" in srj("run", own(folder, 0, 5)).stdout
    ledger = folder / "experiment-results" / "ledger.jsonl"
    whole = ledger.read_text()
    ledger.write_text(whole[: whole.index("\n") + 30])  # stopped while it wrote the second
    assert "1 cells finished, 0 failed, 0 took too long, 1 were finished before" in srj("run", path.name).stdout
    assert len(list(Ledger(ledger).records())) == 2
    assert "2 cells finished" in srj("run", path.name, "--fresh").stdout
    path.write_text(path.read_text() + "# changed\n")
    assert "2 cells finished" in srj("run", path.name).stdout


def test_the_report_and_the_plot_show_what_the_ledger_holds(folder: Path) -> None:
    """Failed cells with their reason; one page with all in it."""
    name = own(folder, 1, 3, 5)
    srj("run", name, code=1)
    srj("report", name, "--markdown", "out/page.md")
    markdown = (folder / "out" / "page.md").read_text()
    assert "| squares \\| grow | agrees | 1 cells |" in markdown
    assert "| squares \\| grow | agrees |\n" in markdown.partition("\n## ")[0]  # the overview
    assert "failed: ValueError: one is no number" in markdown
    assert "(page/own.png)" in markdown
    picture = (folder / "out" / "page" / "own.png").read_bytes()
    page = (folder / "experiment-results" / "report.html").read_text()
    assert page.count("data:image/png;base64,") == 1
    assert "http" not in page
    srj("plot", name)
    assert (folder / "experiment-results" / "own.png").read_bytes() == picture
    own(folder, 1, 5, 6)  # a cell less, and one that has not run
    srj("report", name, "--markdown", "out/page.md")
    markdown = (folder / "out" / "page.md").read_text()
    assert "| they do. | open | 1 cells have not run; run: srj experiment run own.py |" in markdown
    assert "plain join, Checksum" not in markdown


def test_the_code_of_a_figure_is_all_that_is_measured_and_that_measures() -> None:
    """Not other figures, nor what only shows results; so is what packages there are."""
    places = list(ledgers._sources())
    for place in ("sizing/split", "operators/worker", "cache_policies/lru", "enrich", "options", "session", "stream_columns"):
        assert f"srj/{place}.py" in places
    assert {"srj/lookup/engine.py", "srj/experiments/rate_cell.py", "srj/experiments/traces/tpch.py"} <= set(places)
    assert not [place for place in places if "/fig_" in place or place in {"srj/cli.py", "srj/experiments/report.py"}]
    files = list(ledgers._sources().values())
    assert len(set(files)) == len(files)
    assert {"pyspark", "pandas", "numba"} <= set(versions())


def test_the_code_is_the_same_wherever_its_folders_stand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the repository they are folders apart, installed they are within srj; another content is other code."""

    def hashed(content: str, **folders: str) -> str:
        for package, folder in folders.items():
            (tmp_path / folder).mkdir(parents=True)
            (tmp_path / folder / "module.py").write_text(f"{package} {content}")

        def spec_of(name: str) -> Any:
            return SimpleNamespace(submodule_search_locations=[str(tmp_path / folders[name.rpartition(".")[2]])])

        monkeypatch.setattr(ledgers, "find_spec", spec_of)
        return code_hash.__wrapped__()

    parts = ("operators", "cache_policies", "experiments")
    apart = hashed("1", srj="a/srj", **{part: f"a/{part}" for part in parts})
    assert hashed("1", srj="b/srj", **{part: f"b/srj/{part}" for part in parts}) == apart
    assert hashed("2", srj="c/srj", **{part: f"c/{part}" for part in parts}) != apart


def test_another_content_of_ones_own_trace_is_another_cell(tmp_path: Path) -> None:
    path = tmp_path / "own.csv"
    path.write_text("page\n1\n2\n")
    cell = fig_4_22.own(path, "page")[0]
    key = key_of("fig_4_22", cell, "S")
    assert key_of("fig_4_22", cell, "S") == key
    path.write_text("page\n1\n3\n")
    assert key_of("fig_4_22", cell, "S") != key
    path.unlink()
    assert key_of("fig_4_22", cell, "S") != key  # the cell says what is wrong


def test_results_of_the_present_code_count_before_later_ones_and_a_mixture_is_told(tmp_path: Path) -> None:
    """Else the last counts, a failed one too; the report names each machine, server and set of versions."""
    experiment = replace(load("fig_4_15"), plot=lambda _, axes: axes.plot([1]))
    first, second, third, *_ = experiment.cells("smoke")
    ledger = Ledger(tmp_path / "ledger.jsonl")

    def ran(cell: Any, state: Any, of_code: str, machine: str = "M", server: str = "S", **packages: str) -> Record:
        figures = {"rate": 1.0, "hit_ratio": 0.5, "keys_per_lookup": 1.0} if state == "finished" else {}
        record = Record("", "fig_4_15", "smoke", cell, "", state, "2026", 1.0, figures, "E", packages, machine, server, of_code)
        ledger.append(record)
        return record

    ran(first, "finished", code_hash())
    ours = ran(first, "failed", code_hash(), "M1", "S1", numpy="1")
    ran(first, "finished", "older")
    ran(second, "finished", "older")
    other = ran(second, "failed", "old", "M2", "S2", numpy="2")
    assert ledger.latest(experiment) == [ours, other]
    old = asdict(ran(third, "finished", ""))
    del old["code"]
    with ledger.path.open("a") as file:
        file.write(json.dumps(old | {"machine": "M3"}) + "\n")
    assert [record.machine for record in ledger.latest(experiment)] == ["M1", "M2", "M3"]
    pages = tmp_path / "page.html", tmp_path / "page.md"
    write_report([experiment], ledger, None, *pages)
    earlier = "of an earlier state of the code"
    for text in (page.read_text() for page in pages):
        for told in ("M1; numpy 1", "M2; numpy 2", "S1, S2, S", f"2 of the cells are {earlier}, and not all of the same"):
            assert told in text
    ledger.path.unlink()
    ran(first, "finished", "one")
    ran(second, "finished", "one")
    write_report([experiment], ledger, None, *pages)
    assert f"- 2 of the cells are {earlier}\n" in pages[1].read_text()
    ledger.path.unlink()
    ran(first, "finished", code_hash())
    write_report([experiment], ledger, None, *pages)
    assert earlier not in pages[1].read_text()


def test_the_report_says_the_scale_once_and_shows_a_discussion_only_where_there_is_one(tmp_path: Path) -> None:
    experiment = replace(load("fig_4_15"), plot=lambda _, axes: axes.plot([1]), discussion="")
    ledger = Ledger(tmp_path / "ledger.jsonl")
    cell = experiment.cells("small")[0]
    ledger.append(Record("", "fig_4_15", "small", cell, "", "failed", "", 1.0, {}, "E", {}, "M", "S"))
    pages = tmp_path / "page.html", tmp_path / "page.md"
    write_report([experiment], ledger, None, *pages)
    assert "- scale small; 1 cells, 1 s\n" in pages[1].read_text()
    assert "<p></p>" not in pages[0].read_text()
    write_report([replace(experiment, discussion="For a reason.")], ledger, None, *pages)
    assert "<p>For a reason.</p>" in pages[0].read_text()


def test_nothing_is_judged_at_the_smallest_scale() -> None:
    """Its cells try the program; the reasons are shown all the same."""
    experiment = load("fig_4_15")

    def verdicts(scale: Any) -> list[tuple[str, str]]:
        figures = {"rate": 1.0, "hit_ratio": 0.5, "keys_per_lookup": 1.0}
        cells = experiment.cells(scale)
        records = [Record("", "fig_4_15", scale, cell, "", "finished", "", 1.0, figures, "", {}, "M", "S") for cell in cells]
        return [(one.verdict, one.why) for one in found(experiment, records)]

    (verdict, why), _ = verdicts("smoke")
    assert verdict == "open"
    assert why.startswith("not judged at scale smoke; 1 rows/s with 2 keys")
    assert {verdict for verdict, _ in verdicts("small")} == {"differs"}


def test_another_run_on_the_machine_is_told(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has servers of its own, and so neither waits for the other; one that has nothing to do disturbs nobody."""
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr("tempfile.tempdir", None)
    name = own(folder, 0)
    with alone_here() as is_alone:
        assert is_alone
        assert "another run is measuring on this machine" in srj("run", name).stdout
        assert "another run" not in srj("run", name).stdout
    assert "another run" not in srj("run", name, "--fresh").stdout


def test_the_page_stands_beside_the_output_folder_with_its_name(folder: Path) -> None:
    """So a run elsewhere leaves docs/experiments.md as it is."""
    name = own(folder, 0)
    for output in ("docs/experiments", "there"):
        srj("run", name, "-o", output)
        assert f"{output}.md" in srj("report", name, "-o", output).stdout
        assert f"({Path(output).name}/own.png)" in (folder / f"{output}.md").read_text()


def test_cells_that_can_not_run_here_are_not_missed() -> None:
    """But for those, what has not run is."""
    experiment = load("fig_4_15")
    cells = experiment.cells("small")
    one = Record("", "fig_4_15", "small", cells[0], "", "failed", "", 1.0, {}, "E", {}, "M", "S")
    assert found(experiment, [one])[0].why.startswith(f"{len(cells) - 1} cells have not run")
    able = replace(experiment, can_run=lambda cell: cell in cells[:3])
    assert found(able, [one])[0].why.startswith("2 cells have not run")
    assert "have not run" not in found(replace(experiment, can_run=lambda _: False), [one])[0].why


@pytest.mark.parametrize("name", NAMES)
def test_every_experiment_has_cells_at_each_scale_and_knows_when_they_are_missing(name: str) -> None:
    """No cell twice; without results nothing is claimed."""
    experiment = load(name)
    assert experiment.name == name
    sizes = []
    for scale in ("smoke", "small", "paper"):
        cells = [json.dumps(cell, sort_keys=True) for cell in experiment.cells(scale)]  # type: ignore[arg-type]
        assert len(cells) == len(set(cells)) > 0
        sizes.append(len(cells))
    most = {"peers": 10, "fig_4_20": 8}  # each of its ways once; four ways at the two sizes between which they cross
    assert sizes[0] <= most.get(name, 6)
    assert {finding.verdict for finding in experiment.check([])} == {"open"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run"], "expected names of experiments, or --all, and not both"),
        (["run", "fig_4_51"], "expected an experiment's name or a Python file, got 'fig_4_51'; did you mean 'fig_4_"),
        (["run", "none.py"], "which is none; correct the path"),
        (["run", "fig_4_15", "--postgres-url", "mysql://u@h/d"], "expected a URL that begins with postgresql://, got one of mysql"),
    ],
)
@pytest.mark.usefixtures("folder")
def test_a_wrong_command_is_told_in_one_sentence(arguments: list[str], message: str) -> None:
    done = srj(*arguments, code=2)
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


def test_without_matplotlib_the_command_says_what_to_install(tmp_path: Path) -> None:
    """And does all that needs none."""
    (tmp_path / "matplotlib.py").write_text("raise ModuleNotFoundError(\"No module named 'matplotlib'\", name='matplotlib')\n")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])}
    for command, code in (("list", 0), ("report", 2)):
        done = subprocess.run(
            [SRJ, "experiment", command], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == code, done.stderr
    assert done.stderr == (
        "srj: expected the package matplotlib, which is not installed; install srj with its extra, as by "
        "pip install '.[experiments]'\n"
    )


def test_a_file_without_an_experiment_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "empty.py"
    path.write_text("")
    with pytest.raises(RequestError, match="expected an Experiment assigned to EXPERIMENT"):
        load(str(path))
