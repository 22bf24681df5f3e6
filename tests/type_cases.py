"""Values of every type in the type tables: edges and random ones, and what a stream may ask for."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from srj.databases import mysql_table, postgresql_table
from tests.type_walk import TypeCase

if TYPE_CHECKING:
    from collections.abc import Callable


RANDOM = Random(6)
HOW_MANY = 12
_UTC = pa.timestamp("us", "UTC")
_LOCAL = pa.timestamp("us")
_WHOLE = (pa.int64(), pa.int8(), pa.int16(), pa.int32(), pa.decimal128(38, 0))
_NAN = float("nan")
_INFINITIES = (float("inf"), float("-inf"))
# Case, accents put together and apart, zero-width, spaces before and behind, quotes of every kind, four bytes, nothing.
_WORDS = (
    *("", " ", "a", "A", "a ", " a", "ab", "é", "e\u0301", "É", "ß", "ss", "SS", "a\u200b", "\ufeffa"),
    *("\u0130", "i", "\u0131", "Ω", "\u2126", "😀"),  # i with a dot where others have none, ohm and omega
    *("'", '"', "\\", "\\'", "%s", "%", "{a,b}", "[1]", "NULL", "a\tb", "a\nb", "a\u00a0", "x" * 13, "é" * 300),
)
_UUIDS = ("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff")
_UUID_FORMS = (_UUIDS[0].upper(), f"{{{_UUIDS[0]}}}", _UUIDS[0].replace("-", ""), _UUIDS[0][:-1] + "2")
_FIRST, _LAST = datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999_999)  # noqa: DTZ001  the zone follows
_NO_UUIDS = ("", "nonsense", _UUIDS[0] + "0", _UUIDS[0][:-1])
_BYTES = (b"", b"\0", b"\0\0", b"\xff\xfe", b"'", b"\\", b"%", b"a", b"A", b"a ", bytes(range(256)))


def _several(draw: Callable[[], Any]) -> tuple[Any, ...]:
    return tuple(draw() for _ in range(HOW_MANY))


def _wholes(bits: int, *, unsigned: bool = False) -> tuple[int, ...]:
    low, high = (0, 2**bits - 1) if unsigned else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    return (low, high, low + 1, high - 1, 0, 1, 5, *_several(lambda: RANDOM.randint(low, high)))


def _decimals(precision: int, scale: int) -> tuple[Decimal, ...]:
    most = 10**precision - 1
    edges = (0, 1, -1, most, -most)
    return tuple(_scaled(whole, scale) for whole in (*edges, *_several(lambda: RANDOM.randint(-most, most))))


def _scaled(whole: int, scale: int) -> Decimal:
    return Decimal((int(whole < 0), tuple(map(int, str(abs(whole)))), -scale))


def _floats(kind: type[np.float32 | np.float64], *more: float) -> tuple[float, ...]:
    limits = np.finfo(kind)
    edges = (0.0, -0.0, 0.1, 1e10, limits.max, limits.min, limits.tiny, *more)
    return tuple(float(kind(one)) for one in (*edges, *_several(lambda: RANDOM.gauss(0, 1e6))))


def _texts(*, most: int = 400) -> tuple[str, ...]:
    drawn = _several(lambda: "".join(RANDOM.choices("aAeé ßs'\\😀\u0301", k=RANDOM.randint(0, 4))))
    return tuple(word for word in (*_WORDS, *drawn) if len(word) <= most)


def _days(first: date = date.min, last: date = date.max) -> tuple[date, ...]:
    span = (last - first).days
    drawn = _several(lambda: first + timedelta(RANDOM.randint(0, span)))
    return (first, last, date(2024, 2, 29), date(1970, 1, 1), date(1900, 3, 1), *drawn)


def _times(zone: Any, first: datetime = _FIRST, last: datetime = _LAST) -> tuple[datetime, ...]:
    span = (last - first).days - 1
    drawn = _several(lambda: first + timedelta(RANDOM.randint(0, span), RANDOM.randint(0, 86399), RANDOM.randint(0, 999_999)))
    edges = (first, last, datetime(2024, 2, 29, 23, 59, 59, 999_999), datetime(2024, 3, 31, 2, 30))  # noqa: DTZ001  the zone follows
    return tuple(time.replace(tzinfo=zone) for time in (*edges, *drawn))


def _seconds(times: tuple[datetime, ...]) -> tuple[datetime, ...]:
    return tuple(time.replace(microsecond=0) for time in times)


def _postgres(name: str, sql: str, values: tuple[Any, ...], *streams: pa.DataType, **more: Any) -> TypeCase:
    entry = next(one for one in postgresql_table.ENTRIES if one.title == name)
    return TypeCase(entry, sql, values, streams, **more)


def _mysql(name: str, sql: str, values: tuple[Any, ...], *streams: pa.DataType, **more: Any) -> TypeCase:
    entry = next(one for one in mysql_table.ENTRIES if one.title == name)
    return TypeCase(entry, sql, values, streams, **more)


def _probed(probes: tuple[Any, ...], counted: tuple[Any, ...], probed_as: str = "numeric") -> dict[str, Any]:
    """What a stream may ask for besides; some of it can be no value of the column."""
    return {"probes": (*probes, *counted), "counted": counted, "probed_as": probed_as}


def _beyond(*numbers: int, probed_as: str = "numeric") -> dict[str, Any]:
    """Numbers that can't be values of the column."""
    return _probed((), numbers, probed_as)


def _asked(*values: Any) -> dict[str, Any]:
    """What is no value of the column, as the database alone can tell."""
    return {"impossible": values, "counted": ()}


def _arrays() -> list[TypeCase]:
    """Arrays of other cases' values: empty, of NULLs alone, and of some values between which NULLs stand."""
    elements = {
        "bool": (True, False),
        "smallint": _wholes(16),
        "int": _wholes(32),
        "bigint": _wholes(64),
        "real": (0.5, _NAN),
        "float8": _floats(np.float64),
        "numeric(10,2)": _decimals(10, 2),
        "text": _texts(),
        "varchar(5)": _texts(most=5),
        "char(5)": _texts(most=5),
        "mood": _MOODS,
        "short_text": ("abc", ""),
        "uuid": _UUIDS,
        "bytea": _BYTES,
        "date": _days(),
        "timestamp": _times(None),
        "timestamptz": _times(UTC),
        "jsonb": ('{"a": 1}', "null"),
        "amount": (Decimal("1.50"),),
        "any_case": ("a", "A"),
    }
    cases = [_postgres(_ARRAYS, f"{sql}[]", _lists(values)) for sql, values in elements.items()]
    return [*cases, _postgres(_ARRAYS, "few", _lists(_wholes(32)))]


def _lists(values: tuple[Any, ...]) -> tuple[list[Any], ...]:
    drawn = _several(lambda: [None if RANDOM.random() < 0.2 else RANDOM.choice(values) for _ in range(RANDOM.randint(1, 5))])
    return ([], [None], [None, None], list(values), [values[0]], *drawn)


_ARRAYS = "arrays of these types"
_MOODS = ("sad", "Happy", "so so", "")
_CI = "COLLATE walk_ci"
_NUL = ("\0", "a\0")
_FRACTIONS = (Decimal("0.01"), Decimal("1.00"), Decimal(7))
_NO_PRICES = (Decimal("1.005"), Decimal("1e8"), Decimal("-100000000.00"))
_DECIMAL_STREAMS = (pa.decimal128(38, 5), pa.decimal128(10, 2), pa.int64(), pa.decimal128(38, 0))
# What the cases' types need, in a database of PostgreSQL; the extension has a schema that no search_path holds.
POSTGRES_SETUP = """
CREATE SCHEMA extras; CREATE EXTENSION citext SCHEMA extras;
CREATE COLLATION walk_ci (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
CREATE TYPE mood AS ENUM ('sad', 'Happy', 'so so', '');
CREATE DOMAIN short_text AS varchar(3) CHECK (VALUE <> 'no'); CREATE DOMAIN amount AS numeric(9,2); CREATE DOMAIN mood_of AS mood;
CREATE DOMAIN few AS int[]; CREATE DOMAIN any_case AS extras.citext;
CREATE DOMAIN one_label AS text COLLATE walk_ci;
CREATE TYPE pair AS (a int, b text)
"""
_CITEXT = "walked.k OPERATOR(extras.=) stream.k"

POSTGRES = (
    _postgres("boolean", "bool", (True, False), pa.bool_()),
    _postgres("smallint", "smallint", _wholes(16), *_WHOLE, **_beyond(32768, -32769, 2**63 - 1)),
    _postgres("integer", "int", _wholes(32), *_WHOLE, **_beyond(2**31, -(2**31) - 1, 2**63 - 1)),
    _postgres("bigint", "bigint", _wholes(64), *_WHOLE, **_beyond(2**63, -(2**63) - 1, 10**37)),
    _postgres("numeric(p,s)", "numeric(10,2)", _decimals(10, 2), *_DECIMAL_STREAMS, **_probed(_FRACTIONS, _NO_PRICES)),
    _postgres("numeric(p,s)", "numeric(38,10)", _decimals(38, 10), pa.decimal128(38, 10), pa.int64(), probes=(5, 10**18)),
    _postgres("numeric(p,s)", "numeric(5)", _decimals(5, 0), *_WHOLE, **_probed((7,), (100_000, -(10**18)))),
    _postgres("numeric(p,s)", "amount", _decimals(9, 2), pa.decimal128(9, 2), **_probed(_FRACTIONS, ())),
    _postgres(
        "numeric",
        "numeric",
        (*_decimals(38, 18), Decimal("NaN"), Decimal(10) ** 60, Decimal("1.5"), Decimal("1.50"), Decimal("1e-30")),
        *(pa.decimal128(38, 18), pa.decimal128(10, 2), pa.int64()),
        probes=(7, Decimal("1.500")),
        is_column=False,
    ),
    _postgres("real", "real", _floats(np.float32, _NAN, *_INFINITIES), pa.float32(), probes=(0.5, -_NAN)),
    _postgres("double precision", "float8", _floats(np.float64, _NAN, *_INFINITIES, 5e-324), pa.float64(), pa.float32()),
    _postgres("text", 'text COLLATE "C"', _texts(), pa.string(), probes=("absent",), impossible=_NUL),
    _postgres("text", f"text {_CI}", _texts(), pa.string(), probes=("SsX", "E\u0301"), impossible=_NUL),
    _postgres("text", 'text COLLATE "und-x-icu"', _texts(), pa.string(), probes=("absent",), impossible=_NUL),
    _postgres("varchar(n)", "varchar(5)", _texts(most=5), pa.string(), probes=_texts(), probed_as="text", impossible=_NUL),
    _postgres("varchar(n)", "short_text", _texts(most=3), pa.string(), probes=("no", "abcd"), probed_as="text", impossible=_NUL),
    _postgres("char(n)", "char(5)", _texts(most=5), pa.string(), probes=_texts(), probed_as="bpchar", impossible=_NUL),
    _postgres("name", "name", _texts(most=12), pa.string(), probes=("n" * 64, "n" * 63), probed_as="text", impossible=_NUL),
    _postgres("citext", "extras.citext", _texts(), pa.string(), probes=("AB", "SsX"), impossible=_NUL, equal=_CITEXT),
    _postgres("enum", "mood", _MOODS, pa.string(), impossible=("happy", "angry", " sad", *_NUL), counted=_NUL),
    _postgres("enum", "mood_of", _MOODS, pa.string(), impossible=_NUL, equal="walked.k::mood = stream.k::mood"),
    _postgres("citext", "any_case", _texts(), pa.string(), probes=("AB", "SsX"), impossible=_NUL, equal=_CITEXT),
    _postgres("text", "one_label", _texts(), pa.string(), probes=("SsX", "E\u0301"), impossible=_NUL),
    _postgres("uuid", "uuid", _UUIDS, pa.string(), probes=_UUID_FORMS, impossible=(*_NO_UUIDS, *_NUL)),
    _postgres("bytea", "bytea", _BYTES, pa.binary(), probes=(b"\xff",)),
    _postgres("date", "date", _days(), pa.date32(), probes=(date(2000, 1, 1),)),
    _postgres("timestamp", "timestamp", _times(None), _LOCAL),
    _postgres("timestamp", "timestamp(0)", _seconds(_times(None)), _LOCAL, probes=_times(None), probed_as="timestamp"),
    _postgres("timestamp with time zone", "timestamptz", _times(UTC), _UTC),
    *_arrays(),
    _postgres("json, jsonb", "json", ('{"b": 1, "a" : [1.0, "é😀"]}', "null", '""', "1")),
    _postgres("json, jsonb", "jsonb", ('{"b": 1, "a" : [1.0, "é😀"]}', "null", '""', "1e3")),
)

_PAD_CI, _NO_PAD, _BIN = "utf8mb4_general_ci", "utf8mb4_nopad_bin", "utf8mb4_bin"
_DATETIME_EDGES = (datetime(1000, 1, 1), _LAST)  # noqa: DTZ001  DATETIME has no zone
_STAMP_EDGES = (datetime(1970, 1, 1, 0, 0, 1), datetime(2038, 1, 19, 3, 14, 7, 999_999))  # noqa: DTZ001  the zone follows
_NO_STAMPS = (datetime(1960, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, tzinfo=UTC), datetime(1970, 1, 1, tzinfo=UTC))


def _mysql_wholes(name: str, bits: int) -> tuple[TypeCase, TypeCase]:
    half = 2 ** (bits - 1)
    signed, unsigned = (half, -half - 1, 2**64, -(2**64)), (2**bits, -1, -half, 2**64, -(2**64))
    return (
        _mysql(name, name, _wholes(bits), *_WHOLE, **_beyond(*signed, probed_as="DECIMAL(40,0)")),
        _mysql(
            f"{name} unsigned",
            f"{name} unsigned",
            _wholes(bits, unsigned=True),
            *_WHOLE,
            **_beyond(*unsigned, probed_as="DECIMAL(40,0)"),
        ),
    )


def _mysql_texts(sql: str, *, most: int = 400, last: int = 0x10FFFF, **more: Any) -> TypeCase:
    """Text of a column in whose character set this is the last letter."""
    words = [word for word in _texts(most=most) if all(ord(letter) <= last for letter in word)]
    return _mysql(_LONG_TEXT, sql, tuple(words), pa.string(), **more)


_LONG_TEXT = "char, varchar, tinytext, text, mediumtext, longtext"
_PADDED = (b"a\0\0", b"\xff\xfe\0", b"abc")
_LONG_BYTES = "binary, varbinary, tinyblob, blob, mediumblob, longblob"
_PRICED = _probed(_FRACTIONS, _NO_PRICES, "DECIMAL(40,5)")
_WIDE = "VARCHAR(400) CHARACTER SET {} COLLATE {}"
MYSQL = (
    *_mysql_wholes("tinyint", 8),
    *_mysql_wholes("smallint", 16),
    *_mysql_wholes("mediumint", 24),
    *_mysql_wholes("int", 32),
    *_mysql_wholes("bigint", 64),
    _mysql("decimal(p,s)", "DECIMAL(10,2)", _decimals(10, 2), *_DECIMAL_STREAMS, **_PRICED),
    _mysql("decimal(p,s)", "DECIMAL(38,10)", _decimals(38, 10), pa.decimal128(38, 10), pa.int64(), probes=(5,)),
    _mysql("float", "FLOAT", _floats(np.float32)[:4] + _floats(np.float32)[7:], pa.float32(), impossible=(_NAN, *_INFINITIES)),
    _mysql("double", "DOUBLE", _floats(np.float64, 5e-324), pa.float64(), pa.float32(), impossible=(_NAN, *_INFINITIES)),
    _mysql("year", "YEAR", (1901, 2155, 0, 1999, 2024), *_WHOLE, **_probed((1900, 24, 99, 1), (2156, -1, 30_000), "INT")),
    _mysql_texts(_WIDE.format("utf8mb4", _PAD_CI), probes=("ABSENT", "SsX")),
    _mysql_texts(_WIDE.format("utf8mb4", "utf8mb4_unicode_520_ci"), probes=("SsX",)),
    _mysql_texts(_WIDE.format("utf8mb4", _BIN), probes=("a\0",)),
    _mysql_texts(_WIDE.format("latin1", "latin1_swedish_ci"), last=0xFF, **_asked("😀", "Ω", "?Ω")),
    _mysql_texts(_WIDE.format("utf8mb3", "utf8mb3_general_ci"), last=0xFFFF, impossible=("😀", "a😀")),
    _mysql(_LONG_TEXT, _WIDE.format("gbk", "gbk_chinese_ci"), ("中", "a?", "a", "A "), pa.string(), **_asked("😀", "ß", "a😀")),
    _mysql_texts(_WIDE.format("utf16", "utf16_general_ci")),
    _mysql_texts(
        f"CHAR(5) CHARACTER SET utf8mb4 COLLATE {_PAD_CI}", most=5, probes=_texts(), probed_as=_WIDE.format("utf8mb4", _PAD_CI)
    ),
    _mysql_texts("TEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"),
    _mysql("enum", "ENUM('small','Large','')", ("small", "Large", ""), pa.string(), probes=("LARGE",), **_asked("2", "huge")),
    _mysql("set", "SET('red','Blue')", ("red", "Blue", "red,Blue", ""), pa.string(), probes=("blue",), **_asked("3", "green")),
    _mysql(_LONG_BYTES, "VARBINARY(300)", _BYTES, pa.binary(), probes=(b"\xff",)),
    _mysql(_LONG_BYTES, "BINARY(3)", _PADDED, pa.binary(), probes=(b"a", b"a\0", b"abcd"), probed_as="VARBINARY(9)"),
    _mysql(_LONG_BYTES, "BLOB", _BYTES, pa.binary()),
    _mysql("date", "DATE", _days(), pa.date32()),
    _mysql("datetime", "DATETIME(6)", _times(None, *_DATETIME_EDGES), _LOCAL),
    _mysql("datetime", "DATETIME", _seconds(_times(None)), _LOCAL, probes=_times(None), probed_as="DATETIME(6)"),
    _mysql("timestamp", "TIMESTAMP(6)", _times(UTC, *_STAMP_EDGES), _UTC, impossible=_NO_STAMPS),
)
# What one of the two servers has alone.
MARIADB_ONLY = (
    _mysql("decimal(p,s)", "DECIMAL(38,38)", _decimals(38, 38), pa.decimal128(38, 38)),
    _mysql_texts(_WIDE.format("utf8mb4", _NO_PAD), probes=("a\0",)),
    _mysql("uuid", "UUID", _UUIDS, pa.string(), probes=(_UUIDS[0].upper(), _UUIDS[0].replace("-", "")), impossible=_NO_UUIDS),
    _mysql("inet4", "INET4", ("1.2.3.4", "127.0.0.1", "255.255.255.255"), pa.string(), **_asked("", "1.2.3", "::1")),
    _mysql(
        "inet6",
        "INET6",
        ("2001:db8::1", "::", "::ffff:1.2.3.4"),
        pa.string(),
        probes=("2001:DB8:0::1",),
        **_asked("", "x"),
    ),
    _mysql_texts(_WIDE.format("utf8mb4", "utf8mb4_uca1400_as_ci"), probes=("SsX",)),
)
MYSQL_ONLY = (
    _mysql_texts(_WIDE.format("utf8mb4", "utf8mb4_0900_ai_ci"), probes=("a\0", "SsX")),
    _mysql_texts(_WIDE.format("utf8mb4", "utf8mb4_0900_as_cs"), probes=("a\0",)),
    _mysql_texts(_WIDE.format("utf8mb4", "utf8mb4_0900_bin"), probes=("a\0",)),
    _mysql("decimal(p,s)", "DECIMAL(38,30)", _decimals(38, 30), pa.decimal128(38, 30)),
    _mysql("json", "JSON", ('{"a": [1, "é😀"]}', "null", '""', "1.5")),
)
