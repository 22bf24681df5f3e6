"""Programs that need a Spark of their own, each a function that returns what JSON can hold; `scripts.run` starts them."""

from __future__ import annotations

import asyncio
import json
import os
import re
import resource
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import asyncpg
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812  Spark's own convention
from pyspark.sql.types import LongType

# Not this folder, which is no package of its own, but what the driver alone shall find.
sys.path[:1] = os.environ.get("DRIVER_PATH", "").split()

from srj import RequestError, srj_enrich  # noqa: E402  found by the path above


def _session(master: str, **more: str) -> Any:
    settings = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.local.dir": str(Path("local").absolute()),
        "spark.python.udf.pipelined.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(Path("warehouse").absolute()),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    builder = SparkSession.builder.master(master)
    for name, value in (settings | more).items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def _rows(frame: Any) -> list[list[Any]]:
    return sorted([list(row) for row in frame.collect()], key=repr)


def _streamed(spark: Any, frame: Any, folder: str) -> Any:
    """The rows that a query leaves in a Parquet sink, which takes each micro-batch once."""
    folder = str(Path(folder).absolute())
    writer = frame.writeStream.format("parquet").option("checkpointLocation", f"{folder}-checkpoint")
    query = writer.trigger(availableNow=True).start(folder)
    if not query.awaitTermination(240):
        raise TimeoutError(f"the query into {folder} has not ended")
    return spark.read.schema(frame.schema).parquet(folder)


def retried_tasks(tables: dict[str, str], files: str) -> dict[str, Any]:
    """Every task fails once after rows have left the join, once by an exception and once by the death of a worker."""
    spark = _session("local[2,3]")
    failures = Path("failures").absolute()
    found = {}
    for system, table in tables.items():
        for order in ("input", "any"):
            for way in ("raise", "die"):
                seen = 0

                def once(number: int, way: str = way) -> int:
                    nonlocal seen
                    seen += 1
                    context = TaskContext.get()
                    if context is not None and context.attemptNumber() == 0 and seen == 40:
                        with failures.open("a") as file:
                            file.write("x")
                        if way == "die":
                            os._exit(7)
                        raise RuntimeError("this attempt fails")
                    return number

                check = F.udf(once, LongType()).asNondeterministic()
                stream = spark.readStream.schema("n bigint, k int").parquet(files)
                joined = srj_enrich(stream, table, "k", order=order, ttl=1000.0 + len(found)).withColumn("n", check("n"))
                name = f"{system}-{order}-{way}"
                found[name] = _rows(_streamed(spark, joined, name))
    spark.stop()
    return {"rows": found, "failures": len(failures.read_text())}


def cluster(tables: dict[str, str], files: str) -> dict[str, Any]:
    """Two executors in JVMs of their own, and as many Python workers."""
    spark = _session("local-cluster[2,1,1024]", **{"spark.executor.memory": "600m"})
    found: dict[str, Any] = {}
    for system, table in tables.items():
        for order in ("input", "any"):
            stream = srj_enrich(spark.readStream.schema("n bigint, k int").parquet(files), table, "k", order=order)
            found[f"{system}-{order}-stream"] = _rows(_streamed(spark, stream, f"{system}-{order}"))
            batch = spark.read.schema("n bigint, k int").parquet(files).repartition(4)
            found[f"{system}-{order}-batch"] = _rows(srj_enrich(batch, table, "k", order=order))
    where = spark.range(0, 40, 1, 8).mapInArrow(_executors, "folder string").distinct().collect()
    result = {"rows": found, "executors": len(where), "maps": len(_maps())}
    spark.stop()
    return result | {"left": _left()}


def killed_driver(table: str) -> None:
    """Run a join, say so, and wait for the end."""
    spark = _session("local[2]")
    srj_enrich(spark.range(0, 2000).select(F.col("id").cast("int").alias("k")), table, "k").collect()
    Path("unfinished").write_text("\n".join(map(str, _maps())))
    Path("unfinished").rename("maps")
    time.sleep(600)


def _maps() -> list[Path]:
    """The caches of all executors below this folder."""
    return [path for path in map(Path, _left()) if re.fullmatch("[0-9a-f]{64}", path.name)]


def _left() -> list[str]:
    """All that srj has in Spark's folders; os.walk minds no folder that goes while it looks."""
    return [str(Path(folder) / name) for folder, _, names in os.walk(Path.cwd()) if Path(folder).name == "srj" for name in names]


def new_workers(table: str) -> dict[str, Any]:
    """The same join again and again, each task in a worker of its own."""
    spark = _session("local[2]", **{"spark.python.worker.reuse": "false"})
    pids = spark.range(0, 4, 1, 4).mapInArrow(_process, "pid bigint").distinct().count()
    stream = spark.range(0, 2000, 1, 2).select(F.col("id").cast("int").alias("k"))
    found: dict[str, Any] = {"pids": pids, "metrics": [], "rows": []}
    for order in ("input", "input", "any"):
        frame = srj_enrich(stream, table, "k", order=order, missing_ttl="1 h")
        found["rows"].append(frame.where("name = concat('part ', k)").count())
        frame = srj_enrich(stream, table, "k", order=order, missing_ttl="1 h")
        frame.collect()
        counted = frame._jdf.queryExecution().observedMetrics().values().iterator().next()
        found["metrics"].append(json.loads(counted.json())["srj"])
    found["maps"] = [path.stat().st_size for path in _maps()]
    spark.stop()
    return found | {"left": _left()}


def _process(batches: Any) -> Any:
    for _ in batches:
        yield pa.record_batch({"pid": pa.array([os.getpid()], pa.int64())})


def _executors(batches: Any) -> Any:
    for _ in batches:
        time.sleep(0.2)  # long enough for the other executor to take a task too
    yield pa.record_batch({"folder": [str(Path.cwd())]})


def connect(tables: dict[str, str], literal: str, files: str) -> dict[str, Any]:
    """A Spark Connect client with a server beside it; passwords are references."""
    spark = SparkSession.builder.remote("local[2]").config("spark.python.udf.pipelined.enabled", "true").getOrCreate()
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    found: dict[str, Any] = {}
    for system, table in tables.items():
        for order in ("input", "any"):
            stream = srj_enrich(spark.readStream.schema("n bigint, k int").parquet(files), table, "k", order=order)
            found[f"{system}-{order}-stream"] = _rows(_streamed(spark, stream, f"{system}-{order}"))
            batch = spark.read.schema("n bigint, k int").parquet(files)
            found[f"{system}-{order}-batch"] = _rows(batch.transform(srj_enrich, table, key="k", order=order))
    try:
        srj_enrich(batch, literal, "k")
        refusal = ""
    except RequestError as error:
        refusal = str(error)
    result = {"rows": found, "refusal": refusal, "kind": f"{type(batch).__module__}"}
    spark.stop()
    return result


def without_srj_on_workers(table: str) -> dict[str, Any]:
    """The driver finds srj by its own path alone, so the workers have none."""
    spark = _session("local[1]")
    failures = {}
    for order in ("input", "any"):
        try:
            srj_enrich(spark.range(5).selectExpr("cast(id AS int) AS k"), table, "k", order=order).collect()
            failures[order] = ""
        except Exception as error:
            failures[order] = str(error)
    spark.stop()
    return failures


def with_event_log(table: str, administrator: str, change: str, log: str) -> dict[str, Any]:
    """A query that works, and one whose lookups are refused; Spark writes all it knows of both into its event log."""

    async def change_password() -> None:
        connection = await asyncpg.connect(administrator)
        await connection.execute(change)
        await connection.close()

    logged = {"enabled": "true", "dir": f"file://{log}", "compress": "false"}
    spark = _session("local[1]", **{f"spark.eventLog.{name}": value for name, value in logged.items()})
    stream = spark.range(5).selectExpr("cast(id AS int) AS k")
    frames = {order: srj_enrich(stream, table, "k", order=order) for order in ("input", "any")}
    rows = {order: _rows(frame) for order, frame in frames.items()}
    frames = {order: srj_enrich(stream, table, "k", order=order, ttl=999.0) for order in ("input", "any")}
    asyncio.run(change_password())
    errors = {}
    for order, frame in frames.items():
        try:
            frame.collect()
        except Exception as error:
            errors[order] = str(error)
    spark.stop()
    return {"rows": rows, "errors": errors}


def idle_workers(table: str, lives: dict[str, dict[str, str]], files: list[str]) -> dict[str, Any]:
    """The same file twice, in the second micro-batch after Spark has ended its idle Python workers, as it does after a minute."""
    spark = _session("local[2]")
    Path("in").mkdir()
    stream = spark.readStream.schema("k int").parquet(str(Path("in").absolute())).repartition(4)
    queries = {}
    for name, options in lives.items():
        writer = srj_enrich(stream, table, "k", **options).writeStream.format("parquet")
        queries[name] = writer.option("checkpointLocation", f"{name}-checkpoint").start(str(Path(name).absolute()))
    workers, ended = [], 0.0
    for number, file in enumerate(files):
        started = time.monotonic()
        while workers and any(Path(f"/proc/{pid}").exists() for pid in workers[-1]):
            if time.monotonic() - started > 200:
                raise TimeoutError("Spark has not ended its idle workers")
            time.sleep(0.5)
        ended = time.monotonic() - started
        if workers:
            time.sleep(max(0.0, 75 - ended))
        Path(file).rename(Path("in", f"{number}.parquet"))
        for query in queries.values():
            while len(_metrics(query)) <= number:
                if not query.isActive:
                    raise RuntimeError(str(query.exception()))
                time.sleep(0.1)
        workers.append(_users(_maps()))
    rows = {name: spark.read.parquet(name).where("name = concat('part ', k)").count() for name in queries}
    found = {"metrics": {name: _metrics(query) for name, query in queries.items()}, "workers": workers, "rows": rows}
    spark.stop()
    return found | {"ended_after": ended, "left": _left()}


def _metrics(query: Any) -> list[dict[str, Any]]:
    """Of each micro-batch with rows."""
    texts = [progress.json for progress in query.recentProgress if progress.numInputRows]
    return [_plain(metrics)["srj"] for text in texts for metrics in json.loads(text)["observedMetrics"].values()]


def _plain(row: Any) -> Any:
    """A row as a dictionary: Spark Connect's server writes each as its values and its schema."""
    if not isinstance(row, dict):
        return row
    if row.keys() == {"values", "schema"}:
        names = [field["name"] for field in row["schema"]["fields"]]
        row = dict(zip(names, row["values"], strict=True))
    return {name: _plain(value) for name, value in row.items()}


def _users(maps: list[Path]) -> list[int]:
    """The processes that have one of these files in their memory."""
    users = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended meanwhile
            memory = (process / "maps").read_text()
            if any(str(path) in memory for path in maps):
                users.append(int(process.name))
    return sorted(users)


def connect_twice(table: str, files: str) -> dict[str, Any]:
    """The same streams again over Spark Connect, each task in a new worker of the server's."""
    builder = SparkSession.builder.remote("local[2]").config("spark.python.udf.pipelined.enabled", "true")
    settings = {"spark.python.worker.reuse": "false", "spark.local.dir": str(Path("local").absolute())}
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    found: dict[str, Any] = {"metrics": {}, "workers": []}
    for name in ("first", "second", "any"):
        stream = spark.readStream.schema("n bigint, k int").option("maxFilesPerTrigger", 2).parquet(files)
        frame = srj_enrich(stream, table, "k", order="any" if name == "any" else "input", missing_ttl="1 h")
        writer = frame.writeStream.format("noop").option("checkpointLocation", str(Path(name).absolute()))
        query = writer.trigger(availableNow=True).start()
        if not query.awaitTermination(240):
            raise TimeoutError(f"the query {name} has not ended")
        found["metrics"][name] = _metrics(query)
    for _ in range(2):
        workers = spark.range(0, 4, 1, 4).mapInArrow(_process, "pid bigint").distinct()
        found["workers"].append(sorted(row.pid for row in workers.collect()))
    found |= {"maps": len(_maps()), "kind": f"{type(frame).__module__}"}
    spark.stop()
    return found


def little_memory(table: str, limit: str, sizes: list[str]) -> dict[str, Any]:
    """An executor whose Python workers may take so much memory, and caches of these sizes, each asked twice."""
    spark = _session("local-cluster[1,1,1024]", **{"spark.executor.memory": "480m", "spark.executor.pyspark.memory": limit})
    stream = spark.range(0, 2000, 1, 2).select(F.col("id").cast("int").alias("k"))
    found: dict[str, Any] = {"caches": []}
    for size in sizes:
        others, metrics = set(_maps()), []
        for _ in range(2):
            frame = srj_enrich(stream, table, "k", cache=size)
            rows = sum(row.name == f"part {row.k}" for row in frame.collect())
            counted = frame._jdf.queryExecution().observedMetrics().values().iterator().next()
            metrics.append(json.loads(counted.json())["srj"])
        maps = [path.stat().st_size for path in set(_maps()) - others]
        found["caches"].append({"rows": rows, "metrics": metrics, "maps": maps})
    found["limit"] = spark.range(1).mapInArrow(_address_limit, "most bigint").first()[0]
    folder = spark.range(0, 4, 1, 1).mapInArrow(_executors, "folder string").first().folder
    spark.stop()
    return found | {"said": Path(folder, "stderr").read_text(), "left": _left()}


def _address_limit(batches: Any) -> Any:
    for _ in batches:
        yield pa.record_batch({"most": pa.array([resource.getrlimit(resource.RLIMIT_AS)[0]], pa.int64())})


if __name__ == "__main__":
    program, arguments, result = sys.argv[1:]
    answer = globals()[program](**json.loads(arguments))
    Path(result).write_text(json.dumps(answer))
