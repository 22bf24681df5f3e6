"""The form of the type tables, `postgresql_table` and `mysql_table`: what each type of a database is as a column and as a key.

Describing a table reads them, docs/types.md is printed from them (``python -m srj.databases.typing > docs/types.md``), and the
tests walk them.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass, field

import pyarrow as pa

from srj.databases.base import KeyColumn, KeyLimits
from srj.databases.conversion import is_lossless, spark_type

_UTC = pa.timestamp("us", "UTC")
# What a stream's column may be, in the order of the page.
STREAM_TYPES = (
    *(pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.decimal128(20, 0), pa.decimal128(20, 2)),
    *(pa.float32(), pa.float64(), pa.string(), pa.binary(), pa.date32(), pa.timestamp("us"), _UTC),
)
_TABLES = (("PostgreSQL", "srj.databases.postgresql_table"), ("MySQL and MariaDB", "srj.databases.mysql_table"))


@dataclass(frozen=True)
class KeyForm:
    """How keys travel to a column.

    Attributes:
        arrow: the Arrow type to which the stream's keys are converted.
        cast: the SQL type as which they are compared.
        wire: the SQL type in which they are sent, where that is another.
        limits: what the column can never hold.
        reading: the SQL that makes a value of the column's type of a key as it is sent, with ``{}`` for the key.
    """

    arrow: pa.DataType
    cast: str
    wire: str = ""
    limits: KeyLimits = field(default_factory=KeyLimits)
    reading: str = "{}"


@dataclass(frozen=True)
class TypeEntry:
    """A type of a database, or several that are treated alike.

    Attributes:
        names: what the database's catalog calls it.
        title: as people write it.
        arrow: the Arrow type in which values arrive; None: refused.
        wire: the SQL type in which they are sent.
        instead: for what is refused, the SQL expression that works, with ``{}`` for the column.
        key: how keys travel; None: refused.
        key_instead: for a refused key, what to do.
        digits: a decimal of the precision and scale that the column declares, of at most 38 digits.
        of_elements: an array, as a list of what its elements' type becomes.
        codes: the numbers by which a driver knows the type, where it tells numbers.
        unsigned: the type without negative numbers.
        remarks: what a user may meet: exactness, edges, equality.
    """

    names: tuple[str, ...]
    title: str
    arrow: pa.DataType | None
    wire: str = ""
    instead: str = ""
    key: KeyForm | None = None
    key_instead: str = ""
    digits: bool = False
    of_elements: bool = False
    codes: tuple[int, ...] = ()
    unsigned: bool = False
    remarks: str = ""


def accepted(key: KeyForm) -> list[pa.DataType]:
    """The types of a stream's columns that can be keys of this form.

    >>> accepted(KeyForm(pa.string(), "text")), len(accepted(KeyForm(pa.int32(), "int4")))
    ([DataType(string)], 5)
    """
    column = KeyColumn("k", "k", "", key.arrow, key.cast, key.limits)
    return [arrow for arrow in STREAM_TYPES if is_lossless(arrow, column)]


def page() -> str:
    """docs/types.md."""
    parts = [_HEAD]
    for title, module in _TABLES:
        rows = [_row(entry) for entry in importlib.import_module(module).ENTRIES]
        parts.append(f"## {title}\n\n" + "\n".join([_COLUMNS, "| --- | --- | --- | --- | --- |", *rows]) + "\n")
    return "\n".join([*parts, _TAIL])


def _row(entry: TypeEntry) -> str:
    spark = arrow = "refused"
    if entry.digits:
        spark, arrow = "decimal(p,s)", "decimal128(p, s)"
    elif entry.of_elements:
        spark, arrow = "array<…>", "list<…>"
    elif entry.arrow is not None:
        spark, arrow = spark_type(entry.arrow), str(entry.arrow)
    remarks = entry.remarks
    if entry.arrow is None:
        remarks = " ".join(filter(None, [f"Write `{entry.instead.format('x')} AS x`.", remarks]))
    key = "refused" if entry.key is None else ", ".join(_key_name(one) for one in accepted(entry.key))
    cells = [f"`{entry.title}`", spark, "" if arrow == "refused" else arrow, key, remarks]
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _key_name(arrow: pa.DataType) -> str:
    if pa.types.is_decimal(arrow):
        return "decimal(n,0)" if arrow.scale == 0 else "decimal"
    return spark_type(arrow)


_COLUMNS = "| type | column in Spark | Arrow | key: types of the stream's column | remarks |"
_HEAD = """# Types

What each type of a database becomes in Spark, and what a stream's column may be to be joined with it. This page is printed from
the tables that srj itself reads (`python -m srj.databases.typing > docs/types.md`); the tests join every type with itself, through
the cache and not, and compare with what the database answers to the same join.

- *refused*: the request fails before the stream starts, and the message holds the expression that works.
- A key is converted to the column's own type without loss, so that the column's index serves and the database says what is
  equal. Any other type of the stream's column is refused with the cast to write, where Spark has one.
- A key that can't be a value of the column (99999999999 for an `int`, 1.005 for a `numeric(10,2)`, text that is no uuid or no
  UTF-8, a NUL character in PostgreSQL's text, a character that its database's encoding of one byte a character lacks, one of four
  bytes in MySQL's `utf8mb3`, NaN in MySQL, a date that the database has not) matches nothing and is counted as `impossible_keys`,
  without being asked. Where only the database can tell (text that is no label of an enum, no address or too long for the column, a
  character that another encoding lacks), it is asked and matches nothing.
"""

_TAIL = """## Names

Tables and columns are named exactly as the database has them, with their case, spaces, quotes and dots; srj quotes them. Only
between schema and table (`public.products`) is a dot no part of a name: `Table(url, '"my.schema"."my.table"')` has some that are.
Where Spark does not tell `Id` from `id` (`spark.sql.caseSensitive`, off by default), neither may two columns of the result
differ in case alone: give a `prefix`, or rename one with `AS`. A stream's column is named with its dots as it is
(`key="a.b"` is the column `a.b` if there is one, else the field `b` of `a`); between backticks, as in Spark, a dot is always part
of a name (``key={"`a.b`.c": "id"}`` is the field `c` of the column `a.b`).
"""


if __name__ == "__main__":
    print(page(), end="")  # noqa: T201  what it is for
