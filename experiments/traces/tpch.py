"""TPC-H's LineItem as a stream that asks for its Part, as in the thesis; made by the package `tpchgen-cli`."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow.parquet as pq

from srj.errors import RequestError
from srj.experiments.traces.store import kept
from srj.experiments.traces.trace import Trace

if TYPE_CHECKING:
    from collections.abc import Iterator

    from srj.experiments.traces.trace import I64

_PARTS = 200_000  # of scale factor 1
_LINES = 6_001_215


def line_items(*, length: int = 6_000_000, factor: float = 1.0) -> Trace:
    """Part keys of LineItem in the order of its rows.

    Args:
        length: lines, at most as many as the factor makes (6 million times it).
        factor: TPC-H's scale factor; the thesis had 100, and the first 10 million lines.
    """
    if factor <= 0:
        raise RequestError(f"expected a scale factor above 0, got {factor}; 1 has 6 million lines")
    # Of a large factor only the first of several parts is made: it holds as many lines as are asked for.
    parts = max(1, int(factor * _LINES / max(length, 1) / 1.1))
    path = kept(f"tpch-lineitem-{factor:g}-1-of-{parts}.parquet", partial(_make, factor, parts))
    lines = min(length, pq.ParquetFile(path).metadata.num_rows)

    def blocks() -> Iterator[I64]:
        left = lines
        for batch in pq.ParquetFile(path).iter_batches(1 << 20, columns=["l_partkey"]):
            keys = batch.column(0).to_numpy()[:left].astype(np.int64) - 1  # parts count from 1
            left -= len(keys)
            if len(keys):
                yield keys

    text = f"part keys of TPC-H's LineItem, scale factor {factor:g}"
    return Trace("tpch", text, "PyPI tpchgen-cli, Apache-2.0", lines, max(1, round(factor * _PARTS)), blocks)


def _make(factor: float, parts: int, target: Path) -> None:
    program = Path(sys.executable).with_name("tpchgen-cli")
    found = str(program) if program.exists() else shutil.which("tpchgen-cli")
    if found is None:
        raise RequestError(
            "expected the program tpchgen-cli, which is not installed; install srj with its extra, as by "
            "pip install '.[experiments]'"
        )
    with tempfile.TemporaryDirectory() as folder:
        command = [found, "parquet", "--scale-factor", f"{factor:g}", "--tables", "lineitem", "--output-dir", folder]
        command += ["--parts", f"{parts}", "--part", "1"] if parts > 1 else []
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RequestError(f"expected tpchgen-cli to make LineItem, but it failed: {done.stderr.strip()[-200:]}")
        shutil.move(str(next(Path(folder).rglob("*.parquet"))), target)
