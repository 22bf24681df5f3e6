"""What a worker is told: a lookup, fully described on the driver."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from srj.databases.base import Description, Question
    from srj.options import Settings


@dataclass(frozen=True)
class LookupSpec:
    """The question, what the database said of its table, and the user's settings. Pickled into Spark's closures."""

    question: Question
    description: Description
    settings: Settings

    @property
    def columns(self) -> pa.Schema:
        """The table's columns that come back."""
        return pa.schema([(column.name, column.type) for column in self.description.columns])
