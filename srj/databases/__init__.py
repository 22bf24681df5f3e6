"""The database systems that srj can look keys up in."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from srj.errors import RequestError

if TYPE_CHECKING:
    from srj.databases.base import Database

_MODULES = {"postgresql": ("PostgreSQL", "asyncpg"), "mysql": ("MySQL", "aiomysql")}


def database(dialect: str) -> Database:
    """The implementation for a URL's dialect; its driver is imported here and not before.

    Args:
        dialect: ``postgresql`` or ``mysql`` (`DatabaseUrl.dialect`).

    Raises:
        RequestError: no such dialect, or its driver is not installed.

    Example:
        >>> database("postgresql")
        PostgreSQL()
    """
    if dialect not in _MODULES:
        raise RequestError(f"expected one of the database systems {', '.join(_MODULES)}, got {dialect!r}; correct the URL")
    name, driver = _MODULES[dialect]
    try:
        module = import_module(f"srj.databases.{dialect}")
    except ModuleNotFoundError as error:
        if error.name != driver:
            raise
        raise RequestError(
            f"expected the driver {driver} for {name}, which is not installed; run: pip install {driver} (on executors too)"
        ) from error
    implementation: Database = getattr(module, name)()
    return implementation
