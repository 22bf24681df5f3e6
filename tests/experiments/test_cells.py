"""Cells against real servers: every row is a plain join's, and the figures are what they say."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from srj.experiments import hits_cell, latency_cell, rate_cell
from srj.experiments.relation import drop_relations

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.servers import Server


@pytest.fixture(params=["postgres", "mariadb"])
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    """Of each server, without the cells' tables afterwards."""
    server: Server = request.getfixturevalue(request.param)
    yield server.url
    drop_relations(server.url)


@pytest.mark.parametrize("way", [{"way": "one by one"}, {"way": "srj", "keys": 50}])
def test_the_parts_of_a_lookup_are_the_whole(url: str, way: dict[str, Any]) -> None:
    """The network is the proxy's, the server's clock is within the whole, and no part is a guess."""
    [cell] = latency_cell.cells_of("smoke", {**way, "delay": 5.0})
    measured = latency_cell.run(cell, url)
    assert measured.output == measured.plain_join
    assert measured.output.rows == 10 * cell["keys"]
    figures = measured.figures
    assert 10 <= figures["network"] < figures["total"]
    assert 0 < figures["server"] < figures["total"]
    assert figures["engine"] > 0
    assert figures["connection"] > 10
    parts = sum(figures[part] for part in latency_cell.PARTS)
    assert parts == pytest.approx(figures["total"], rel=0.3)  # medians of sums are not sums of medians


def test_the_core_hits_as_often_as_foreseen(url: str) -> None:
    """Within two points, and far from all and from none."""
    [cell] = hits_cell.cells_of("smoke", {"driver": "core", "cached": 0.5})
    measured = hits_cell.run(cell, url)
    assert measured.output == measured.plain_join
    assert 0.3 < measured.figures["foreseen"] < 0.5
    assert measured.figures["measured"] == pytest.approx(measured.figures["foreseen"], abs=0.02)
    assert measured.figures["hit_at_once"] == pytest.approx(measured.figures["measured"], abs=0.02)


def test_an_order_constraint_in_seconds_bounds_the_distance(url: str) -> None:
    """So many rows as come in that time at the rate that is tried; with 0 no row overtakes another."""
    cells = rate_cell.cells_of("smoke", {"order": 0.0}, {"order": 0.002}, {"order": 100.0}, way="srj", batch=30)
    found = [rate_cell.run(cell, url) for cell in cells]
    assert all(one.output == one.plain_join for one in found)
    none, some, free = (one.figures for one in found)
    assert none["distance"] == 0
    assert some["distance"] <= round(0.002 * some["rate"])
    assert free["distance"] > 0
    assert free["predicted_distance"] > 0
