"""Cheap callers: HTTP/1.1 over connections that stay open, without a client library.

Requests are bytes made beforehand, and callers read only the status and the length of an answer, so one core can send
far more requests than a server answers. A status other than 200 ends the benchmark.
"""

import asyncio
import itertools
import json
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TypeVar, cast
from urllib.parse import urlsplit

import uvloop

T = TypeVar("T")
_HEAD_END = b"\r\n\r\n"
_LENGTH = b"content-length:"
# Of an answer in chunks, which has no length; its body is left in chunks.
_LAST_CHUNK = b"\r\n0\r\n\r\n"
# An answer takes seconds at most, even from a machine that is busy with other things.
_PATIENCE_SECONDS = 60.0


def request_bytes(path: str, body: object, key: str | None = None) -> bytes:
    """A POST of JSON, as the caller of `key`."""
    data = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {len(data)}"
    bearer = f"\r\nauthorization: Bearer {key}" if key else ""
    return (head + bearer).encode() + _HEAD_END + data


def predict_bytes(task: str, text: str) -> bytes:
    """One text for one task."""
    return request_bytes(f"/v1/tasks/{task}/predict", {"inputs": text})


def status_of(error: RuntimeError) -> str:
    """The status of an answer for which `HttpConnection.ask` has raised."""
    return str(error).split(" ", 2)[1]


class HttpConnection(asyncio.Protocol):
    """One connection, with one request in progress at a time."""

    def __init__(self) -> None:
        self._received = bytearray()
        self._body_at = 0
        self._whole_bytes: int | None = None
        self._answer: asyncio.Future[bytes] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(exc or ConnectionResetError("the server hung up"))

    def ask(self, request: bytes) -> "asyncio.Future[bytes]":
        """The body of the answer, once it is whole. Raises ConnectionResetError where the connection is closed, and
        RuntimeError for another status than 200."""
        if self.transport.is_closing():
            raise ConnectionResetError("the server hung up")
        self._answer = asyncio.get_running_loop().create_future()
        self.transport.write(request)
        return self._answer

    def data_received(self, data: bytes) -> None:
        self._received += data
        if not self._body_at and not self._read_head():
            return
        if self._whole_bytes is None:
            if not self._received.endswith(_LAST_CHUNK):
                return
        elif len(self._received) < self._whole_bytes:
            return
        whole, body_at = bytes(self._received), self._body_at
        self._received, self._body_at = bytearray(), 0
        if self._answer is None or self._answer.done():
            return
        if whole.startswith(b"HTTP/1.1 200"):
            self._answer.set_result(whole[body_at:])
        else:
            self._answer.set_exception(RuntimeError(whole.decode()))

    def _read_head(self) -> bool:
        """Where the body begins, and where it ends if the head says so; False before the head is whole."""
        end = self._received.find(_HEAD_END)
        if end < 0:
            return False
        self._body_at = end + len(_HEAD_END)
        _, found, length = bytes(self._received[:end]).lower().partition(_LENGTH)
        self._whole_bytes = self._body_at + int(length.partition(b"\r\n")[0]) if found else None
        return True


@asynccontextmanager
async def connections(url: str, count: int) -> AsyncIterator[list[HttpConnection]]:
    """Opens `count` connections."""
    host, _, port = urlsplit(url).netloc.partition(":")
    loop = asyncio.get_running_loop()
    opened = [(await loop.create_connection(HttpConnection, host, int(port)))[1] for _ in range(count)]
    try:
        yield opened
    finally:
        for connection in opened:
            connection.transport.close()


async def ask_all(url: str, requests: Sequence[bytes], num_callers: int) -> list[bytes]:
    """Sends every request once, a few at a time; returns the bodies in the order of the requests."""
    bodies: dict[int, bytes] = {}
    turns = iter(enumerate(requests))

    async def call(connection: HttpConnection) -> None:
        for number, request in turns:
            bodies[number] = await connection.ask(request)

    async with asyncio.timeout(_PATIENCE_SECONDS * len(requests)), connections(url, num_callers) as opened:
        await asyncio.gather(*map(call, opened))
    return [bodies[number] for number in range(len(requests))]


async def ask_for(url: str, requests: Iterable[bytes], num_callers: int, seconds: float) -> list[tuple[float, bytes]]:
    """The time of each answer, in seconds from the start, and its body. Each caller asks again as soon as it is
    answered, until `seconds` are over; the last answers arrive later."""
    turns, answers = itertools.cycle(requests), []

    async def call(connection: HttpConnection, start: float) -> None:
        while time.monotonic() < start + seconds:
            body = await connection.ask(next(turns))
            answers.append((time.monotonic() - start, body))

    async with asyncio.timeout(seconds + _PATIENCE_SECONDS), connections(url, num_callers) as opened:
        start = time.monotonic()
        await asyncio.gather(*(call(connection, start) for connection in opened))
    return answers


async def ask_at(url: str, arrivals: Sequence[tuple[float, bytes]], num_connections: int) -> list[float]:
    """Seconds from each request's arrival to its answer, independent of earlier answers.

    Arrivals are seconds from now, in order. If all connections are busy, a request waits for one, and its latency
    includes this time: a slow server delays no request (no coordinated omission).
    """
    loop, seconds = asyncio.get_running_loop(), [0.0] * len(arrivals)
    async with asyncio.timeout(arrivals[-1][0] + _PATIENCE_SECONDS), AsyncExitStack() as stack:
        free: asyncio.Queue[HttpConnection] = asyncio.Queue()
        for connection in await stack.enter_async_context(connections(url, num_connections)):
            free.put_nowait(connection)
        start = loop.time()

        async def call(number: int, due: float, request: bytes) -> None:
            connection = await free.get()
            # The server closes a connection that has not been used for some seconds.
            if connection.transport.is_closing():
                (connection,) = await stack.enter_async_context(connections(url, 1))
            await connection.ask(request)
            free.put_nowait(connection)
            seconds[number] = loop.time() - due

        async with asyncio.TaskGroup() as asked:
            for number, (moment, request) in enumerate(arrivals):
                if (left := start + moment - loop.time()) > 0:
                    await asyncio.sleep(left)
                asked.create_task(call(number, start + moment, request))
    return seconds


def poisson(rate: float, seconds: float, gaps: Callable[[float], float]) -> Iterator[float]:
    """Moments of arrivals at `rate` a second; `gaps` draws from an exponential distribution, given its rate."""
    moment = gaps(rate)
    while moment < seconds:
        yield moment
        moment += gaps(rate)


def run(work: Coroutine[object, object, T]) -> T:
    """Runs `work` on uvloop, the cheapest event loop."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work)
