"""Files that commands write: seen to be writable first, and their errors told in one sentence."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

from srj.errors import RequestError

if TYPE_CHECKING:
    from pathlib import Path


def write(path: Path, content: bytes) -> None:
    """Write a file, and make its folder: all of it, or the file stays as it was.

    Raises:
        RequestError: it can't be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _put(path.resolve(), content)
    except OSError as error:
        raise RequestError(f"expected a file to write to, got {str(path)!r}: {error.strerror}; name another") from None


def _put(path: Path, content: bytes) -> None:
    if path.exists() and (not path.is_file() or not os.access(path.parent, os.W_OK)):
        path.write_bytes(content)  # a device, or a file whose folder takes no other
        return
    new = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        new.write_bytes(content)
        if path.exists():
            shutil.copymode(path, new)
        new.replace(path)
    finally:
        new.unlink(missing_ok=True)


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
