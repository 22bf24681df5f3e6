"""Describe a table from wherever a connection can be made."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from srj.databases import database

if TYPE_CHECKING:
    from srj.databases.base import Description, Question


def describe(question: Question, timeout: float) -> Description:
    """Ask the database about the question's table; every mistake in the question is found here.

    Runs in a thread's own event loop, for notebooks have one running already.

    Args:
        question: the table, its key, what is wanted of it.
        timeout: seconds.

    Raises:
        TableError, DatabaseError: as `Database.describe`.
    """
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(lambda: asyncio.run(database(question.url.dialect).describe(question, timeout))).result()
