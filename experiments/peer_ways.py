"""The ways to join a stream with a table that are compared: what each does to a stream, or to each of its micro-batches."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import asyncpg
import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812  Spark's own convention

from srj import Table, srj_enrich
from srj.experiments import peer_worker
from srj.experiments.jdbc import driver_settings, table_options
from srj.experiments.relation import SCHEMA, derived_columns, mysql_connection, plain_url
from srj.table import DatabaseUrl

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from srj.experiments.peers import Way

IN_FLIGHT = 32  # lookups at a time of each worker where they are sent concurrently: two workers within 100 connections
IN_LIST = 1000  # keys
_DDL = "id bigint, name string, price double, quantity int"
_JDBC = ("stream-static JDBC join", "broadcast join")


@dataclass(frozen=True)
class Relation:
    """What is joined, and what may be remembered of it.

    Attributes:
        url: of the server.
        table, rows: its name and size.
        entries: rows that a cache may hold.
        counts: folder for the workers' own counts.
    """

    url: str
    table: str
    rows: int
    entries: int
    counts: Path


def settings_of(way: Way, url: str) -> dict[str, str]:
    """What Spark must be started with."""
    return driver_settings(DatabaseUrl.parse(url).dialect) if way in _JDBC else {}


def joined(way: Way, stream: DataFrame, relation: Relation) -> DataFrame:
    """The stream's plan: each key with its row."""
    if way in ("srj", "srj, any order"):
        cache, order = f"{relation.entries} rows", "input" if way == "srj" else "any"
        return srj_enrich(stream, Table(relation.url, (relation.table,)), "id", cache=cache, ttl="1 h", order=order)  # type: ignore[arg-type]
    if way == "one by one":
        return stream.mapInArrow(peer_worker.one_by_one(relation.table, relation.entries, relation.counts), _DDL)
    if way == "one by one, async":
        run = peer_worker.one_by_one_async(relation.table, relation.entries, IN_FLIGHT, relation.counts)
        return stream.mapInArrow(run, _DDL)
    if way == "a query per row":
        return stream.mapInArrow(peer_worker.query_per_row(relation.table, relation.counts), _DDL)
    if way == "no join":
        return stream.selectExpr(*derived_columns())
    if way in _JDBC:
        table = stream.sparkSession.read.format("jdbc").options(**table_options(relation.url, relation.table, relation.rows)).load()
        if way == "broadcast join":
            table = F.broadcast(table.cache())  # read once, when the first micro-batch needs it
        return stream.join(table, "id", "left")
    return stream


def finisher(way: Way, spark: SparkSession, relation: Relation) -> Callable[[DataFrame], DataFrame]:
    """What is done to each micro-batch of the plan."""
    if way != "foreachBatch + IN list":
        return lambda batch: batch
    asks = InList(relation.url, relation.table)

    def join(batch: DataFrame) -> DataFrame:
        batch = batch.persist()  # read twice
        keys = batch.select("id").distinct().toArrow().column("id").to_pylist()
        found = spark.createDataFrame(asks(keys))
        return batch.join(F.broadcast(found), "id", "left")

    return join


class InList:
    """Rows of many keys, asked by ``IN (…)`` with `IN_LIST` keys a query, one query after the other over one connection."""

    def __init__(self, url: str, table: str) -> None:
        self._url, self._sql = url, f"SELECT {', '.join(SCHEMA.names)} FROM {table} WHERE id IN "
        self._is_postgresql = DatabaseUrl.parse(url).dialect == "postgresql"
        self._loop = asyncio.new_event_loop()
        self._connection: Any = None

    def __call__(self, keys: Sequence[int]) -> pa.Table:
        """The rows of those that the table has."""
        rows: list[Any] = []
        for part in _chunks(keys, IN_LIST):
            rows += self._ask(f"{self._sql}({', '.join(map(str, part))})")
        columns = zip(*rows, strict=True) if rows else ([] for _ in SCHEMA)
        return pa.table([list(column) for column in columns], schema=SCHEMA)

    def _ask(self, sql: str) -> Sequence[Any]:
        if not self._is_postgresql:
            self._connection = self._connection or mysql_connection(self._url)
            with self._connection.cursor() as cursor:
                cursor.execute(sql)
                return cursor.fetchall()  # type: ignore[no-any-return]
        if self._connection is None:
            # Each text is another one, of which a prepared statement would only take memory.
            self._connection = self._loop.run_until_complete(asyncpg.connect(plain_url(self._url), statement_cache_size=0))
        return self._loop.run_until_complete(self._connection.fetch(sql))


def _chunks(keys: Sequence[int], size: int) -> Iterator[Sequence[int]]:
    return (keys[begin : begin + size] for begin in range(0, len(keys), size))
