"""The slow network: it delays, and it ends without a word, connections under way or not."""

from __future__ import annotations

import socket
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from srj.experiments.delay_proxy import apart, delayed

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def _echo() -> Iterator[tuple[socket.socket, int]]:
    """A server's socket and its port; who tests accepts."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server, server.getsockname()[1]


def test_what_is_under_way_when_it_stops_is_cut_without_complaint(caplog: pytest.LogCaptureFixture) -> None:
    """One connection has data on their way, another none."""
    with _echo() as (server, port):
        with delayed("127.0.0.1", port, 5.0) as proxy:
            clients = [socket.create_connection(("127.0.0.1", proxy.port), 5.0) for _ in range(2)]
            accepted = [server.accept()[0] for _ in clients]
            clients[0].sendall(b"never arrives")
            time.sleep(0.1)
        for one in (*clients, *accepted):
            one.close()
    assert caplog.records == []


def test_one_in_a_process_of_its_own_delays_both_ways_and_ends_with_its_block() -> None:
    with _echo() as (server, port):
        with apart("127.0.0.1", port, 0.05) as place:
            begun = time.perf_counter()
            with socket.create_connection(("127.0.0.1", place), 5.0) as client, server.accept()[0] as there:
                client.sendall(b"?")
                there.sendall(there.recv(1))
                assert client.recv(1) == b"?"
            assert 0.1 <= time.perf_counter() - begun < 2.0
        with pytest.raises(OSError):  # noqa: PT011  nobody listens, in whatever words the system says so
            socket.create_connection(("127.0.0.1", place), 1.0)
