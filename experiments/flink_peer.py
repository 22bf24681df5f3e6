"""Flink's lookup join as one of the ways: `flink_job`, run by the Python of an environment that has Flink."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from srj.errors import RequestError
from srj.experiments.experiment import Measurement
from srj.experiments.peer_stream import parts_of
from srj.experiments.peers import FLINK
from srj.experiments.plain_join import checksum, plain_join
from srj.experiments.relation import SCHEMA, ensure_relation, plain_url, read_rows
from srj.experiments.server_usage import MemoryPeak, ServerUsage

if TYPE_CHECKING:
    from srj.experiments.peer_stream import Phase
    from srj.experiments.peers import PeerCell

_JOB = "flink_job.py"
_BATCHES = 4  # of the rate's size, one after the other: Flink has no micro-batches


def measure(cell: PeerCell, url: str) -> Measurement:
    """Run the cell, in three jobs.

    The first writes all rows, which are compared with a plain join's; the second is timed, and writes hardly any, as the other
    ways don't write theirs; the third joins only the rows that warm the cache, so that what it costs the server can be taken off.
    Delays are those of bursts of as many rows as the other ways' micro-batches have, taken from the timed stream, where a burst
    begins as soon as the one before has been joined: Flink's rows wait for no micro-batch, and its files have no time of arrival.

    Raises:
        RequestError: there is no Flink, or the job says why it has no figures.
    """
    python, job = os.environ.get(FLINK), Path(__file__).with_name(_JOB)
    if not python or not job.is_file():
        raise RequestError(f"expected a Python with Flink in the environment variable {FLINK}, and {job.name}; see its first lines")
    table = ensure_relation(url, cell.relation, indexed=True)
    rated = [size for size in cell.sizes() if size[0] == "rate"]
    sizes: list[tuple[Phase, int]] = [("warm", rated[0][1]), *rated[:_BATCHES]]
    parts = parts_of(sizes, hits=cell.hits, hot=cell.hot, relation=cell.relation, seed=cell.seed)
    keys = np.concatenate([part.keys for part in parts])
    warm = sum(len(part.keys) for part in parts if part.phase == "warm")
    with TemporaryDirectory(prefix="srj-peers-") as name, ServerUsage(url, table) as usage:
        paths = {"keys": str(Path(name) / "keys.parquet"), "output": str(Path(name) / "joined.parquet")}
        pq.write_table(pa.table({"id": keys}), paths["keys"])
        request = {"url": plain_url(url), "table": table, "key": "id", "cache_rows": cell.entries, "parallelism": 2}
        written = _answer(python, job, request | paths | {"warm": warm})
        output = pq.read_table(written["output"]).select(SCHEMA.names)
        counts = [usage()]
        with MemoryPeak() as memory:
            answer = _answer(python, job, request | {"keys": paths["keys"], "warm": warm, "burst": cell.delay_rows})
        counts.append(usage())
        pq.write_table(pa.table({"id": keys[:warm]}), paths["keys"])
        _answer(python, job, request | {"keys": paths["keys"], "warm": warm // 2})
        counts.append(usage())
    queries, cpu = (without_warm([getattr(one, name) for one in counts]) for name in ("queries", "cpu"))
    delays = answer["delays_ms"] or {"p50": None, "p99": None}
    return Measurement(
        {
            "rate": answer["rows"] / answer["seconds"],
            "rows": answer["rows"],
            "micro_batches": 0,
            "rows_a_micro_batch": 0,
            "delay_p50_ms": delays["p50"],
            "delay_p99_ms": delays["p99"],
            "queries": queries,
            "cpu_seconds": cpu,
            "memory_bytes": memory.bytes,
        },
        checksum(output),
        checksum(plain_join(keys, read_rows(url, table, np.unique(keys)))),  # of all rows, those that warm the cache too
    )


def without_warm(counts: list[Any]) -> Any:
    """What the second of three jobs added to a count, less what the third did."""
    before, timed, warmed = counts
    return None if None in counts else (timed - before) - (warmed - timed)


def _answer(python: str, job: Path, request: dict[str, Any]) -> dict[str, Any]:
    # The login goes by standard input, where others can't read it.
    done = subprocess.run([python, str(job)], input=json.dumps(request), capture_output=True, text=True, check=False)
    try:
        answer: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    except (ValueError, IndexError):
        raise RequestError(f"expected figures of Flink's job, but it ended with {done.returncode}: {done.stderr[-300:]}") from None
    if "error" in answer:
        raise RequestError(str(answer["error"]))
    return answer
