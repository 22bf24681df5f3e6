"""Names and expressions in a user's request, the same for every database."""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING

from srj.errors import TableError

if TYPE_CHECKING:
    from collections.abc import Iterable

_ALIASED = re.compile(r'(?P<sql>.*\S)\s+AS\s+(?P<name>[^\W\d]\w*|"(?:[^"]|"")+"|`(?:[^`]|``)+`)\s*', re.IGNORECASE | re.DOTALL)


def suggestion(name: str, existing: Iterable[str]) -> str:
    """What to do about a name that does not exist.

    >>> suggestion("prise", ["id", "Price"])
    "did you mean 'Price'?"
    >>> suggestion("x", ["id", "price"])
    'it has: id, price'
    """
    names = {candidate.lower(): candidate for candidate in existing}
    near = difflib.get_close_matches(name.lower(), names, n=1)
    if near:
        return f"did you mean {names[near[0]]!r}?"
    listed = ", ".join(sorted(names.values())[:10])
    return f"it has: {listed}{', …' if len(names) > 10 else ''}" if names else "it has none that this user may see"


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
        if re.fullmatch(r"\w+", text):
            raise TableError(f"expected a column of table {table}, got {text!r}; {suggestion(text, columns)}")
        raise TableError(f"expected a column of table {table} or an expression with a name, got {text!r}; write '{text} AS name'")
    name = match["name"]
    if name[0] in '"`':
        name = name[1:-1].replace(name[0] * 2, name[0])
    return match["sql"], name
