"""The examples in the docstrings are true."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
from pathlib import Path

import pytest

import srj
from srj.cache_policies import registry

MODULES = sorted(module.name for module in pkgutil.walk_packages(srj.__path__, "srj."))


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_a_module_give_what_they_show(name: str) -> None:
    """Each example with a `>>>` runs, unless it needs a server and says so."""
    assert doctest.testmod(importlib.import_module(name)).failed == 0


@pytest.mark.parametrize("name", ["policies", "sizing"])
def test_the_examples_of_a_page_give_what_they_show(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Of docs/policies.md the policy of one's own, which nobody else finds registered."""
    monkeypatch.setattr(registry, "_policies", dict(registry._policies))
    page = Path(__file__).parents[1] / "docs" / f"{name}.md"
    found = doctest.testfile(str(page), module_relative=False)
    assert found.attempted > 0
    assert found.failed == 0


def test_there_are_examples() -> None:
    """The collection of modules finds those that are known to have some."""
    finder = doctest.DocTestFinder()
    assert any(test.examples for test in finder.find(importlib.import_module("srj.table")))
