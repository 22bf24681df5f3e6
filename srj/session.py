"""What srj asks of a Spark session: settings, secrets on their way to workers, and tables described before."""

from __future__ import annotations

import functools
import os
import pickle
import subprocess
import sys
import time
import warnings
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from srj.databases.base import Description, Question
from srj.errors import ConnectionFailedError, LookupTimeoutError, RequestError, SrjError
from srj.launch import launcher
from srj.lookup.describe import describe

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from srj.table import DatabaseUrl

# A table is described again after this time, so that a session outlives changes of the table.
_FRESH_SECONDS = 60.0
# And kept this long after it was last needed, for the case that the database can't be reached then.
_KEPT_SECONDS = 3600.0

_descriptions: dict[tuple[str, Question, str], tuple[float, Description]] = {}
_secrets: dict[str, str] = {}


def description_of(session: SparkSession, question: Question, url: DatabaseUrl, timeout: float) -> Description:
    """Describe the question's table, from here where this process can connect, else from one of Spark's workers.

    Args:
        session: asked for a worker, and remembered: a foreachBatch function must not describe in every micro-batch.
        question: what to describe.
        url: the question's URL as the user wrote it, with its secret.
        timeout: seconds to connect.
    """
    name = (session_id(session), question, str(url))
    known = _descriptions.get(name)
    if known is not None and time.monotonic() - known[0] < _FRESH_SECONDS:
        return known[1]
    try:
        description = _describe_anywhere(session, question, url, timeout)
    except (ConnectionFailedError, LookupTimeoutError) as error:
        if known is None:
            raise
        # A foreachBatch function whose keys are all cached goes on while the database is away.
        description = known[1]
        warnings.warn(f"the table is taken for what it was when it was last described, for now: {error}", stacklevel=4)
    now = time.monotonic()
    # A foreachBatch function whose condition changes would fill the memory in the end.
    for old, (at, _) in list(_descriptions.items()):
        if now - at >= _KEPT_SECONDS:
            _descriptions.pop(old, None)
    _descriptions[name] = (now, description)
    return description


def _describe_anywhere(session: SparkSession, question: Question, url: DatabaseUrl, timeout: float) -> Description:
    try:
        return describe(replace(question, url=url), timeout)
    except ConnectionFailedError:
        # Private networks and Connect clients: the workers may reach what this process can't.
        if _conf(session, "spark.master").startswith("local"):
            raise
        return _describe_there(session, question, timeout)


def without_secret(session: SparkSession, url: DatabaseUrl) -> DatabaseUrl:
    """The URL with its written-out password moved to the environment of this application's Python workers.

    Plans, closures and event logs then hold a reference only. Spark Connect has no such way, so there a reference must be written.
    """
    if not url.has_literal_password:
        return url
    if is_connect(session):
        raise RequestError(
            f"expected no password in the URL on Spark Connect, which would put it into the plan, got {url}; write ${{NAME}} in "
            "its place and set that environment variable on this machine and where the server's Python workers run"
        )
    password = url.resolve().password or ""  # it may be a text with a ${NAME} inside
    variable = _secrets.setdefault(password, f"SRJ_PASSWORD_{len(_secrets) + 1}")
    session.sparkContext.environment[variable] = password
    return url.with_password(f"${{{variable}}}")


def is_connect(session: SparkSession) -> bool:
    """Whether the session is a Spark Connect client."""
    return type(session).__module__.startswith("pyspark.sql.connect")


def session_id(session: SparkSession) -> str:
    """What stays the same while a session lives, also in foreachBatch, where the session object is a new one each time."""
    return str(session.session_id if is_connect(session) else session.sparkContext.applicationId)  # type: ignore[attr-defined]  # Connect's class has it


def is_case_sensitive(session: SparkSession) -> bool:
    """Whether two column names may differ in case only."""
    return _conf(session, "spark.sql.caseSensitive") == "true"


def check_flushing(session: SparkSession) -> tuple[str, ...]:
    """A warning where a batch does not leave Python when it is made, but when 64 KB have gathered."""
    # With its default: asking Connect for what is not set makes its server log an error.
    if session.conf.get("spark.python.udf.pipelined.enabled", "false") == "true":
        return ()
    warning = (
        "this order asks for rows to leave early, but Spark gathers 64 KB before it takes a batch from Python; "
        "start the session with spark.python.udf.pipelined.enabled=true (Spark 4.3 and later)"
    )
    return (warning,)


def check_shuffle(session: SparkSession) -> tuple[str, ...]:
    """A warning where a recomputed task may lose or double rows: it may see a changed table after a shuffle has used the old."""
    name = "spark.sql.shuffle.orderIndependentChecksum.enableFullRetryOnMismatch"
    if _conf(session, name) == "true":
        return ()
    warning = (
        f"a shuffle on an enriched column is exact after a task is retried only with {name}=true (Spark 4.1 and later), which "
        "is not set; set it if you group, join or repartition by what srj_enrich adds and the table may change meanwhile"
    )
    return (warning,)


def check_python(session: SparkSession) -> tuple[str, ...]:
    """A warning where Spark's workers on this machine are another Python than this, which may lack srj."""
    if is_connect(session) or not _conf(session, "spark.master").startswith("local"):
        return ()
    theirs = session.sparkContext.pythonExec
    environment = _environment_of(theirs)
    # As real paths: what a link leads to is the same environment.
    if environment is None or os.path.realpath(environment) == os.path.realpath(sys.prefix):
        return ()
    warning = (
        f"Spark's Python workers run {theirs!r} of {environment}, while this is {sys.executable}, and what one has installed the "
        "other may lack; set PYSPARK_PYTHON to this before the session starts, or activate its environment"
    )
    return (warning,)


@functools.cache
def _environment_of(python: str) -> str | None:
    """The environment of a Python program; None when it does not say."""
    command = [python, "-c", "import sys; print(sys.prefix)"]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None


def _describe_there(session: SparkSession, question: Question, timeout: float) -> Description:
    task = launcher("describe_there", pickle.dumps(question), timeout)
    row = session.range(1, numPartitions=1).mapInArrow(task, "outcome binary").collect()[0]
    outcome: Any = pickle.loads(row["outcome"])  # noqa: S301  it comes from our own worker
    if isinstance(outcome, SrjError):
        raise outcome
    if not isinstance(outcome, Description):
        raise TypeError(f"expected a Description from the worker, got {type(outcome).__name__}")
    return outcome


def _conf(session: SparkSession, name: str) -> str:
    """The setting in lower case, Spark's own default included; empty where this Spark has no such setting."""
    try:
        # Not get(name, default): that returns the given default in place of Spark's.
        return str(session.conf.get(name)).lower()
    except Exception:  # classic and Connect raise different classes for an unknown name
        return ""
