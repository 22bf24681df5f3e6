"""Join a Spark stream with a table in an external database: only the keys it lacks, in batches, through a cache."""

from srj.enrich import srj_enrich
from srj.errors import (
    ConnectionFailedError,
    DatabaseError,
    LookupFailedError,
    LookupTimeoutError,
    MultipleMatchesError,
    RequestError,
    SrjError,
    TableError,
)
from srj.forms import enrich_in_pandas, for_each_batch
from srj.lookup.order import Disorder, Windows
from srj.options import Batch, Cache
from srj.restore import restore_order
from srj.table import Table
from srj.tuning import Tuning, profile

__all__ = [
    "Batch",
    "Cache",
    "ConnectionFailedError",
    "DatabaseError",
    "Disorder",
    "LookupFailedError",
    "LookupTimeoutError",
    "MultipleMatchesError",
    "RequestError",
    "SrjError",
    "Table",
    "TableError",
    "Tuning",
    "Windows",
    "enrich_in_pandas",
    "for_each_batch",
    "profile",
    "restore_order",
    "srj_enrich",
]
