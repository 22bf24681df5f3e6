"""An environment of its own for Apache Flink, with which srj's joins can be compared: ``make flink``, or run this module.

Nothing else needs it. It makes, in a folder of the user's cache, a virtual environment with `apache-flink` from the package index
(800 MB), and puts Flink's JDBC connector and the databases' drivers into its ``pyflink/lib``: from Maven by `mvn`, as it is set up,
or where there is none by the Ivy in pyspark. `srj.experiments.flink_job` runs there; SRJ_FLINK_PYTHON tells its Python.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from srj.errors import RequestError, SrjError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

FLINK = "2.0.2"  # the newest that the JDBC connector was released for
PYTHONS = ((3, 11), (3, 12))  # that it was built for, of those that srj runs on
JAVA = 11  # at least
VARIABLE = "SRJ_FLINK_PYTHON"
JARS = (
    "org.apache.flink:flink-connector-jdbc-core:4.0.0-2.0",
    "org.apache.flink:flink-connector-jdbc-postgres:4.0.0-2.0",
    "org.apache.flink:flink-connector-jdbc-mysql:3.3.0-1.20",  # no later one is to be had; it holds but the dialect
    "org.postgresql:postgresql:42.7.8",
    "com.mysql:mysql-connector-j:9.4.0",
)
# Flink's own libraries, which it has in the version that fits, and annotations.
_EXCLUDED = "org.apache.flink:flink-connector-base,org.checkerframework:checker-qual,com.google.protobuf:protobuf-java"
_IVY = """
import sys
from pyspark.sql import SparkSession
folder, jars, excluded = sys.argv[1:]
builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").config("spark.jars.ivy", folder)
builder.config("spark.jars.packages", jars).config("spark.jars.excludes", excluded).getOrCreate().stop()
"""
_SECONDS = 3600  # for a step: the packages are large, networks slow


def default_folder(environ: Mapping[str, str] | None = None) -> Path:
    """Where the environment is made if no other place is told.

    >>> default_folder({"XDG_CACHE_HOME": "/cache"}).as_posix()
    '/cache/srj/flink-2.0.2'
    """
    cache = (os.environ if environ is None else environ).get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "srj" / f"flink-{FLINK}"


def java_version(told: str) -> int | None:
    """The number in what ``java -version`` tells.

    >>> java_version('openjdk version "17.0.15" 2025-04-15'), java_version('java version "1.8.0_292"'), java_version("?")
    (17, 8, None)
    """
    match = re.search(r'version "(?:1\.)?(\d+)', told)
    return None if match is None else int(match[1])


def jar_name(coordinates: str) -> str:
    """The file that holds a library.

    >>> jar_name("org.postgresql:postgresql:42.7.8")
    'postgresql-42.7.8.jar'
    """
    _, artifact, version = coordinates.split(":")
    return f"{artifact}-{version}.jar"


def make(folder: Path, python: str = sys.executable) -> Path:
    """Make the environment where it is not there, and say each step; its Python.

    Args:
        folder: of its own; what an interrupted run left there is made again.
        python: of a version that Flink was built for.

    Raises:
        RequestError: no Java, no such Python, or the folder has other files.
        SrjError: a package or library can't be had.
    """
    interpreter, done = folder / "bin" / "python", folder / f"made-{FLINK}"
    if done.exists():
        print(f"Apache Flink {FLINK} is in {folder}")
        return interpreter
    if folder.exists() and any(folder.iterdir()) and not (folder / "pyvenv.cfg").exists():  # it is about to be emptied
        raise RequestError(
            f"expected an empty folder or an environment that this made, got {folder}, which holds other files; name another"
        )
    check_java()
    check_python(python)
    print(f"making a virtual environment in {folder}")
    _run([python, "-m", "venv", "--clear", str(folder)], "a virtual environment")
    print(f"installing apache-flink {FLINK} from the package index, about 800 MB")
    _run([str(interpreter), "-m", "pip", "install", "--quiet", f"apache-flink=={FLINK}"], f"the package apache-flink {FLINK}")
    lib = _run([str(interpreter), "-c", "import pyflink; print(pyflink.__path__[0])"], "the module pyflink").strip()
    print(f"getting {', '.join(JARS)}")
    _jars(Path(lib, "lib"))
    done.touch()
    print(f"Apache Flink {FLINK} is in {folder}")
    return interpreter


def check_java(environ: Mapping[str, str] | None = None) -> None:
    """That there is a Java for Flink.

    Raises:
        RequestError: there is none, or an older one.
    """
    environ = os.environ if environ is None else environ
    home = environ.get("JAVA_HOME")
    java = f"{home}/bin/java" if home else shutil.which("java", path=environ.get("PATH", ""))
    try:
        told = subprocess.run([java or "", "-version"], capture_output=True, text=True, timeout=60, check=False).stderr
    except OSError:
        raise RequestError(
            f"expected Java {JAVA} or later on PATH or in JAVA_HOME, found none; install one, such as Java 17"
        ) from None
    version = java_version(told)
    if version is None or version < JAVA:
        raise RequestError(
            f"expected Java {JAVA} or later, got {version or 'one of no known version'}; set JAVA_HOME to a later one"
        )


def check_python(python: str) -> None:
    """That Flink was built for this Python, and that it can make environments.

    Raises:
        RequestError: it was not, or it can't.
    """
    code = "import ensurepip, sys, venv; print(*sys.version_info[:2])"
    try:
        told = subprocess.run([python, "-c", code], capture_output=True, text=True, timeout=60, check=False).stdout
    except OSError:
        told = ""
    version = tuple(int(part) for part in told.split())
    if version not in PYTHONS:
        wanted = " or ".join(".".join(f"{part}" for part in one) for one in PYTHONS)
        got = ".".join(f"{part}" for part in version) or "none that has the modules venv and ensurepip"
        raise RequestError(f"expected Python {wanted} for Apache Flink {FLINK}, got {got}; name another with --python")


def _jars(lib: Path) -> None:
    """Put the libraries there."""
    with tempfile.TemporaryDirectory(prefix="srj-flink-") as folder:
        if shutil.which("mvn"):
            for jar in JARS:
                copy = ["mvn", "-q", "-B", "dependency:copy", f"-Dartifact={jar}", f"-DoutputDirectory={folder}"]
                _run(copy, f"the library {jar} from Maven", folder)
            found = {path.name: path for path in Path(folder).glob("*.jar")}
        else:
            _run(
                [sys.executable, "-c", _IVY, folder, ",".join(JARS), _EXCLUDED], "the libraries from Maven by pyspark's Ivy", folder
            )
            found = {path.name.partition("_")[2]: path for path in Path(folder, "jars").glob("*.jar")}
        for jar in JARS:
            if jar_name(jar) not in found:
                raise SrjError(
                    f"expected the library {jar} from Maven, got {', '.join(sorted(found)) or 'nothing'}; see Maven's settings"
                )
            shutil.copyfile(found[jar_name(jar)], lib / jar_name(jar))


def _run(command: Sequence[str], what: str, folder: str | None = None) -> str:
    """What a step prints; its own words go to standard error where it fails."""
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False, cwd=folder)
    except subprocess.TimeoutExpired:
        raise SrjError(f"expected {what} within {_SECONDS} s, got none; look at the network and run this again") from None
    if ended.returncode:
        print(ended.stdout, ended.stderr, sep="", file=sys.stderr)
        raise SrjError(
            f"expected {what}, which can't be had here: {Path(command[0]).name} ended with {ended.returncode}, see above"
        )
    return ended.stdout


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the environment and say how to use it; 0, or 1 where something is missing."""
    parser = argparse.ArgumentParser(
        prog="python -m srj.experiments.flink_environment", description=(__doc__ or "").partition("\n\n")[2]
    )
    parser.add_argument("--folder", type=Path, default=default_folder(), help="where it is made; by default %(default)s")
    parser.add_argument("--python", default=sys.executable, help="to make it with; by default the one that runs this")
    chosen = parser.parse_args(arguments)
    try:
        interpreter = make(chosen.folder.expanduser().absolute(), chosen.python)
    except SrjError as error:
        print(f"srj: {error}", file=sys.stderr)
        return 1
    print(f"to use it: export {VARIABLE}={interpreter}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
