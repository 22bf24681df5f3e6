"""Characters that a database's encoding lacks: a key that holds one has no row, but would fail its whole batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import asyncpg
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    import numpy.typing as npt

REFUSED = (asyncpg.UntranslatableCharacterError, asyncpg.CharacterNotInRepertoireError)


class Characters:
    """What one connection's database has said about characters; each is asked about once."""

    def __init__(self, connection: asyncpg.Connection) -> None:
        self._connection = connection
        self._known: set[str] = set()
        self._lacking: set[str] = set()

    async def storable(self, keys: Sequence[pa.Array]) -> npt.NDArray[np.bool_] | None:
        """Which of the keys the database can express; None: all of them, so that something else was refused."""
        texts = [part.to_pylist() for part in keys if pa.types.is_string(part.type)]
        used = {character for values in texts for text in values if not text.isascii() for character in text}
        await self._ask(sorted(used - self._known))
        lacking = used & self._lacking
        if not lacking:
            return None
        fine = [all(lacking.isdisjoint(text) for text in key) for key in zip(*texts, strict=True)]
        mask: npt.NDArray[np.bool_] = pa.array(fine).to_numpy(zero_copy_only=False)
        return mask

    async def _ask(self, characters: list[str]) -> None:
        """In halves, as often as one of them is refused."""
        if not characters:
            return
        try:
            await self._connection.fetch("SELECT $1::text", "".join(characters))
        except REFUSED:
            if len(characters) > 1:
                half = len(characters) // 2
                await self._ask(characters[:half])
                await self._ask(characters[half:])
                return
            self._lacking.update(characters)
        self._known.update(characters)
