"""Cells against real servers: every row is a plain join's, and the figures are what they say."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

from srj.experiments import hits_cell, latency_cell, rate_cell
from srj.experiments.relation import drop_relations
from srj.experiments.servers import Servers

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tests.servers import Server


@pytest.fixture(params=["postgres", "mariadb"])
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    """Of each server, without the cells' tables afterwards."""
    server: Server = request.getfixturevalue(request.param)
    yield server.url
    drop_relations(server.url)


@pytest.mark.parametrize("way", [{"way": "one by one"}, {"way": "srj", "keys": 50}])
@pytest.mark.parametrize("place", ["postgres", "mariadb", "own"])
def test_a_part_of_a_lookup_is_what_its_name_says(place: str, way: dict[str, Any], request: pytest.FixtureRequest) -> None:
    """The network is the proxy's two ways; the server's clock tells an index from none; a PostgreSQL of one's own counts."""
    with ExitStack() as stack:
        if place == "own":
            url = stack.enter_context(Servers()).url("postgresql")
        else:
            url = request.getfixturevalue(place).url
            stack.callback(drop_relations, url)
        cells = latency_cell.cells_of("smoke", {**way, "delay": 5.0}, {**way, "delay": 5.0, "indexed": True})
        for _ in range(3):  # what else the machine does falls into one part and not into another
            scanned, sought = (latency_cell.run(cell, url) for cell in cells)
            for measured in (scanned, sought):
                assert measured.output == measured.plain_join
                assert measured.output.rows == 10 * way.get("keys", 1)
            # Of 20,000 rows, which take many times as long as a few sought ones.
            tells = scanned.figures["server"] > 2 * sought.figures["server"]
            if tells and _fit_together(scanned.figures) and _fit_together(sought.figures):
                return
        pytest.fail(f"expected parts that fit together, got {dict(scanned.figures)} and {dict(sought.figures)}")


def _fit_together(figures: Mapping[str, float]) -> bool:
    total, network, server = (figures[name] for name in ("total", "network", "server"))
    is_network = 10 <= network < 13 and figures["connection"] > 10
    return is_network and server > 0 and network + server < 1.2 * total and 0 < figures["engine"] < total - network


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
    assert 0 < some["distance"] <= round(0.002 * some["rate"])
    assert free["distance"] > 0
    assert free["predicted_distance"] > 0


def test_one_lookup_a_row_is_opened_three_times_and_the_best_counts(url: str) -> None:
    """Nearby, on an index, at all scales but the smallest; every row of all openings is a plain join's."""
    points: list[dict[str, Any]] = [{}, {"delay": 45.0}, {"indexed": False}, {"way": "srj", "batch": 30}]
    cells = rate_cell.cells_of("small", *({"way": "one by one", **point} for point in points))
    assert [cell["openings"] for cell in cells] == [3, 1, 1, 1]
    [cell] = rate_cell.cells_of("smoke", {"way": "one by one", "openings": 3})
    measured = rate_cell.run(cell, url)
    assert measured.output == measured.plain_join
    assert len(measured.figures["opened"]) == 3
    assert measured.figures["rate"] == pytest.approx(max(measured.figures["opened"]), abs=0.1)
    assert measured.figures["lookups"] > 0
