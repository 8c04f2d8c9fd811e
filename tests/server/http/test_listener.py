"""Closed connections do not delay new callers behind them."""

import asyncio
import errno
import os
import resource
import socket
from asyncio import Protocol, Transport
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import uvloop
from peltier_server.http import listener
from peltier_server.http.listener import Listener

from tests.server.conftest import until


class Greeting(Protocol):
    number = 0

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        Greeting.number += 1
        transport.write(b"hello")
        transport.close()


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    Greeting.number = 0
    with socket.create_server(("127.0.0.1", 0), backlog=1024) as one:
        yield one


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def runner(request: pytest.FixtureRequest) -> Iterator[asyncio.Runner]:
    with asyncio.Runner(loop_factory=request.param) as one:
        yield one


@contextmanager
def _no_file_left(some: socket.socket) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with some.dup() as lowest:
        resource.setrlimit(resource.RLIMIT_NOFILE, (lowest.fileno(), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def _hear(address: tuple[str, int]) -> bytes:
    reader, writer = await asyncio.open_connection(*address)
    heard = await reader.read()
    writer.close()
    return heard


async def _turns_until_heard(listening: socket.socket) -> int:
    """Turns of the event loop from when the listener begins until a caller who waits is heard."""
    opened = Listener(listening, Greeting)
    turns = 0
    while not Greeting.number:
        await asyncio.sleep(0)
        turns += 1
    opened.close()
    await opened.wait_closed()
    return turns


def test_a_newcomer_does_not_wait_behind_those_who_have_left(runner: asyncio.Runner, listening: socket.socket) -> None:
    """Three hundred have come, sent a request and closed before it; none of them gets a protocol."""
    for _ in range(300):
        with socket.create_connection(listening.getsockname()) as gone:
            gone.sendall(b"a request")
    with socket.create_connection(listening.getsockname(), timeout=60) as newcomer:
        assert runner.run(_turns_until_heard(listening)) < 50
        assert newcomer.recv(10) == b"hello"
    assert Greeting.number == 1


def test_without_a_file_left_it_waits_and_goes_on(runner, listening, monkeypatch, caplog):
    """The log has one line for each wait, and callers that came meanwhile are served."""
    monkeypatch.setattr(listener, "_RETRY_SECONDS", 0.05)

    async def meet(newcomer: socket.socket) -> bytes:
        opened = Listener(listening, Greeting)
        with _no_file_left(listening):
            await until(lambda: bool(caplog.records))
        reader, writer = await asyncio.open_connection(sock=newcomer)
        heard = await reader.read()
        writer.close()
        opened.close()
        await opened.wait_closed()
        return heard

    with socket.create_connection(listening.getsockname()) as newcomer:
        assert runner.run(meet(newcomer)) == b"hello"
    assert caplog.messages[0] == f"no connection can be accepted for 0.05 s: {os.strerror(errno.EMFILE)}"


def test_closed_it_accepts_nobody(runner: asyncio.Runner, listening: socket.socket) -> None:
    """Open connections continue, and so do other listeners."""

    async def meet() -> bytes:
        opened = Listener(listening, Greeting)
        heard = await _hear(listening.getsockname())
        opened.close()
        await opened.wait_closed()
        with socket.create_connection(listening.getsockname()), socket.create_server(("127.0.0.1", 0)) as other:
            open_one = Listener(other, Greeting)
            assert await _hear(other.getsockname()) == heard  # the loop has looked at both sockets
            open_one.close()
            await open_one.wait_closed()
        return heard

    assert runner.run(meet()) == b"hello"
    assert Greeting.number == 2
