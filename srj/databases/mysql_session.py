"""One connection to MySQL or MariaDB, its session in a known state: what describing tables and looking keys up share."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import aiomysql
from pymysql.constants import COMMAND

from srj.databases.mysql_errors import connecting
from srj.databases.mysql_rows import BulkResult
from srj.databases.mysql_sql import LONGEST_STATEMENT
from srj.errors import LookupFailedError, RequestError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from srj.table import DatabaseUrl

# sql_mode: backslashes escape and double quotes are text, whatever the server's default is, since the driver quotes parameters
# and users write expressions by that; an aggregate among columns is an error rather than one row for all keys.
# time_zone: a TIMESTAMP is an instant and leaves as UTC.
_SETTINGS = (
    "SET SESSION sql_mode = 'ONLY_FULL_GROUP_BY,STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION', time_zone = '+00:00', "
    "SESSION transaction_isolation = 'READ-COMMITTED'"
)
_SETTINGS_MARIADB = _SETTINGS.replace("transaction_isolation", "tx_isolation")
_JOIN_BYTES = 8 * 2**20  # for the keys of a lookup by a hash join: with less the table is read more than once
_FAREWELL = 1.0  # seconds to say goodbye in


@dataclass(frozen=True)
class Result:
    """Rows as the server sends them: bytes, or None for NULL.

    Attributes:
        rows: a tuple a row.
        fields: the driver's description of each column (type_code, flags, charsetnr, length, scale, name).
    """

    rows: Sequence[tuple[bytes | None, ...]]
    fields: Sequence[Any]

    def texts(self) -> list[tuple[str | None, ...]]:
        """The rows as text."""
        return [tuple(None if value is None else value.decode() for value in row) for row in self.rows]


class Session:
    """An open connection."""

    def __init__(self, driver: Any, url: DatabaseUrl) -> None:
        self._driver = driver
        self._url = url
        self.server = ""
        self.is_mariadb = "mariadb" in driver.get_server_info().lower()
        self.max_packet = 0
        self.folds_names = False

    @classmethod
    async def open(cls, url: DatabaseUrl, timeout: float) -> Session:
        """Connect and bring the session into its known state.

        Raises:
            ConnectionFailedError: no connection could be made now.
            LookupFailedError: the login or the database is refused.
        """
        url = url.resolve()
        with connecting(url, timeout):
            async with asyncio.timeout(timeout):
                return await cls._open(url)

    @classmethod
    async def _open(cls, url: DatabaseUrl) -> Session:
        context = _tls(url)
        driver = await aiomysql.connect(
            host=url.host,
            port=url.port,
            user=url.user,
            # The driver would encode it as Latin-1 and fail; servers keep the bytes that UTF-8 clients sent.
            password=(url.password or "").encode().decode("latin-1"),
            db=url.database,
            charset="utf8mb4",
            use_unicode=False,  # bytes, without conversion: Arrow parses whole columns
            conv={},
            autocommit=True,
            ssl=context,
            program_name="srj",
        )
        session = cls(driver, url)
        try:
            await session._prepare()
            if context is not None:
                await session._require_tls()
        except BaseException:
            driver.close()
            raise
        return session

    async def query(self, sql: str, parameters: Sequence[str | int] = ()) -> Result:
        """Run one statement; the driver's errors pass through.

        Args:
            sql: the statement; with parameters, ``%s`` stands for each and ``%%`` for a percent sign.
            parameters: values, quoted by the driver.
        """
        # Not through a cursor: it hides signs and character sets of results, and asks for the text of every warning, of which
        # keys that can't be values of the column make one each.
        text = sql % tuple(map(self.literal, parameters)) if parameters else sql
        await self._driver._execute_command(COMMAND.COM_QUERY, text.encode())  # noqa: SLF001
        result = BulkResult(self._driver)
        await result.read()
        if result.server_status is not None:  # it says whether backslashes escape, by which the driver quotes
            self._driver.server_status = result.server_status
        return Result(result.rows or (), getattr(result, "fields", ()))

    async def streaming(self, kind: Any) -> Any:
        """A cursor of the driver's own, of this class, for a result that is read piece by piece."""
        return await self._driver.cursor(kind)

    def literal(self, value: str | int) -> str:
        """A value as an SQL literal, quoted by the driver for this session's sql_mode."""
        quoted: str = self._driver.escape(value)
        return quoted

    def is_open(self) -> bool:
        """Whether neither side has closed it, as far as this side can know."""
        return not self._driver.closed and not self._driver._reader.eof_received  # noqa: SLF001 - as the driver's own pool asks

    async def limit_statements(self, timeout: float) -> None:
        """Have the server end every later statement of this session that takes longer, in seconds."""
        milliseconds = max(1, round(min(timeout, LONGEST_STATEMENT) * 1000))
        limit = f"max_statement_time = {milliseconds / 1000}" if self.is_mariadb else f"max_execution_time = {milliseconds}"
        await self.query(f"SET SESSION {limit}")

    async def prefer_hash_joins(self) -> None:
        """For a table without an index: hash the keys and read the table once; MySQL does so by itself."""
        if self.is_mariadb:
            # By itself it makes the hash table for the 40 rows that it expects of JSON_TABLE: with 1,000 it took 20 times as long.
            await self.query(
                "SET SESSION join_cache_level = 8, optimizer_switch = 'optimize_join_buffer_size=off', "
                f"join_buffer_size = {_JOIN_BYTES}, join_buffer_space_limit = {2 * _JOIN_BYTES}"
            )

    async def kill(self) -> None:
        """End this connection's statement in the database, through another connection, without raising."""
        with contextlib.suppress(Exception):
            async with asyncio.timeout(2 * _FAREWELL):
                other = await Session.open(self._url, _FAREWELL)
                try:
                    await other.query("KILL %s", (self._driver.thread_id(),))
                finally:
                    await other.close()

    async def close(self) -> None:
        """Say goodbye and close, without waiting long and without raising."""
        with contextlib.suppress(Exception):
            async with asyncio.timeout(_FAREWELL):
                await self._driver.ensure_closed()
        self._driver.close()

    async def _prepare(self) -> None:
        await self.query(_SETTINGS_MARIADB if self.is_mariadb else _SETTINGS)
        [row] = (await self.query("SELECT VERSION(), @@max_allowed_packet, @@lower_case_table_names")).texts()
        version, packet, folding = (value or "" for value in row)
        self.server = f"{'MariaDB' if self.is_mariadb else 'MySQL'} {version.split('-')[0]}"
        self.max_packet = int(packet)
        self.folds_names = folding != "0"

    async def _require_tls(self) -> None:
        # The driver goes on in clear text, silently, when the server offers no TLS.
        rows = (await self.query("SHOW SESSION STATUS LIKE 'Ssl_cipher'")).texts()
        if not rows or not rows[0][1]:
            place = f"{self._url.host}:{self._url.port}"
            raise LookupFailedError(f"expected an encrypted connection to {place}, but it offers none; set TLS up or drop ssl=true")


def _tls(url: DatabaseUrl) -> ssl.SSLContext | None:
    """The URL's options: ``ssl=true`` (certificate and host name checked), ``ssl_ca=/path/to/ca.pem``."""
    options = dict(url.options)
    unknown = sorted(set(options) - {"ssl", "ssl_ca"})
    if unknown:
        raise RequestError(f"expected the options ssl and ssl_ca in the URL of {url.host}, got {unknown[0]!r}; drop it")
    if options.get("ssl", "false") not in {"true", "false"}:
        raise RequestError(f"expected ssl=true or ssl=false in the URL of {url.host}, got {options['ssl']!r}; correct it")
    if options.get("ssl", "true" if "ssl_ca" in options else "false") == "false":
        return None
    try:
        return ssl.create_default_context(cafile=options.get("ssl_ca"))
    except OSError as error:
        raise RequestError(f"expected ssl_ca to name certificates, got {options['ssl_ca']!r} ({error}); correct it") from error
