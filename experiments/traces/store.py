"""Files that are fetched or made once and kept for the next time, in the user's cache folder."""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def kept(name: str, make: Callable[[Path], None]) -> Path:
    """The file of that name, made if it is not there.

    Args:
        name: in the folder ``srj`` of XDG_CACHE_HOME, by default ``~/.cache``.
        make: writes it to the path that it is given.
    """
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "srj"
    path = folder / name
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        # Under another name until it is whole: who is stopped leaves no half of a file behind that looks like one.
        part = folder / f"{secrets.token_hex(4)}.part"
        try:
            make(part)
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)
    return path
