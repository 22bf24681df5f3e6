"""`srj_enrich`: check the request, describe the table, choose an operator, wire it."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Unpack

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql.pandas.types import from_arrow_type

from srj.databases.base import Question
from srj.databases.conversion import check_key_type, spark_type
from srj.errors import RequestError
from srj.lookup.make_cache import check_cache
from srj.lookup.order import Windows
from srj.lookup.spec import LookupSpec
from srj.operators import punctuation
from srj.operators.in_order import in_order
from srj.operators.out_of_order import map_in_arrow
from srj.operators.plan import Plan
from srj.options import Cache, Options, parse_options
from srj.session import check_flushing, check_python, check_shuffle, description_of, is_case_sensitive, without_secret
from srj.stream_columns import check_clash, key_pairs, stream_key
from srj.table import Table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import Column, DataFrame

    from srj.lookup.order import Order
    from srj.options import Settings


def srj_enrich(
    df: DataFrame,
    table: str | Table,
    key: str | Sequence[str] | Mapping[str, str],
    **options: Unpack[Options],
) -> DataFrame:
    """Join a stream with a table in PostgreSQL, MySQL or MariaDB.

    Only keys that the cache does not know are asked, in batches, several at a time, while rows with known keys go on. Works on
    streaming and batch DataFrames, in `foreachBatch`, through `DataFrame.transform`, on Spark Connect and on clusters (srj must
    be importable where Spark's Python workers run).

    What a result means: a row is joined with the table as it stands when the row is looked up, or as it stood at most `ttl`
    earlier. The database decides what equals what: its collations, padding and number rules apply. A NULL key matches nothing
    and asks nothing; so does a value that the table's key type can't hold (counted in the metrics). A lookup that fails after
    its retries fails the task; it is never taken for a missing key.

    Filter first: conditions written after the join are evaluated after it, even on the stream's own columns.

    Args:
        df: the stream.
        table: ``"postgresql://user@host/database#schema.table"`` (also ``mysql://``, ``mariadb://``), or a `Table`. Write a
            password as ``${NAME}``: it is read from that environment variable where a connection is made.
        key: the column to join on, when the stream and the table call it the same; several as a list; or
            ``{"stream column": "table column"}``. Nested stream columns are written ``"a.b"``,
            and names with dots between backticks.
        **options: all optional:

            * ``how``: ``"left"`` (default), ``"inner"``, ``"semi"``, ``"anti"``.
            * ``columns``: table columns or SQL expressions (``"upper(name) AS title"``); default: all but the key's.
            * ``where``: an SQL condition on the table.
            * ``prefix``: put before the added names; without it a name that the stream has already is an error.
            * ``on_multiple``: a key has several rows: ``"all"`` (default), ``"first"`` in the order of ``order_by`` (default: the
              primary key), ``"error"``.
            * ``order``: ``"input"`` (default): rows leave in their order within each partition; only key columns go through
              Python. ``"any"``: a row leaves as soon as its answer is known; whole rows go through Python. Between them: a
              `Disorder` that the consumer can bear, or the `Windows` that it counts. Rows of one key always keep their order.
            * ``punctuate``: adds ``srj_partition``, ``srj_row`` (the row's number there), ``srj_complete_below`` (all rows with a
              smaller number have left), and, with a watermark, ``srj_pending_since`` (the oldest event time that has not left):
              for `restore_order`, and for consumers that keep a clock of their own.
            * ``cache``: memory on each executor (``"128 MB"`` by default), ``"1_000_000 rows"``, a `Cache`, or a function that
              makes a `cachetools.Cache` for each worker. ``"auto"``: srj sizes it by the stream's reuse distances, and gives
              the rest of ``memory`` (``"512 MB"``) to the rows that wait.
            * ``ttl`` (``"10 min"``), ``missing_ttl`` (``"1 min"``): how long a row, or the fact that a key has none, may be
              served, counted from the start of its lookup; None: for ever.
            * ``batch``: ``"auto"`` (default), most keys in a lookup, a range of them ``(least, most)``, or a `Batch`.
            * ``connect_timeout`` (``"10 s"``), ``lookup_timeout`` (``"30 s"``), ``retries`` (3, after a failed connection).
            * ``metrics``: True (default) observes hits, misses, lookups and more, in each micro-batch's ``observedMetrics``.
            * ``config``: a TOML file with these names; arguments win.

    Returns:
        The stream's columns, then the table's. With ``how="semi"`` and ``"anti"`` the stream's alone.

    Raises:
        RequestError: the request can't be right; one sentence says what was expected, what came and what to do.
        DatabaseError: the database can't be asked about the table.

    Example:
        >>> enriched = srj_enrich(
        ...     orders,
        ...     "postgresql://reader:${DB_PASSWORD}@db/shop#public.products",
        ...     key={"product_id": "id"},
        ...     columns=["name", "price"],
        ...     ttl="1 h",
        ... )  # doctest: +SKIP
    """
    settings = parse_options(options)
    plan = plan_for(df, table, key, settings)
    if settings.order == "input":
        return in_order(plan)
    return map_in_arrow(plan)


def plan_for(df: DataFrame, table: str | Table, key: str | Sequence[str] | Mapping[str, str], settings: Settings) -> Plan:
    """Check the request against the stream and the table; what an operator is built from."""
    if not hasattr(df, "sparkSession"):
        raise RequestError(
            f"expected a DataFrame first and the table second, got {type(df).__name__} first; write srj_enrich(df, table, …)"
        )
    session = df.sparkSession
    table = table if isinstance(table, Table) else Table(table)
    pairs = key_pairs(key)
    question = Question(
        url=without_secret(session, table.url),
        name=table.name,
        key=tuple(column for _, column in pairs),
        columns=table.columns if settings.columns is None else settings.columns,
        where=_both(table.where, settings.where),
        exists_only=settings.how in ("semi", "anti"),
        first=settings.on_multiple == "first" and settings.how in ("left", "inner"),
        order_by=settings.order_by,
    )
    case_sensitive = is_case_sensitive(session)
    fields = [stream_key(df, name, case_sensitive=case_sensitive) for name, _ in pairs]
    description = description_of(session, question, table.url, settings.lookup.connect_timeout)
    for (name, _), (_, arrow_type), key_column in zip(pairs, fields, description.key, strict=True):
        check_key_type(arrow_type, key_column, name)
    added = tuple(
        (settings.prefix + column.name, from_arrow_type(column.type, prefer_timestamp_ntz=True)) for column in description.columns
    )
    check_clash(df.columns, [name for name, _ in added], case_sensitive=case_sensitive)
    if settings.punctuate:
        _check_unpunctuated([*df.columns, *[name for name, _ in added]])
    flushing = () if settings.order == "input" else check_flushing(session)
    for warning in (*description.warnings, *check_shuffle(session), *check_python(session), *flushing):
        warnings.warn(warning, stacklevel=3)
    spec = LookupSpec(
        question, description, settings.lookup, at_most_one=settings.on_multiple == "error" and not question.exists_only
    )
    check_cache(spec)
    cache = settings.lookup.cache
    fingerprint = spec.fingerprint(_pickle(cache.chosen if isinstance(cache, Cache) else cache))
    return Plan(
        df, tuple(column for column, _ in fields), _position(df, settings.order), settings, spec, fingerprint, _pickle(spec), added
    )


def _check_unpunctuated(names: Sequence[str]) -> None:
    there = [name for name in names if name.lower() in punctuation.ALL]
    if there:
        raise RequestError(
            f"expected a stream without the columns that punctuate=True adds, got {', '.join(there)}; restore its order first, or "
            "drop them"
        )


def _position(df: DataFrame, order: Order) -> Column | None:
    """The stream's column by which windows are counted."""
    if not isinstance(order, Windows) or order.position is None:
        return None
    column, kind = stream_key(df, order.position, case_sensitive=is_case_sensitive(df.sparkSession), use="position")
    if not pa.types.is_integer(kind):
        raise RequestError(
            f"expected a position of whole numbers, got {order.position} of type {spark_type(kind)}; cast it to bigint"
        )
    return column


def _pickle(value: object) -> bytes:
    """Pickled as Spark pickles closures, for a cache factory is often a lambda, and a policy's class may be in no module."""
    pickled: bytes = cloudpickle.dumps(value)  # type: ignore[no-untyped-call]  # PySpark's copy has no types
    return pickled


def _both(first: str | None, second: str | None) -> str | None:
    """The two conditions as one."""
    # Each bracket closes on a line of its own, for a condition may end in a comment.
    return f"({first}\n) AND ({second}\n)" if first and second else first or second
