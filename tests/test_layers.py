"""The arrows between the parts of srj point one way, and Spark is imported only at the top."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize(
    ("folder", "forbidden"),
    [
        ("srj/lookup", ["pyspark", "srj.enrich", "srj.operators", "srj.session", "srj.experiments"]),
        ("srj/databases", ["pyspark", "srj.lookup", "srj.enrich", "srj.operators", "srj.session"]),
        (
            "cache_policies",
            ["pyspark", "srj.lookup", "srj.databases", "srj.enrich", "srj.operators", "srj.experiments"],
        ),
        (
            "srj/sizing",
            ["pyspark", "srj.lookup", "srj.databases", "srj.cache_policies", "srj.enrich", "srj.operators", "srj.experiments"],
        ),
        ("srj/tuning", ["srj.enrich", "srj.operators", "srj.experiments", "srj.cli"]),
        ("operators/worker.py", ["pyspark"]),
        ("experiments/traces", ["pyspark", "srj.lookup", "srj.databases", "srj.enrich", "srj.operators", "matplotlib"]),
        ("operators", ["srj.enrich", "srj.session", "srj.forms"]),
    ],
)
def test_a_lower_layer_imports_no_higher_one(folder: str, forbidden: list[str]) -> None:
    """What runs in a worker is testable with no Spark, and a database or a policy can be read alone."""
    path = ROOT / folder
    files = [path] if path.is_file() else sorted(path.glob("*.py"))
    # `simulate` is a tool that stands on both; it imports the columnar cache only when it is asked for that form.
    allowed = {("cache_policies/simulation.py", "srj.lookup.simulated")}
    assert files
    found = {
        f"{file.relative_to(ROOT)} imports {name}"
        for file in files
        for name in imported(ast.parse(file.read_text()))
        if (str(file.relative_to(ROOT)), name) not in allowed
        if any(name == layer or name.startswith(f"{layer}.") for layer in forbidden)
    }
    assert found == set()


def test_imports_are_found_wherever_they_stand() -> None:
    """Inside functions too, but not those that only a type checker reads."""
    code = "import a.b\nif TYPE_CHECKING:\n    import c\ndef f():\n    from d.e import g\n"
    assert set(imported(ast.parse(code))) == {"a.b", "d.e"}


def imported(node: ast.AST) -> Iterator[str]:
    """The modules that a syntax tree imports when it runs."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            yield from (alias.name for alias in child.names)
        elif isinstance(child, ast.ImportFrom) and child.module:
            yield child.module
        elif not (isinstance(child, ast.If) and isinstance(child.test, ast.Name) and child.test.id == "TYPE_CHECKING"):
            yield from imported(child)
