"""docs/types.md says what the type tables say."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest

from srj.databases import mysql_table, postgresql_table
from srj.databases.base import KeyColumn
from srj.databases.conversion import check_key_type, spark_type
from srj.databases.typing import STREAM_TYPES, TypeEntry, accepted
from srj.errors import RequestError

ENTRIES = [*postgresql_table.ENTRIES, *mysql_table.ENTRIES]


def test_the_page_is_what_its_program_prints() -> None:
    """As the page itself says how it was made."""
    page = Path(__file__).parents[1] / "docs" / "types.md"
    printed = subprocess.run([sys.executable, "-m", "srj.databases.typing"], check=True, capture_output=True).stdout
    assert printed.decode() == page.read_text(encoding="utf-8"), f"run: python -m srj.databases.typing > {page.name}"


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.title)
def test_every_entry_is_whole(entry: TypeEntry) -> None:
    """What is refused says what to write, and what is not has nothing to replace it."""
    assert (entry.arrow is None) == bool(entry.instead)
    assert (entry.key is None) == bool(entry.key_instead)
    assert not entry.instead or entry.instead.count("{}") == 1


@pytest.mark.parametrize("entries", [postgresql_table.ENTRIES, mysql_table.ENTRIES], ids=["postgresql", "mysql"])
def test_a_type_has_one_entry(entries: tuple[TypeEntry, ...]) -> None:
    """Decimals have two, by their digits, and MySQL's integers a signed and an unsigned one."""
    counts = Counter((name, entry.unsigned) for entry in entries for name in entry.names)
    assert {name for (name, _), count in counts.items() if count > 1} <= {"numeric", "decimal"}


@pytest.mark.parametrize("entry", [entry for entry in ENTRIES if entry.key is not None], ids=lambda entry: entry.title)
def test_the_keys_of_a_type_are_those_of_its_own_kind(entry: TypeEntry) -> None:
    """Numbers with numbers, text with text: never across."""
    assert entry.key is not None
    own = _kind(entry.key.arrow)
    assert {_kind(arrow) for arrow in accepted(entry.key)} == ({"whole", "decimal"} if own in {"whole", "decimal"} else {own})


@pytest.mark.parametrize("entry", [entry for entry in ENTRIES if entry.key is not None], ids=lambda entry: entry.title)
def test_any_other_key_is_refused_with_the_cast_that_is_accepted(entry: TypeEntry) -> None:
    """Whatever the stream has, the cast in the message makes a key of it; those that Spark has not are not advised."""
    key = entry.key
    assert key is not None
    column = KeyColumn("k", '"k"', entry.title, key.arrow, key.cast, key.limits)
    others = [arrow for arrow in (*STREAM_TYPES, pa.list_(pa.int64())) if arrow not in accepted(key)]
    assert others
    for other in others:
        with pytest.raises(RequestError) as caught:
            check_key_type(other, column, "a.b")
        message = str(caught.value)
        start = f"expected a key that converts to the table's k ({entry.title}) without loss, got a.b of type {spark_type(other)}; "
        assert message.startswith(start)
        cast = re.search(
            r"(?:write CAST\(a\.b AS|; name another column, for Spark has no cast to) (\w+(?:\([\d,]+\))?)\)?$", message
        )
        assert cast is not None
        check_key_type(_spark(cast[1]), column, "a.b")


def _spark(name: str) -> pa.DataType:
    """The Arrow type of one of Spark's."""
    digits = re.fullmatch(r"DECIMAL\((\d+),(\d+)\)", name)
    if digits is not None:
        return pa.decimal128(int(digits[1]), int(digits[2]))
    return next(arrow for arrow in STREAM_TYPES if spark_type(arrow).upper() == name)


def _kind(arrow: pa.DataType) -> str:
    kinds = {
        "whole": pa.types.is_integer,
        "decimal": pa.types.is_decimal,
        "floating": pa.types.is_floating,
        "text": pa.types.is_string,
    }
    return next((kind for kind, is_it in kinds.items() if is_it(arrow)), str(arrow))
