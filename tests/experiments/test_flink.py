"""Flink's lookup join: requests, SQL, sentences and figures, and what its environment needs; none needs Flink."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from srj.errors import RequestError
from srj.experiments import flink_environment, flink_job
from srj.experiments.flink_job import JobError, Request, _check_sampled, figures, jdbc_url, parse, sentence, statements
from srj.experiments.flink_peer import without_warm

REQUEST = {"url": "postgresql://reader:s%2Fecret@db:6000/shop", "table": "it'ems", "key": "id", "keys": "keys.parquet"}
JOB = Path(flink_job.__file__)


@pytest.mark.parametrize(
    ("url", "jdbc", "login"),
    [
        ("postgresql://u:p@h/d", "jdbc:postgresql://h:5432/d", ("u", "p")),
        ("postgres://h:1/d?sslmode=require", "jdbc:postgresql://h:1/d?sslmode=require", (None, None)),
        ("mariadb://u@[::1]/d", "jdbc:mysql://[::1]:3306/d", ("u", None)),
        ("mysql://u%40x:a%2Fb%3A@h/d", "jdbc:mysql://h:3306/d", ("u@x", "a/b:")),
    ],
)
def test_a_url_becomes_jdbcs_without_its_login(url: str, jdbc: str, login: tuple[str | None, str | None]) -> None:
    assert jdbc_url(url) == (jdbc, *login)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"url": "oracle://u:secret@h/d"}, "expected a URL of the form"),
        ({"url": "postgresql://u:p@h:secret/d"}, "got one that can't be read"),
        ({"url": "postgresql://u:secret@h"}, "without a database"),
        ({"url": "postgresql://u:secret@/d"}, "without a host"),
        ({"url": ["postgresql://u:secret@h/d"]}, "a text for url, got one of type list"),
        ({"table": ""}, "a text for table, got nothing"),
        ({"warm": -1}, "a whole number from 0 for warm, got -1"),
        ({"cache_rows": True}, "for cache_rows, got True"),
        ({"parallelism": 0}, "from 1 for parallelism, got 0"),
        ({"output": 3}, "a path or null for output"),
        ({"columns": {"price": "DECIMAL"}}, "BIGINT, INT, DOUBLE or STRING"),
    ],
)
def test_a_request_that_cannot_be_right_is_told_without_secrets(change: dict[str, object], told: str) -> None:
    with pytest.raises(JobError, match=told) as caught:
        parse(REQUEST | change)
    assert "secret" not in f"{caught.value}"


def test_the_lookup_has_the_cache_that_was_asked_for() -> None:
    """And texts from the request are quoted; no cache is Flink's default."""
    assert "secret" not in f"{parse(REQUEST)!r}"
    without = statements(parse(REQUEST | {"output": "o"}), "file:///keys", "file:///out", 100)
    cached = statements(parse(REQUEST | {"output": "o", "cache_rows": 500}), "file:///keys", "file:///out", 100)
    assert "lookup.cache" not in without[1]
    assert "'lookup.cache' = 'PARTIAL', 'lookup.partial-cache.max-rows' = '500'" in cached[1]
    assert "'table-name' = 'it''ems', 'username' = 'reader', 'password' = 's/ecret'" in cached[1]
    assert "secret" not in "".join([*cached[:1], *cached[2:]])


def test_without_output_each_subtasks_first_and_last_measured_rows_are_written() -> None:
    """They give the time; rows in between are joined and thrown away."""
    every = statements(parse(REQUEST | {"output": "o", "warm": 10}), "k", "o", 100)[-1]
    some = statements(parse(REQUEST | {"warm": 10, "parallelism": 3}), "k", "o", 100)[-1]
    assert "WHERE" not in every
    assert some.endswith("WHERE MOD(k.n, 61) = 0 OR k.n >= 97 OR k.n BETWEEN 10 AND 12 OR d.`id` IS NULL")


def test_javas_chain_of_causes_becomes_its_last() -> None:
    error = RuntimeError(
        "An error occurred while calling o1.await.\n: java.util.Failed: s/ecret\n\tat a.b(C.java:1)\n\t... 3 more\n"
        "Caused by: a.B: first\n\tat a.b(C.java:1)\nCaused by: c.D: no relation\n  Position: 15 s/ecret s%2Fecret\n\tat x.y(Z)\n"
    )
    assert sentence(error, "s/ecret") == "expected Flink to join the rows, got: c.D: no relation Position: 15 *** ***"
    assert sentence(JobError("expected this, got that"), None) == "expected this, got that"
    assert sentence(ValueError(), "") == "expected Flink to join the rows, got: ValueError"


def test_with_bursts_the_first_rows_of_each_are_written_too() -> None:
    """From them the delays of the others count."""
    bursts = statements(parse(REQUEST | {"warm": 10, "burst": 20}), "k", "o", 100)[-1]
    assert "OR k.n BETWEEN 10 AND 11 OR (k.n > 10 AND MOD(k.n - 10, 20) < 2) OR d.`id` IS NULL" in bursts


def _request(**more: object) -> Request:
    return parse(REQUEST | {"output": "joined.parquet"} | more)


def _stamped(read: list[int], joined: list[int]) -> pa.Table:
    times = {"read_at": pa.array(read, pa.time32("ms")), "joined_at": pa.array(joined, pa.time32("ms"))}
    return pa.table({"n": pa.array(range(len(read)), pa.int64()), **times})


def test_the_measured_part_begins_when_its_first_row_is_read() -> None:
    """The warm rows' time is not in it, nor their delays."""
    stamped = _stamped([1000, 5000, 5010, 5020], [4990, 5010, 5020, 5500])
    assert figures(stamped, 4, _request(warm=1), 900) == {"rows": 3, "seconds": 0.5, "delays_ms": {"p50": 10, "p99": 480}}


def test_delays_that_the_clock_cannot_tell_are_not_told() -> None:
    told = figures(_stamped([0, 1, 2], [1, 2, 2]), 3, _request(), 0)
    assert told["delays_ms"] is None
    assert "whole milliseconds" in told["delays_why"]


def test_a_row_of_a_burst_waits_from_when_its_subtask_began_with_the_burst() -> None:
    """Two bursts of four rows after a warm one, two for each of two subtasks, of which one is half a second behind."""
    read = [0, 100, 600, 110, 610, 120, 620, 150, 650]
    stamped = _stamped(read, [stamp + 10 for stamp in read])
    # In the first 10 and 20 of either subtask, in the second 10 and 40; taken as one 10, 20, 30 and 60.
    told = figures(stamped, 9, _request(warm=1, burst=4), 0)["delays_ms"]
    assert told == {"p50": 20, "p99": 40}
    assert figures(stamped, 9, _request(warm=1, burst=8), 0)["delays_ms"] == {"p50": 30, "p99": 60}


def test_delays_of_bursts_are_of_the_sampled_rows() -> None:
    """The first of each burst, which all are written and hardly wait, would make them look shorter."""
    numbers = [0, 1, 61, 100, 101, 122]  # 0 and 1, 100 and 101 begin their bursts
    stamped = _stamped([0] * 6, [1, 1, 70, 1, 1, 90]).set_column(0, "n", pa.array(numbers, pa.int64()))
    told = figures(stamped, 200, _request(output=None, burst=100), 0)["delays_ms"]
    assert told == {"p50": 70, "p99": 90}


def test_a_timed_row_that_is_lost_or_doubled_is_told() -> None:
    _check_sampled([122, 0, 5, 61], 123)
    for written in ([0, 122], [0, 61, 61, 122], [0, 61, 183]):
        with pytest.raises(JobError, match="expected each of 3 sampled rows once, got"):
            _check_sampled(written, 123)


def test_a_job_may_run_over_midnight() -> None:
    day = 86_400_000
    stamped = _stamped([day - 30, day - 10, 5], [day - 10, 5, 40])
    assert figures(stamped, 3, _request(), day - 1000) == {"rows": 3, "seconds": 0.07, "delays_ms": {"p50": 20, "p99": 35}}


def test_the_script_stands_alone_and_answers_one_line(tmp_path: Path) -> None:
    """Without srj, and with an answer too where it can't join: here for want of Flink, or of enough keys."""
    keys = tmp_path / "keys.parquet"
    pq.write_table(pa.table({"id": pa.array([1], pa.int64())}), keys)
    request = json.dumps(REQUEST | {"keys": str(keys)})
    ended = subprocess.run([sys.executable, "-P", JOB], input=request, capture_output=True, text=True, timeout=60, check=True)
    (line,) = ended.stdout.splitlines()
    assert json.loads(line)["error"].startswith(("expected the package pyflink", "expected more than 0 keys"))
    assert "secret" not in ended.stdout + ended.stderr


def test_what_is_missing_for_the_environment_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Java, a Python that Flink was built for; and a folder with other files is left as it is."""
    with pytest.raises(RequestError, match="expected Java 11 or later on PATH or in JAVA_HOME, found none"):
        flink_environment.check_java({"PATH": str(tmp_path)})
    with pytest.raises(RequestError, match=r"expected Python 3\.11 or 3\.12 .* got none that has the modules"):
        flink_environment.check_python(str(tmp_path / "python"))
    (tmp_path / "letter").touch()
    assert flink_environment.main(["--folder", str(tmp_path)]) == 1
    assert "which holds other files" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["letter"]


def test_an_old_java_is_refused(tmp_path: Path) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"1.8.0_292\"' >&2\n")
    java.chmod(0o755)
    with pytest.raises(RequestError, match="expected Java 11 or later, got 8"):
        flink_environment.check_java({"JAVA_HOME": str(tmp_path)})


def test_an_environment_that_is_there_is_not_made_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And the variable to set is told."""
    (tmp_path / f"made-{flink_environment.FLINK}").touch()
    assert flink_environment.main(["--folder", str(tmp_path)]) == 0
    assert f"export SRJ_FLINK_PYTHON={tmp_path}/bin/python" in capsys.readouterr().out


def test_help_needs_no_request(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO())
    flink_job.main(["--help"])
    assert "JSON on standard input" in capsys.readouterr().out


def test_what_the_warm_rows_cost_is_taken_off() -> None:
    """Counts before the timed job, after it, and after one of the warm rows alone; some servers count nothing."""
    assert without_warm([100, 150, 162]) == 38
    assert without_warm([0.5, 2.0, 2.25]) == 1.25
    assert without_warm([None, None, None]) is None
