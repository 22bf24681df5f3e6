"""A network in a few lines: bytes between clients and a server arrive later, all by the same time or by a random one."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from srj.errors import ConnectionFailedError

if TYPE_CHECKING:
    from collections.abc import Iterator


class DelayProxy:
    """Listens on a free port of this machine and passes everything on, in order.

    Args:
        host, port: the server.
        seconds: that each way takes.
        jitter: up to so many seconds more, anew for each piece of data.

    Attributes:
        seconds, jitter: may be changed at any time.
        port: where clients connect.
    """

    def __init__(self, host: str, port: int, seconds: float, jitter: float = 0.0) -> None:
        self.seconds, self.jitter = seconds, jitter
        self.port = 0
        self._target = (host, port)
        self._loop = asyncio.new_event_loop()
        self._is_up = threading.Event()
        self._thread = threading.Thread(target=self._run, name="delay-proxy", daemon=True)

    def start(self) -> None:
        """Begin to listen."""
        self._thread.start()
        if not self._is_up.wait(10):
            raise TimeoutError("expected the proxy to listen within 10 s")

    def stop(self) -> None:
        """Cut all connections."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", 0))
        self.port = server.sockets[0].getsockname()[1]
        self._is_up.set()
        self._loop.run_forever()
        server.close()
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        self._loop.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there_reader, there_writer = await asyncio.open_connection(*self._target)
        # Cut by `stop` it ends as well: asyncio's own callback would report a cancelled one as a fault.
        with suppress(OSError, asyncio.CancelledError):
            await asyncio.gather(self._pass(reader, there_writer), self._pass(there_reader, writer))

    async def _pass(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        """Read on while earlier data are on their way: a slow network is not a narrow one."""
        on_the_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

        async def deliver() -> None:
            while True:
                due, data = await on_the_way.get()
                await asyncio.sleep(max(0.0, due - self._loop.time()))
                if not data:
                    target.close()
                    return
                target.write(data)
                await target.drain()

        delivery = self._loop.create_task(deliver())
        data = b"more"
        while data:
            data = b""
            with suppress(OSError):
                data = await source.read(1 << 16)
            more = random.uniform(0, self.jitter)  # noqa: S311  no secret
            on_the_way.put_nowait((self._loop.time() + self.seconds + more, data))
        await delivery


@contextmanager
def apart(host: str, port: int, seconds: float) -> Iterator[int]:
    """The port of a proxy in a process of its own, where no busy client keeps it from passing on what is due."""
    command = [sys.executable, "-P", "-m", "srj.experiments.delay_proxy", host, f"{port}", f"{seconds}"]
    # It ends with its standard input, so also when this process is killed.
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None  # noqa: S101  for mypy
    assert process.stdout is not None  # noqa: S101  for mypy
    try:
        told = process.stdout.readline()
        if not told:
            raise ConnectionFailedError(f"expected a proxy before {host}:{port} to start, but it ended; its error stands above")
        yield int(told)
    finally:
        process.stdin.close()
        process.wait(10)
        process.stdout.close()


@contextmanager
def delayed(host: str, port: int, seconds: float, jitter: float = 0.0) -> Iterator[DelayProxy]:
    """A proxy that is gone afterwards."""
    proxy = DelayProxy(host, port, seconds, jitter)
    proxy.start()
    try:
        yield proxy
    finally:
        proxy.stop()


def main(host: str, port: str, seconds: str) -> None:
    """Tell the port, and go on until standard input ends."""
    with delayed(host, int(port), float(seconds)) as proxy:
        print(proxy.port, flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
