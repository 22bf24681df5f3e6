"""The cache's benchmark at tiny size: it runs, and every contestant finds every key."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from benchmarks import cache_speed

if TYPE_CHECKING:
    import pytest


def test_every_comparison_gives_its_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Times and a ratio each; which of them reach their bars says nothing at this size, but the exit code tells of it."""
    for name, value in (("ENTRIES", 2000), ("BATCH", 200), ("BATCHES", 2), ("PAIRS", 1)):
        monkeypatch.setattr(cache_speed, name, value)
    code = cache_speed.main()
    printed = capsys.readouterr().out
    ratios = re.findall(r"^(.*?) +\d+ +\d+   ratio +([\d.]+)(  bar [\d.]+)?(, MISSED)?$", printed, re.MULTILINE)
    assert [title.split()[0] for title, *_ in ratios] == ["probe", "probe", "probe", "gather", "whole"]
    assert all(float(ratio) > 0 for _, ratio, *_ in ratios)
    assert code == any(missed for *_, missed in ratios)
