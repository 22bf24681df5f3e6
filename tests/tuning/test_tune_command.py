"""`srj tune` as a user runs it, and what it writes."""

from __future__ import annotations

import base64
import json
import re
import socket
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from srj import tuning
from srj.cli import app
from srj.options import Cache, parse_options
from srj.tuning import KeySequence, Prices
from srj.tuning.report import ranked, size
from tests.sizing.traces import zipf

if TYPE_CHECKING:
    from pathlib import Path

    from click.testing import Result

    from tests import servers

REFERENCES = 4_000
PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Parquet file with the keys of a Zipf trace."""
    path = tmp_path_factory.mktemp("trace") / "orders.parquet"
    pq.write_table(pa.table({"id": zipf(REFERENCES, 800, 0.9, 1)}), path)
    return path


def tune(*arguments: object, code: int = 0) -> Result:
    """Run the command and hold it to an exit code."""
    done = CliRunner().invoke(app, ["tune", *map(str, arguments)])
    assert done.exit_code == code, done.output
    return done


def test_all_that_it_writes(trace: Path, tmp_path: Path) -> None:
    """The settings are those that `config=` loads; the page needs nothing beside it; the pictures are pictures."""
    toml, plot, html = tmp_path / "srj.toml", tmp_path / "curves.png", tmp_path / "page.html"
    shown = tune(
        trace, "-k", "id", "--memory", "120 rows", "--update-period", "2 h", "-o", toml, "--plot", plot, "--html", html
    ).stdout
    lookup = parse_options({"config": toml}).lookup
    assert isinstance(lookup.cache, Cache)
    assert lookup.cache.size == "120 rows"
    assert lookup.cache.policy in shown
    assert (lookup.ttl, lookup.batch.size) == (7200.0, "auto")
    for text in ("4,000 references", "120 rows", "at most one renewal behind", "wtinylfu *", "in full", str(toml)):
        assert text in shown
    assert plot.read_bytes().startswith(PNG)
    page = html.read_text()
    HTMLParser().feed(page)
    sources = re.findall(r'(?:src|href)="([^"]*)"', page)
    assert len(sources) == 1
    assert base64.b64decode(sources[0].removeprefix("data:image/png;base64,"), validate=True).startswith(PNG)
    assert 'policy = "' in page.replace("&quot;", '"')
    assert "<th>cost in s</th>" in page


@pytest.mark.parametrize(
    ("period", "seconds"), [("12 d", 1_036_800.0), ("30 d", 2_592_000.0), ("50 us", 5e-5), ("1234567.25 s", 1_234_567.25)]
)
def test_config_takes_any_period_that_tune_takes(trace: Path, tmp_path: Path, period: str, seconds: float) -> None:
    """A number with an exponent, as 1.0368e+06, is none that it reads."""
    tune(trace, "-k", "id", "--quick", "--update-period", period, "-o", tmp_path / "srj.toml")
    assert parse_options({"config": tmp_path / "srj.toml"}).lookup.ttl == pytest.approx(seconds, rel=1e-12)


def test_a_size_in_rows_is_of_as_many_as_the_keys_have() -> None:
    """A trace counts keys; three rows each, of 1,000 keys at most."""
    keys = KeySequence.from_chunks([[pa.array(np.arange(20_000) % 800)]])
    found = tuning.tune(keys, Prices(memory="3_000 rows", rows_per_key=3.0))
    assert found.best.rows <= 1_000
    assert size(found) == f"{3 * found.best.rows:_} rows"
    for memory, rows_per_key in (("10 rows", 50.0), ("1 rows", 1.0)):
        assert size(tuning.tune(keys, Prices(memory=memory, rows_per_key=rows_per_key), curves=False)) == memory


@pytest.mark.parametrize(("key", "sentence"), [(["k", "k"], "each column of the key once"), (["k\nv"], "names of columns")])
def test_a_key_that_is_none_is_one_sentence(tmp_path: Path, key: list[str], sentence: str) -> None:
    trace = tmp_path / "odd.csv"
    trace.write_text("k,v\na,1\n")
    for names in (key, [",".join(key)]):
        done = CliRunner().invoke(app, ["tune", str(trace), *(part for name in names for part in ("-k", name))])
        assert (done.exit_code, done.output.count("\n")) == (1, 1)
        assert sentence in done.output


def test_a_plot_may_be_svg(trace: Path, tmp_path: Path) -> None:
    tune(trace, "-k", "id", "--quick", "-o", tmp_path / "srj.toml", "--plot", tmp_path / "curves.svg")
    assert "<svg " in (tmp_path / "curves.svg").read_text()


def test_as_json_with_a_price_of_memory(trace: Path, tmp_path: Path) -> None:
    """All figures, and nothing but JSON on standard output; a memory limit in bytes is written as it was given."""
    toml = tmp_path / "new folder" / "srj.toml"
    done = tune(trace, "-k", "id", "--quick", "--json", "--memory", "20 kB", "--miss-cost", 0.002, "-o", toml)
    found: dict[str, Any] = json.loads(done.stdout)
    assert (found["references"], found["best"]["rows"]) == (REFERENCES, 200)
    assert [curve["policy"] for curve in found["curves"]] == ["lru"]
    assert 200 in found["sizes"]
    assert found["best"]["cost"] == pytest.approx(0.002 * found["best"]["misses"])
    assert {"clock", "lfu", "sieve"} <= {trial["policy"] for trial in found["trials"] if trial["full"]}
    assert 'size = "20 kB"' in toml.read_text()
    dear = json.loads(tune(trace, "-k", "id", "--quick", "--json", "--memory-cost", 50_000, "-o", toml).stdout)
    assert dear["best"]["rows"] < 800
    assert parse_options({"config": toml}).lookup.cache.size == f"{dear['best']['rows']:_} rows"  # type: ignore[union-attr]


def test_simulations_are_listed_once_those_in_full_first() -> None:
    """Each by its cost."""
    found = tuning.tune(KeySequence.of(zipf(60_000, 6_000, 1.0, 3)), Prices(memory="3_000 rows", memory_cost=3_000.0), curves=False)
    listed, full = ranked(found), [(trial.policy, trial.rows) for trial in found.trials if trial.full]
    assert len(set(full)) == len(full)
    assert set(listed) == set(found.trials)
    keys = [(not trial.full, found.prices.cost(trial.misses, trial.rows)) for trial in listed]
    assert keys == sorted(keys)


def test_prices_are_measured_and_the_trace_may_be_a_table(postgres: servers.Server, tmp_path: Path) -> None:
    """The batch's bounds follow from the lookups' cost; no password is shown."""
    postgres.execute(
        "CREATE TABLE tuned (id int PRIMARY KEY, name text); "
        "INSERT INTO tuned SELECT i, 'name ' || i FROM generate_series(1, 3000) i; "
        "CREATE TABLE tuned_orders AS SELECT i AS n, (i * 7) % 500 AS product FROM generate_series(1, 3000) i; ANALYZE"
    )
    toml, html = tmp_path / "srj.toml", tmp_path / "page.html"
    arguments = ("-k", "product", "--order-by", "n", "--quick", "-o", toml, "--url", f"{postgres.url}#tuned", "--table-key", "id")
    try:
        shown = tune(f"{postgres.url}#tuned_orders", *arguments, "--html", html).stdout
        as_json = tune(f"{postgres.url}#tuned_orders", *arguments, "--json").stdout
        none = tune(f"{postgres.url}#tuned_orders", *arguments, "--where", "n < 0", code=1).stderr
    finally:
        postgres.execute("DROP TABLE tuned, tuned_orders")
    assert re.search(r"a missed key measured at the table with [\d,]+ asked together", shown)
    assert "got none in 0 rows; correct the condition" in none
    assert "product of tuned_orders: 3,000 references to 500 keys" in shown
    assert postgres.password not in shown + toml.read_text() + html.read_text() + as_json
    lookup = parse_options({"config": toml}).lookup
    assert isinstance(lookup.batch.size, tuple)
    assert lookup.batch.size[0] < lookup.batch.size[1]
    assert lookup.cache.size == "750 rows"  # type: ignore[union-attr]  # so few keys need 1.5 times their room


def test_what_goes_wrong_at_a_server_is_one_sentence_without_the_password(postgres: servers.Server, tmp_path: Path) -> None:
    """No such table, a login that the server refuses, and nobody who listens; as a trace and as the table to measure."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        dead = postgres.url.replace(f":{postgres.port}/", f":{free.getsockname()[1]}/")
    secret = "hunter2&more"  # noqa: S105  of nobody
    refused = postgres.url_for(user="nobody", password="hunter2%26more")
    trace = tmp_path / "orders.csv"
    trace.write_text("id\n1\n")
    for url in (f"{postgres.url}#no_such", f"{refused}#orders", f"{dead}#orders"):
        for arguments in ([url], [trace, "--url", url]):
            done = tune(*arguments, "-k", "id", "--quick", "--timeout", 2, "-o", tmp_path / "srj.toml", code=1)
            assert re.fullmatch(r"srj: [^\n]+\n", done.stderr), done.stderr
            for hidden in (postgres.password, secret, "hunter2%26more"):
                assert hidden not in done.output


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["-k", "idd"], "did you mean 'id'?"),
        (["-k", "id", "--memory", "much"], "'much'"),
        (["-k", "id", "--row-bytes", "0"], "row_bytes"),
        (["-k", "id", "--update-period", "soon"], "'soon'"),
        (["-k", "id", "--order-by", "id"], "only for a table"),
        (["-k", "id", "--memory-cost", "inf"], "memory_cost as a number of at most 1e+15"),
        (["-k", "id", "--row-bytes", "inf"], "row_bytes as a number of at most 1e+15"),
        (["-k", "id", "--plot", "curves.pdf"], "'curves.pdf'; give it another name"),
        (["-k", "id", "--memory", "1 b"], "memory for at least 16 keys of 100 bytes, got '1 b'"),
        (["-k", "id", "--memory", "1000"], "got 1000"),
        (["-k", "id", "--table-key", "key"], "--table-key only with --url"),
        (["-k", "id", "--memory", "1 GB", "--row-bytes", "1e10"], "memory for at least 16 keys of 1e+10 bytes"),
        (["-k", "id", "--row-bytes", "1e308"], "row_bytes as a number of at most 1e+15"),
        (["-k", "id", "--html", "/proc/page.html"], "expected a file that can be written, got '/proc/page.html'"),
        (["-k", "id", "--plot", "/dev/null/x.svg"], "expected a file that can be written, got"),
    ],
)
def test_mistakes_are_one_sentence(trace: Path, tmp_path: Path, arguments: list[str], expected: str) -> None:
    """On standard error, and nothing is written."""
    done = tune(trace, *arguments, "-o", tmp_path / "srj.toml", code=1)
    assert done.stdout == ""
    assert expected in done.stderr
    assert done.stderr.startswith("srj: expected ")
    assert not (tmp_path / "srj.toml").exists()


def test_a_trace_of_an_impossible_name_is_one_sentence() -> None:
    assert "a trace's name without NUL" in tune("orders\0.csv", "-k", "id", code=1).stderr


def test_a_field_may_have_megabytes_and_what_is_longer_is_refused(tmp_path: Path) -> None:
    """In a CSV file: 3 MB are read, 9 MiB are one sentence of srj's own."""
    csv = tmp_path / "long.csv"
    csv.write_text("id\n" + "x" * 3_000_000 + "\n1\n1\n")
    assert json.loads(tune(csv, "-k", "id", "--quick", "--json", "-o", tmp_path / "srj.toml").stdout)["distinct"] == 2
    csv.write_text("id\n" + "x" * (9 << 20) + "\n1\n1\n")
    assert "a row is longer than 4 MiB; convert it" in tune(csv, "-k", "id", "--quick", "-o", tmp_path / "srj.toml", code=1).stderr


def test_memory_with_odd_blanks_is_written_as_toml_takes_it(trace: Path, tmp_path: Path) -> None:
    toml = tmp_path / "srj.toml"
    tune(trace, "-k", "id", "--quick", "--memory", "3\x0b kB", "-o", toml)
    lookup = parse_options({"config": toml}).lookup
    assert isinstance(lookup.cache, Cache)
    assert lookup.cache.size == "3 kB"


def test_memory_may_be_a_number_of_bytes(trace: Path, tmp_path: Path) -> None:
    shown = tune(trace, "-k", "id", "--quick", "--memory", "5000", "-o", tmp_path / "srj.toml").stdout
    assert "memory at most 5 kB" in shown
    assert 'size = "5000 b"' in (tmp_path / "srj.toml").read_text()


def test_of_fewer_rows_than_are_simulated_the_reason_says_so(trace: Path, tmp_path: Path) -> None:
    """The size keeps to the limit."""
    found = json.loads(tune(trace, "-k", "id", "--quick", "--memory", "3 rows", "--json", "-o", tmp_path / "srj.toml").stdout)
    assert "16 rows, the fewest that are simulated" in found["best"]["reason"]
    assert 'size = "3 rows"' in (tmp_path / "srj.toml").read_text()


def test_no_file_replaces_the_trace_or_another(trace: Path, tmp_path: Path) -> None:
    before = trace.read_bytes()
    toml, svg = tmp_path / "srj.toml", tmp_path / "curves.svg"
    for arguments in (["--html", trace], ["--html", toml], ["--plot", svg, "--html", tmp_path / "." / "curves.svg"]):
        done = tune(trace, "-k", "id", "--quick", "-o", toml, *arguments, code=1)
        assert re.fullmatch(r"srj: expected another file for --html than [^\n]*; choose another\n", done.stderr)
    assert trace.read_bytes() == before
    assert not list(tmp_path.iterdir())


def test_a_file_that_somebody_wrote_is_not_replaced(trace: Path, tmp_path: Path) -> None:
    """One of the tuner's own is."""
    toml = tmp_path / "srj.toml"
    toml.write_text('how = "inner"\n')
    done = tune(trace, "-k", "id", "--quick", "-o", toml, code=1)
    assert "or one by srj tune" in done.stderr
    assert toml.read_text() == 'how = "inner"\n'
    toml.unlink()
    for limit in (50, 60):
        tune(trace, "-k", "id", "--quick", "--memory", f"{limit} rows", "-o", toml)
    assert 'size = "60 rows"' in toml.read_text()


def test_no_page_of_somebody_else_is_replaced_and_no_device_is_read(trace: Path, tmp_path: Path) -> None:
    """Before anything is read: /dev/full never ends."""
    mine, toml, picture = tmp_path / "mine.html", tmp_path / "srj.toml", tmp_path / "mine.png"
    mine.write_text("my own")
    picture.write_bytes(PNG + b"a photo")
    for arguments in (["--html", mine], ["--plot", picture], ["-o", "/dev/full"], ["-o", tmp_path]):
        given = [*(() if "-o" in arguments else ("-o", toml)), *arguments]
        done = tune(trace, "-k", "id", "--quick", *given, code=1)
        assert re.fullmatch(r"srj: expected [^\n]*(or one by srj tune, got another's|which is none)[^\n]*\n", done.stderr)
        assert done.stdout == ""
    assert (mine.read_text(), picture.read_bytes(), toml.exists()) == ("my own", PNG + b"a photo", False)
    for form in ("svg", "png") * 2:
        tune(trace, "-k", "id", "--quick", "-o", toml, "--html", tmp_path / "page.html", "--plot", tmp_path / f"curves.{form}")


def test_without_matplotlib_a_plot_is_refused_at_once(trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything is simulated, with what to install."""
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    done = tune(trace, "-k", "id", "-o", tmp_path / "srj.toml", "--plot", tmp_path / "x.png", code=1)
    assert "pip install matplotlib" in done.stderr


def test_help_says_what_each_option_does() -> None:
    """Enough to use the command without another page."""
    shown = CliRunner().invoke(app, ["tune", "--help"], env={"COLUMNS": "120", "TERMINAL_WIDTH": "120"}).stdout
    for text in ("--memory-cost", "--miss-cost", "--update-period", "--order-by", "--html", "Exit codes", "Example: srj tune"):
        assert text in shown
