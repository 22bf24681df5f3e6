"""What a worker is told: a lookup, fully described on the driver."""

from __future__ import annotations

import hashlib
import pickle
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from srj.options import Cache

if TYPE_CHECKING:
    from srj.databases.base import Description, Question
    from srj.options import LookupSettings


@dataclass(frozen=True)
class LookupSpec:
    """A lookup as workers need it. Pickled into Spark's closures: it holds no secret, only references.

    Attributes:
        question, description: what to ask, and what the database said of the table.
        settings: how to ask and to remember.
        at_most_one: several rows of a key are an error (``on_multiple="error"``).
    """

    question: Question
    description: Description
    settings: LookupSettings
    at_most_one: bool = False

    @property
    def columns(self) -> pa.Schema:
        """The table's columns that come back, as they are kept."""
        return pa.schema([(column.name, column.stored) for column in self.description.columns])

    def fingerprint(self, own: bytes = b"") -> str:
        """The same for lookups that may share a cache: all that decides what an answer is, none of the changing estimates.

        Args:
            own: the pickled policy of the cache, or its pickled factory: both may be the user's own code.
        """
        cache = self.settings.cache if isinstance(self.settings.cache, Cache) else None
        decides = (
            repr(self.question),
            self.question.url.password,  # its repr leaves out these two, and another login or search_path sees other rows
            self.question.url.options,
            self.description.sql,
            repr([(key.cast, str(key.type)) for key in self.description.key]),
            repr(self.columns),
            self.description.unique,
            self.at_most_one,
            repr([(name, value) for name, value in vars(self.settings).items() if name != "cache"]),
            None if cache is None else repr((cache.size, cache.shared, cache.memory)),
            own,
        )
        return hashlib.sha256(pickle.dumps(decides)).hexdigest()
