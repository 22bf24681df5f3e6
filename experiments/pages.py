"""Files that commands write: seen to be writable first, and their errors told in one sentence."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from srj.errors import RequestError, SrjError
from srj.experiments.peers_table import put_into

if TYPE_CHECKING:
    from collections.abc import Sequence

    from srj.experiments.ledger import Record


def check_page(page: Path, peers: Sequence[Record]) -> None:
    """See that the table of peers can be put into a page, before anything is written.

    Raises:
        RequestError: it can't.
    """
    check_writable(page)
    try:
        text = page.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise RequestError(f"expected a page in UTF-8, got {str(page)!r}, which can't be read: {_reason(error)}") from None
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / page.name
        copy.write_text(text, encoding="utf-8")
        try:
            put_into(copy, peers)
        except (TypeError, KeyError, ValueError) as error:
            if isinstance(error, SrjError):
                raise
            raise RequestError(
                f"expected records of peers as this version writes them, got {_reason(error)}; run it again"
            ) from error


def write(path: Path, content: bytes) -> None:
    """Write a file, and make its folder.

    Raises:
        RequestError: it can't be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    except OSError as error:
        raise RequestError(f"expected a file to write to, got {str(path)!r}: {error.strerror}; name another") from None


def write_text(path: Path, text: str) -> None:
    """The same for a text, in UTF-8; what can't be written so is escaped."""
    write(path, text.encode(errors="backslashreplace"))


def check_writable(path: Path) -> None:
    """See that a file can be written, and make its folder.

    Raises:
        RequestError: it can't.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        known = path.is_dir() and "it is a folder"
    except OSError as error:
        known = error.strerror or type(error).__name__
    known = known or (not os.access(path if path.exists() else path.parent, os.W_OK) and "it may not be written")
    if known:
        raise RequestError(f"expected a file to write to, got {str(path)!r}: {known}; name another")


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or f"{type(error).__name__}: {error}"
