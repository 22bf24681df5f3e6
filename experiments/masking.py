"""What a cell says, without secrets of its server's URL, and as it can be shown and written anywhere."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any
from unicodedata import category

from srj.table import DatabaseUrl

if TYPE_CHECKING:
    from collections.abc import Callable

_SHORT = 4  # characters; a password below that is found in words that have nothing to do with it
_MASK = "***"


def masked(value: Any, url: str, *, names: bool = True) -> Any:
    """The same text, or the same lists and mappings of texts, without the URL's passwords, however they are spelled.

    Args:
        value: what is told.
        url: of the server.
        names: also in the names of mappings; not where these are ours, for a password may be the same word.

    >>> masked({"said": ["login u:pass%2fword@h"]}, "mysql://u:pass%2Fword@h/d")
    {'said': ['login u:***@h']}
    """
    return _each(value, _Secrets(url).without, names=names) if url else value


def printable(value: Any) -> Any:
    r"""The same, with control characters, and halves of characters, escaped; line ends and tabs stay.

    >>> printable("red: \x1b[31m")
    'red: \\x1b[31m'
    """
    return _each(value, _escaped)


def _escaped(text: str) -> str:
    return "".join(
        one.encode("unicode_escape").decode() if category(one).startswith("C") and one not in "\n\t" else one for one in text
    )


def _each(value: Any, change: Callable[[str], str], *, names: bool = True) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {_each(key, change) if names else key: _each(one, change, names=names) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_each(one, change, names=names) for one in value]
    return value


class _Secrets:
    """The passwords of a URL: as written, and what they stand for."""

    def __init__(self, url: str) -> None:
        written = DatabaseUrl.parse(url)
        resolved = written.resolve()
        told = [written.password if written.has_literal_password else None, resolved.password]
        # Options may be written as references; what these stand for is meant to be told to nobody.
        told += [value for (_, value), (_, raw) in zip(resolved.options, written.options, strict=True) if value != raw]
        secrets = sorted({one for one in told if one}, key=len, reverse=True)
        self._patterns = [(re.escape(url), f"{written}")]
        for secret in secrets:
            pattern = "".join(_spelled(one) for one in secret)
            self._patterns.append((f":{pattern}@", f":{_MASK}@") if len(secret) < _SHORT else (pattern, _MASK))

    def without(self, text: str) -> str:
        """The text without them."""
        for pattern, shown in self._patterns:
            text = re.sub(pattern, shown.replace("\\", r"\\"), text)
        return text


def _spelled(character: str) -> str:
    """All ways in which a character of a password is written: itself, by percent, by Python's and JSON's escapes."""
    code = ord(character)
    percent = "".join(f"%{byte:02x}" for byte in character.encode(errors="surrogatepass"))
    units = character.encode("utf-16-be", errors="surrogatepass").hex()
    json_escape = "".join(rf"\\+u{units[begin : begin + 4]}" for begin in range(0, len(units), 4))
    ways = [
        rf"\\*{re.escape(character)}" if character in "\"'/" else re.escape(character),
        f"(?i:{percent})",
        f"(?i:{json_escape})",
    ]
    ways += [rf"(?i:\\+x{code:02x})"] if code < 256 else [rf"(?i:\\+U{code:08x})"]
    ways += [r"\+"] if character == " " else []
    ways += [r"\\+"] if character == "\\" else []
    ways += [r"\\+" + "tnr"["\t\n\r".index(character)]] if character in "\t\n\r" else []
    return f"(?:{'|'.join(ways)})"
