"""What MySQL's and MariaDB's information_schema says of one table: its columns, its indexes, its size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from srj.databases.mysql_session import Session


@dataclass(frozen=True)
class TableColumn:
    """A column.

    Attributes:
        name: as the table spells it.
        data_type, column_type: its type without and with arguments: ``decimal``, ``decimal(10,2) unsigned``.
        charset, collation: of text, else None.
    """

    name: str
    data_type: str
    column_type: str
    charset: str | None
    collation: str | None


@dataclass(frozen=True)
class Index:
    """An index that the optimizer may use, or a constraint that it keeps.

    Attributes:
        name: ``PRIMARY`` for the primary key.
        unique: no two rows are equal in all columns.
        serves: the optimizer may look rows up in it.
        columns: its columns in order; None for an expression.
        whole: for each column, whether all of it is indexed and not a prefix.
        cardinalities: estimated distinct values of the first column, the first two, …; None where unknown.
    """

    name: str
    unique: bool
    serves: bool
    columns: tuple[str | None, ...]
    whole: tuple[bool, ...]
    cardinalities: tuple[int | None, ...]

    def makes_unique(self, key: Collection[str]) -> bool:
        """Whether a key of these columns has at most one row."""
        return self.unique and all(self.whole) and set(self.columns) <= set(key)

    def depth(self, key: Collection[str]) -> int:
        """How many leading columns are in the key: 0 means that it doesn't serve."""
        if not self.serves:
            return 0
        return next((depth for depth, column in enumerate(self.columns) if column not in key), len(self.columns))


@dataclass(frozen=True)
class TableFacts:
    """A table or view.

    Attributes:
        is_view: whether it is a view: indexes and size are then unknown.
        rows: estimated rows, or None.
        mean_row: estimated mean bytes of a row, 0 where unknown.
        columns: those that the login may read, in the table's order.
        indexes: its indexes.
    """

    is_view: bool
    rows: int | None
    mean_row: int
    columns: tuple[TableColumn, ...]
    indexes: tuple[Index, ...]

    @property
    def primary_key(self) -> tuple[str, ...]:
        """The primary key's columns, or none."""
        return next((tuple(column or "" for column in index.columns) for index in self.indexes if index.name == "PRIMARY"), ())


async def table_names(session: Session, database: str) -> list[str]:
    """The tables and views of a database that the login may see."""
    result = await session.query("SELECT TABLE_NAME FROM information_schema.TABLES WHERE TABLE_SCHEMA = %s", (database,))
    return [name or "" for (name,) in result.texts()]


async def table_facts(session: Session, database: str, table: str) -> TableFacts | None:
    """What the catalog says of a table, or None if there is none of exactly this name."""
    sql = "SELECT TABLE_NAME, TABLE_TYPE, TABLE_ROWS, AVG_ROW_LENGTH, ENGINE FROM information_schema.TABLES "
    result = await session.query(sql + "WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s", (database, table))
    found = [row for row in result.texts() if row[0] == table or session.folds_names]
    if not found:
        return None
    _, kind, rows, mean_row, engine = found[0]
    is_view = "VIEW" in (kind or "")
    return TableFacts(
        is_view=is_view,
        rows=None if rows is None or is_view else int(rows),
        mean_row=int(mean_row or 0),
        columns=await _columns(session, database, table),
        indexes=await _indexes(session, database, table, engine or ""),
    )


async def _columns(session: Session, database: str, table: str) -> tuple[TableColumn, ...]:
    result = await session.query(
        "SELECT COLUMN_NAME, DATA_TYPE, COLUMN_TYPE, CHARACTER_SET_NAME, COLLATION_NAME FROM information_schema.COLUMNS "
        "WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s ORDER BY ORDINAL_POSITION",
        (database, table),
    )
    return tuple(
        TableColumn(name or "", (data_type or "").lower(), column_type or "", charset, collation)
        for name, data_type, column_type, charset, collation in result.texts()
    )


async def _indexes(session: Session, database: str, table: str, engine: str) -> tuple[Index, ...]:
    # All columns of the view, since MariaDB says IGNORED where MySQL says IS_VISIBLE.
    result = await session.query(
        "SELECT * FROM information_schema.STATISTICS WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s ORDER BY INDEX_NAME, SEQ_IN_INDEX",
        (database, table),
    )
    names = [field.name.upper() for field in result.fields]
    parts: dict[str, list[dict[str, str | None]]] = {}
    for row in result.texts():
        part = dict(zip(names, row, strict=True))
        parts.setdefault(part["INDEX_NAME"] or "", []).append(part)
    return tuple(_index(name, rows, engine) for name, rows in parts.items())


def _index(name: str, parts: Sequence[dict[str, str | None]], engine: str) -> Index:
    first = parts[0]
    # MariaDB calls a unique constraint on long text a HASH index: it keeps rows apart but finds none.
    kind_serves = first["INDEX_TYPE"] == "BTREE" or (first["INDEX_TYPE"] == "HASH" and engine.upper() in {"MEMORY", "NDBCLUSTER"})
    visible = first.get("IGNORED") != "YES" and first.get("IS_VISIBLE") != "NO"
    return Index(
        name=name,
        unique=first["NON_UNIQUE"] == "0",
        serves=kind_serves and visible,
        columns=tuple(part["COLUMN_NAME"] for part in parts),
        whole=tuple(part["SUB_PART"] is None for part in parts),
        cardinalities=tuple(None if part["CARDINALITY"] is None else int(part["CARDINALITY"]) for part in parts),
    )
