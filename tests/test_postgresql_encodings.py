"""PostgreSQL databases in other encodings than UTF-8: which keys they can hold, which values they can send."""

from __future__ import annotations

import asyncio
import secrets
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import asyncpg
import pyarrow as pa
import pytest

from srj.databases.conversion import convert_key
from srj.databases.postgresql_types import python_encoding
from srj.errors import LookupFailedError
from tests.postgresql_place import TIMEOUT, Place, own_database

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.servers import Server

_ONE_BYTE_CODECS = ["iso8859-1", "iso8859-8", "iso8859-16", "cp1252", "cp1253", "koi8-r"]


@pytest.fixture(scope="module")
def place(postgres: Server) -> Iterator[Place]:
    with own_database(postgres) as place:
        yield place


@contextmanager
def encoded(place: Place, encoding: str) -> Iterator[Place]:
    """A database in this encoding, gone afterwards."""
    name = f"{encoding.lower()}_{secrets.token_hex(4)}"
    place.sql(f"CREATE DATABASE {name} TEMPLATE template0 ENCODING '{encoding}' LC_COLLATE 'C' LC_CTYPE 'C'")
    try:
        yield replace(place, name=name)
    finally:
        place.sql(f"DROP DATABASE {name} WITH (FORCE)")


def test_a_key_outside_the_databases_encoding_is_known_as_impossible(place: Place) -> None:
    """Else the server would refuse its whole batch."""
    with encoded(place, "LATIN1") as latin:
        latin.sql("CREATE TABLE names (k text PRIMARY KEY, v text); INSERT INTO names VALUES ('é', 'ü')")
        (key,) = latin.describe("names", "k").key
        keys, impossible = convert_key(pa.array(["é", "€", "e"]), key)
        assert (keys.to_pylist(), None if impossible is None else impossible.tolist()) == (["é", None, "e"], [False, True, False])
        assert latin.lookup(["e", "é"], "names", "k") == [(1, "ü")]
        assert latin.lookup(["é", "€"], "names", "k") == [(0, "ü")]


def test_which_characters_an_encoding_of_several_bytes_has_is_for_the_database_to_say(place: Place) -> None:
    """Python's EUC_JP has a wave dash, which PostgreSQL's lacks, and no Roman two, which PostgreSQL's has."""
    with encoded(place, "EUC_JP") as japanese:
        japanese.sql("CREATE TABLE names (k text, n int, v text, PRIMARY KEY (k, n))")
        japanese.sql("INSERT INTO names VALUES ('Ⅱ', 1, 'two'), ('日本', 2, 'そ')")
        (key, _) = japanese.describe("names", ("k", "n")).key
        texts = ["〜", "Ⅱ", "a", "日本", "‖", "¥", "Ⅱ"]
        beyond_python = pa.array([317 * 10**15], pa.timestamp("us"))
        japanese.sql("CREATE TABLE times (k text, n timestamp, v int)")
        assert japanese.lookup((["〜"], [beyond_python[0]]), "times", ("k", "n")) == []
        keys, impossible = convert_key(pa.array(texts), key)
        assert (keys.to_pylist(), impossible) == (texts, None)
        assert japanese.lookup((texts, [1, 1, 1, 2, 1, 1, 2]), "names", ("k", "n")) == [(1, "two"), (3, "そ")]


@pytest.mark.parametrize("encoding", ["LATIN1", "LATIN10", "WIN1252", "WIN1253", "KOI8R", "ISO_8859_8"])
def test_python_and_the_server_have_the_same_characters_in_an_encoding_of_one_byte(place: Place, encoding: str) -> None:
    """So what Python can't express is impossible as a key: asked of the server for every character that may be in any of them."""
    python = python_encoding(encoding)
    assert python is not None
    characters = {character for byte in range(128, 256) for character in bytes([byte]).decode(python, "ignore")}
    others = {
        character for kin in _ONE_BYTE_CODECS for byte in range(128, 256) for character in bytes([byte]).decode(kin, "ignore")
    }

    async def stored(own: Place) -> set[str]:
        connection = await asyncpg.connect(own.server.url_for(database=own.name))
        has = set()
        for character in characters | others:
            with suppress(asyncpg.UntranslatableCharacterError):
                has.add(await connection.fetchval("SELECT $1::text", character))
        await connection.close()
        return has

    with encoded(place, encoding) as own:
        assert asyncio.run(stored(own)) == characters


def test_a_value_that_can_not_be_sent_is_an_error_and_not_an_absence(place: Place) -> None:
    """PostgreSQL stores some bytes as EUC_JP that it can't turn into UTF-8."""
    with encoded(place, "EUC_JP") as japanese:
        japanese.sql("CREATE TABLE names (k text PRIMARY KEY, v text)")
        japanese.sql(r"INSERT INTO names VALUES ('a', 'b'), ('c', convert_from('\xa9a1', 'EUC_JP'))")
        assert japanese.lookup(["a", "〜"], "names", "k") == [(0, "b")]
        with pytest.raises(LookupFailedError, match="no equivalent"):
            japanese.lookup(["a", "〜", "c"], "names", "k")


def test_bytes_that_are_no_text_are_an_error_that_the_connection_survives(place: Place) -> None:
    """A database without an encoding holds any bytes."""
    with encoded(place, "SQL_ASCII") as plain:
        plain.sql(r"CREATE TABLE names (k int, v text); INSERT INTO names VALUES (1, E'\xff'), (2, 'a')")

        async def run() -> list[dict[str, Any]]:
            async with plain.connection("names", "k") as (connection, _):
                with pytest.raises(LookupFailedError, match="names"):
                    await connection.lookup((pa.array([1], pa.int32()),), TIMEOUT)
                rows: list[dict[str, Any]] = (await connection.lookup((pa.array([2], pa.int32()),), TIMEOUT)).rows.to_pylist()
                return rows

        assert asyncio.run(run()) == [{"v": "a"}]
