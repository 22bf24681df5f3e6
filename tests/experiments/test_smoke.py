"""Every figure, and every peer, at the smallest scale, against real servers."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from matplotlib.figure import Figure

from srj.experiments.experiment import NAMES, load
from srj.experiments.ledger import Ledger

if TYPE_CHECKING:
    from tests.servers import Server

SRJ = Path(sys.executable).with_name("srj")


@pytest.mark.timeout(900)  # four minutes where nothing else runs
def test_every_cell_gives_the_rows_of_a_plain_join(tmp_path: Path, postgres: Server) -> None:
    """None fails, none is too slow, each can be drawn and judged; the tables are gone afterwards, and no secret is told."""
    # The login goes by the environment, and neither into the ledger nor onto the screen.
    url = f"postgresql://{postgres.user}:${{SRJ_SECRET}}@{postgres.host}:{postgres.port}/{postgres.database}"
    environment = os.environ | {"SRJ_SECRET": postgres.password}
    command = [SRJ, "experiment", "run", "--all", "--scale", "smoke", "--postgres-url", url]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    ledger = Ledger(tmp_path / "experiment-results" / "ledger.jsonl")
    for name in NAMES:
        experiment = load(name)
        records = ledger.latest(experiment)
        assert len(records) == sum(map(experiment.can_run, experiment.cells("smoke")))
        for record in records:
            assert record.state == "finished", record.error
            assert record.figures["output_rows"] > 0
        axes = Figure().subplots()
        experiment.plot(records, axes)
        assert all(experiment.details(records))
        # Whatever the verdict: cells as short as these often can't be told from chance.
        assert not any("cells have no figures" in finding.why for finding in experiment.check(records))
    assert postgres.execute("SELECT 1 FROM pg_class WHERE relname LIKE 'srj_experiment_%'") == []
    assert postgres.password not in done.stdout + ledger.path.read_text()
    _judge_rates(ledger)
    _judge_peers(ledger)


def _judge_rates(ledger: Ledger) -> None:
    """What figure 4.15's cells say of themselves."""
    records = ledger.latest(load("fig_4_15"))
    assert [(record.cell["way"], record.cell["batch"]) for record in records] == [
        ("one by one", 0),
        ("srj", 2),
        ("srj", 30),
        ("srj auto", 0),
    ]
    for record in records:
        assert 0 < record.figures["rate"] < record.figures["above"] <= 1.5 * record.figures["rate"]
        # The rate's own rows are few; what a sample of so many leaves to chance, and keys that are on their way, which are no hits.
        rows = record.figures["lookups"] * record.figures["keys_per_lookup"] / (1 - record.figures["hit_ratio"])
        chance = 4 * math.sqrt(0.25 / rows)
        assert record.figures["hit_at_once"] == pytest.approx(record.figures["expected_hit_ratio"], abs=0.03 + chance)
        assert record.figures["output_rows"] > 1000
    assert records[1].figures["keys_per_lookup"] < 2.2 < records[2].figures["keys_per_lookup"]
    axes = Figure().subplots()
    load("fig_4_15").plot(records, axes)
    rates = [record.figures["rate"] for record in records]
    assert min(rates) / 10 < axes.get_ylim()[0] < min(rates) < max(rates) < axes.get_ylim()[1] < 10 * max(rates)


def _judge_peers(ledger: Ledger) -> None:
    """Each way has a rate, a delay and memory; those that ask for each key count their lookups, which the keys foretell."""
    figures = {record.cell["way"]: record.figures for record in ledger.latest(load("peers"))}
    for of_way in (one for way, one in figures.items() if way != "Flink"):  # which has no micro-batches
        assert 0 < of_way["delay_p50_ms"] <= of_way["delay_p99_ms"]
        assert min(of_way[name] for name in ("rate", "rows", "memory_bytes")) > 0
        assert of_way["rows"] == of_way["micro_batches"] * of_way["rows_a_micro_batch"]
    for cold in ("one by one", "a query per row"):  # the one whose keys come once each, and the one that remembers nothing
        assert figures[cold]["lookups_in_all"] == figures[cold]["output_rows"]
    # The first micro-batch has each of 500 hot keys twice, once for each worker; of the others half have keys of their own.
    asked, rows = (figures["one by one, async"][name] for name in ("lookups_in_all", "output_rows"))
    assert 500 <= asked - (rows - 2 * 500) // 2 <= 2 * 500
