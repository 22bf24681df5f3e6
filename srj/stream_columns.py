"""Which of the stream's columns are meant, and which names are taken."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812  Spark's own convention
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType

from srj.errors import RequestError
from srj.quantities import nearest

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame

_PART = "(?:`(?:[^`]|``)+`|[^`.]+)"


def key_pairs(key: object) -> list[tuple[str, str]]:
    """Stream and table columns of a key: a name, a list of names, or a mapping from the stream's to the table's.

    >>> key_pairs(["id", "order.site", "`a.b`"]), key_pairs({"product_id": "id"})
    ([('id', 'id'), ('order.site', 'site'), ('`a.b`', 'a.b')], [('product_id', 'id')])
    """
    if isinstance(key, str):
        key = [key]
    if isinstance(key, Mapping):
        pairs = list(key.items())
    elif isinstance(key, Sequence):
        pairs = [(name, name_parts(name)[-1]) if isinstance(name, str) else (name, name) for name in key]
    else:
        pairs = []
    if not pairs or not all(isinstance(name, str) and name for pair in pairs for name in pair):
        raise RequestError(
            f"expected key as a column name, a list of names or {{'stream column': 'table column'}}, got {key!r}; "
            "write names, not Column objects, and at least one"
        )
    table_columns = [column for _, column in pairs]
    if len(set(table_columns)) < len(table_columns):
        raise RequestError(f"expected each table column once in key, got {table_columns}; drop the repeated one")
    return pairs


def name_parts(name: str) -> list[str]:
    """A column's name and those of the fields in it, as Spark reads it: dots part them, but not between backticks.

    >>> name_parts("a.b"), name_parts("`a.b`.c"), name_parts("`x``y`"), name_parts("x`y.z")
    (['a', 'b'], ['a.b', 'c'], ['x`y'], ['x`y', 'z'])
    """
    if re.fullmatch(rf"{_PART}(\.{_PART})*", name) is None:
        return name.split(".")
    return [part[1:-1].replace("``", "`") if part[0] == "`" else part for part in re.findall(_PART, name)]


def stream_key(df: DataFrame, name: str, *, case_sensitive: bool, use: str = "key") -> tuple[Column, pa.DataType]:
    """The stream's column of this name, or the nested one of this path, and its Arrow type.

    Raises:
        RequestError: there is none, there are several, or its type can't be a key.
    """
    path = _find(df.schema, [name], case_sensitive) or _find(df.schema, name_parts(name), case_sensitive)
    if path is None:
        raise RequestError(f"expected a stream column named {name!r} for the {use}, got none; {nearest(name, df.columns)}")
    names, data_type = path
    if [_fold(column, case_sensitive) for column in df.columns].count(_fold(names[0], case_sensitive)) > 1:
        raise RequestError(f"expected one stream column named {names[0]!r}, got several; rename all but one of them first")
    quoted = ".".join(f"`{part.replace('`', '``')}`" for part in names)
    cause: Exception | None = None
    if not isinstance(data_type, (ArrayType, MapType, StructType)) and data_type.typeName() != "variant":
        try:
            return F.col(quoted), arrow_schema(StructType([StructField("key", data_type)])).field(0).type
        except Exception as error:
            cause = error
    raise RequestError(
        f"expected a {use} of a simple type, got {name} of type {data_type.simpleString()}; name a field of it, or cast it first"
    ) from cause


def arrow_schema(schema: StructType) -> pa.Schema:
    """The Arrow types in which Spark hands these columns to Python, instants in UTC.

    >>> arrow_schema(StructType().add("at", "timestamp")).types
    [TimestampType(timestamp[us, tz=UTC])]
    """
    # Spark 4.1 takes UTC for granted and has no such argument; later versions want it said.
    zone: dict[str, Any] = {"timezone": "UTC"} if "timezone" in inspect.signature(to_arrow_schema).parameters else {}
    return to_arrow_schema(schema, **zone)


def _other_prefix(name: str, taken: Mapping[str, str], case_sensitive: bool) -> str:
    """One that makes the name free."""
    for prefix in (f"{name[:1]}_", "table_", "srj_"):
        if not name.startswith(prefix) and _fold(prefix + name, case_sensitive) not in taken:
            return f"a prefix such as prefix={prefix!r}"
    return "another prefix"


def check_clash(taken: Sequence[str], added: Sequence[str], *, case_sensitive: bool) -> None:
    """Refuse added names that the stream, or another added column, has already."""
    seen = {_fold(name, case_sensitive): name for name in taken}
    for position, name in enumerate(added):
        other = seen.get(_fold(name, case_sensitive))
        if other is None:
            seen[_fold(name, case_sensitive)] = name
        elif other in added[:position]:
            raise RequestError(f"expected different names for the table's columns, got {other!r} and {name!r}; rename one with AS")
        else:
            raise RequestError(
                f"expected names that the stream does not have, got the table's column {name!r} beside the stream's {other!r}; "
                f"give {_other_prefix(name, seen, case_sensitive)}, or choose columns"
            )


def free_name(name: str, taken: Sequence[str]) -> str:
    """The name, with as many underscores behind it as it takes to be none of those taken.

    >>> free_name("x", ["X", "x_"])
    'x__'
    """
    folded = {other.lower() for other in taken}
    while name.lower() in folded:
        name += "_"
    return name


def _find(schema: StructType, names: Sequence[str], case_sensitive: bool) -> tuple[list[str], DataType] | None:
    """The path as the schema spells it, and the type at its end."""
    found: list[str] = []
    current: DataType = schema
    for name in names:
        if not isinstance(current, StructType):
            return None
        # The exact spelling first: where case does not matter to Spark, it may still be the one meant.
        matches = [field for field in current.fields if field.name == name] or [
            field for field in current.fields if _fold(field.name, case_sensitive) == _fold(name, case_sensitive)
        ]
        if not matches:
            return None
        if found and sum(_fold(field.name, case_sensitive) == _fold(name, case_sensitive) for field in current.fields) > 1:
            raise RequestError(
                f"expected one field named {name!r} in stream column {'.'.join(found)!r}, got several; rename all but one of them "
                "first"
            )
        found.append(matches[0].name)
        current = matches[0].dataType
    return found, current


def _fold(name: str, case_sensitive: bool) -> str:
    return name if case_sensitive else name.lower()
