"""Names and expressions in a user's request, the same for every database."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from srj.errors import TableError
from srj.quantities import nearest

if TYPE_CHECKING:
    from collections.abc import Iterable

_ALIASED = re.compile(r'(?P<sql>.*\S)\s+AS\s+(?P<name>[^\W\d]\w*|"(?:[^"]|"")+"|`(?:[^`]|``)+`)\s*', re.IGNORECASE | re.DOTALL)


def named_expression(text: str, table: str, columns: Iterable[str]) -> tuple[str, str]:
    """Split an expression of the SELECT list into its SQL and its name.

    Args:
        text: what the user wrote: ``price * 1.2 AS gross``.
        table: the table's name, for people.
        columns: the table's columns, to suggest one.

    Raises:
        TableError: it has no name.

    Example:
        >>> named_expression('price * 1.2 AS "Gross price"', "products", [])
        ('price * 1.2', 'Gross price')
    """
    match = _ALIASED.fullmatch(text.strip())
    if match is None:
        if text.strip().endswith("*"):
            raise TableError(
                f"expected columns of table {table} one by one, got {text!r}; leave columns out to have all but the key's"
            )
        if re.fullmatch(r"\w+", text):
            raise TableError(f"expected a column of table {table}, got {text!r}; {nearest(text, columns)}")
        raise TableError(f"expected a column of table {table} or an expression with a name, got {text!r}; write '{text} AS name'")
    name = match["name"]
    if name[0] in '"`':
        name = name[1:-1].replace(name[0] * 2, name[0])
    return match["sql"], name
