"""What a user gets who installs srj: the wheel alone, with no source beside it."""

from __future__ import annotations

import configparser
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGED = ["srj", "operators", "cache_policies", "experiments", "setup.cfg", "pyproject.toml", "README.md", "LICENSE"]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy of the sources that is gone afterwards."""
    folder = tmp_path_factory.mktemp("wheel")
    copy = folder / "copy"
    copy.mkdir()
    for name in PACKAGED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        elif (ROOT / name).exists():
            shutil.copy(ROOT / name, copy)
    _pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder), str(copy))
    shutil.rmtree(copy)
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the wheel alone is installed."""
    target = tmp_path_factory.mktemp("installed")
    _pip("install", "--no-deps", "--target", str(target), str(wheel))
    return target


def test_the_wheel_puts_one_name_into_site_packages(wheel: Path) -> None:
    """The folders at the top of the repository are inside srj: no package named `operators` lands in anybody's environment."""
    with zipfile.ZipFile(wheel) as archive:
        tops = {name.split("/")[0] for name in archive.namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"srj"}


def test_the_wheel_holds_every_module_the_types_and_the_licence(wheel: Path) -> None:
    """A package that is forgotten in setup.cfg would be missing only at a user's."""
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    folders = dict(line.split(" = ") for line in setup["options"]["package_dir"].split("\n") if "=" in line)
    expected = {
        str(Path(package.replace(".", "/")) / module.relative_to(ROOT / folder))
        for package, folder in folders.items()
        for module in (ROOT / folder).rglob("*.py")
    }
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    assert expected
    assert expected <= names
    assert "srj/py.typed" in names
    assert any(name.endswith("/licenses/LICENSE") for name in names)


@pytest.mark.parametrize(
    "module",
    [
        "srj",
        "srj.operators",
        "srj.cache_policies",
        "srj.databases",
        "srj.lookup",
        "srj.sizing",
        "srj.cli",
        "srj.experiments.fig_4_15",
    ],
)
def test_the_installed_wheel_can_be_imported_without_the_source(installed: Path, module: str, tmp_path: Path) -> None:
    """Each part comes from the wheel, wherever it stands in the repository."""
    found = _python(installed, tmp_path, f"import {module}; print({module}.__file__)")
    assert Path(found).is_relative_to(installed)


def test_the_command_srj_is_installed_and_explains_itself(installed: Path, tmp_path: Path) -> None:
    """The console script of the wheel runs."""
    done = subprocess.run(
        [installed / "bin" / "srj", "--help"], env=_environment(installed), cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert "check" in done.stdout
    assert "demo" in done.stdout


def _pip(*arguments: str) -> None:
    subprocess.run([sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments], check=True)


def _python(installed: Path, folder: Path, code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], env=_environment(installed), cwd=folder, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def _environment(installed: Path) -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(installed), "PYTHONSAFEPATH": "1"}
