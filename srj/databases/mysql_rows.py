"""Reading a result's rows by the chunk: the driver awaits twice for every row, which costs more than the database does."""

from __future__ import annotations

from typing import Any

from aiomysql.connection import MySQLResult
from pymysql import err
from pymysql.protocol import EOFPacketWrapper, MysqlPacket

_CHUNK = 1 << 18
_HEAD = 4  # three bytes of length, one that counts
_FULL = 0xFFFFFF  # a packet of this length goes on in the next
_EOF, _ERROR = 0xFE, 0xFF
_NULL = 251
_SIZES = {252: 2, 253: 3, 254: 8}  # bytes of a value's length that does not fit into one


class BulkResult(MySQLResult):  # type: ignore[misc]  # the driver has no types
    """The driver's result, with rows as tuples of bytes and None."""

    connection: Any

    async def _read_rowdata_packet(self) -> None:
        connection = self.connection
        self.rows = []
        data, start = b"", 0
        while True:
            stop = _packet_end(data, start)
            if stop is None:
                data, start = data[start:] + await _more(connection), 0
                continue
            payload = _payload(data, start, stop)
            start = stop
            if payload[0] == _ERROR or (payload[0] == _EOF and len(payload) < 9):
                break
            self.rows.append(_row(payload, self.field_count))
        packet = MysqlPacket(payload, connection.encoding)
        packet.check_error()
        end = EOFPacketWrapper(packet)
        self.warning_count, self.has_next = end.warning_count, end.has_next
        self.affected_rows = len(self.rows)
        self.connection = None


async def _more(connection: Any) -> bytes:
    """What has come since; the connection is given up when nothing more will come or nobody waits any longer."""
    try:
        data: bytes = await connection._reader.read(_CHUNK)  # noqa: SLF001
    except BaseException:
        connection.close()
        raise
    if not data:
        connection.close()
        raise err.OperationalError(2013, "Lost connection to MySQL server during query")
    return data


def _packet_end(data: bytes, start: int) -> int | None:
    """Where the packet that begins here ends, its continuations included; None if it is not all there yet."""
    while start + _HEAD <= len(data):
        length = int.from_bytes(data[start : start + 3], "little")
        start += _HEAD + length
        if length < _FULL:
            return start if start <= len(data) else None
    return None


def _payload(data: bytes, start: int, stop: int) -> bytes:
    """A packet without its heads."""
    if stop - start < _HEAD + _FULL:
        return data[start + _HEAD : stop]
    whole = _HEAD + _FULL
    return b"".join(data[part + _HEAD : min(part + whole, stop)] for part in range(start, stop, whole))


def _row(payload: bytes, count: int) -> tuple[bytes | None, ...]:
    row: list[bytes | None] = []
    at = 0
    for _ in range(count):
        length = payload[at]
        at += 1
        if length == _NULL:
            row.append(None)
            continue
        if length > _NULL:
            size = _SIZES[length]
            length = int.from_bytes(payload[at : at + size], "little")
            at += size
        row.append(payload[at : at + length])
        at += length
    return tuple(row)
