"""PgBouncer before a test's PostgreSQL, each transaction over any of a few connections."""

from __future__ import annotations

import functools
from contextlib import suppress
from socket import create_connection
from typing import TYPE_CHECKING

from srj.embedded import HOST, ServerProcess, TemporaryServer
from tests import servers

if TYPE_CHECKING:
    from tests.servers import Server


class PgBouncer(TemporaryServer):
    """It pools transactions, of all databases of a server, over so many connections each.

    Args:
        server: that it stands before.
        connections: to each of its databases.
        pools: what gets a connection of its own, ``"session"``, ``"transaction"`` or ``"statement"``.
    """

    def __init__(self, server: Server, connections: int, pools: str = "transaction") -> None:
        super().__init__("srj-pgbouncer-", "postgres", "nobody")
        self._server, self._connections, self._pools = server, connections, pools
        self._program = servers.installed("PgBouncer", functools.partial(servers.found, "pgbouncer"), ["pgbouncer"])
        self._start_on_free_port()

    def url(self, database: str) -> str:
        """Of a database, through it."""
        return self._server.url_for(database=database).replace(f":{self._server.port}/", f":{self.port}/")

    def _launch(self, port: int) -> ServerProcess:
        users = self._write_private("users", f'"{self._server.user}" "{self._server.password}"\n')
        settings = self._write_private(
            "settings",
            f"[databases]\n* = host={self._server.host} port={self._server.port}\n[pgbouncer]\nlisten_addr = {HOST}\n"
            f"listen_port = {port}\nunix_socket_dir =\nauth_type = scram-sha-256\nauth_file = {users}\n"
            f"pool_mode = {self._pools}\ndefault_pool_size = {self._connections}\n",
        )
        process = ServerProcess([str(self._program), str(settings)], self._folder, account=self._account)
        process.wait_until(lambda: self._is_ready(port), "PgBouncer")
        return process

    def _is_ready(self, port: int) -> bool:
        with suppress(ConnectionRefusedError), create_connection((HOST, port), timeout=5):
            return True
        return False
