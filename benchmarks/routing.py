"""What a scrape of `/routing-metrics` costs a server whose 10,000 adapters are all on the device.

    .venv/bin/python benchmarks/routing.py [--adapters 10000] [--names 100] [--scrapes 1000]

A picker reads the page again and again over one connection, as fast as the server answers: first while no adapter is
loaded, then when each has answered once. It is a plain socket, because clients of HTTP for Python take longer than the
server; a picker in Go does not. Beside it the same picker reads the same bytes from a process that only sends them, by
the event loop of the server: the floor. The CPU time is that of the server's process for each scrape, and all else that
the process does meanwhile. The best of five rounds is the least disturbed by other programs on the machine. Last the
picker reads twenty times a second, as pickers do: the server then wakes for each scrape, with cold caches.
"""

import asyncio
import multiprocessing
import re
import socket
import statistics
import time
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import Connection

import uvloop
from common.adapters import make_bytes
from common.callers import ask_all, predict_bytes, run
from common.harness import create_parser, print_milliseconds, seconds_of
from common.ports import ReservedPort
from common.serving import Server, cpu_seconds_of, serving_stock
from peltier_backbone.load import load_backbone
from peltier_server.extensions.picker.server import PATH

PRESET = "bitfit"
# Twenty times a second.
PERIOD_SECONDS = 0.05
GIB = 1024**3
PACED_SCRAPES = 200
ROUNDS = 5
REQUEST = f"GET {PATH} HTTP/1.1\r\nhost: 127.0.0.1\r\nuser-agent: picker\r\naccept-encoding: gzip\r\n\r\n".encode()


class Picker:
    """One connection that is kept."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=30)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def read(self) -> bytes:
        """The whole answer to a request."""
        self._socket.sendall(REQUEST)
        answer = b""
        while not (head := answer.partition(b"\r\n\r\n"))[1]:
            answer += self._socket.recv(65_536)
        left = int(re.search(rb"content-length: (\d+)", head[0])[1]) - len(head[2])  # type: ignore[index]
        while left > 0:
            answer += (piece := self._socket.recv(65_536))
            left -= len(piece)
        return answer

    def close(self) -> None:
        """Ends the connection."""
        self._socket.close()


def send_always(answer: bytes, ready: Connection) -> None:
    """Sends the bytes for whatever arrives at a port of its own, until the process is ended."""

    class Always(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            self.transport: asyncio.Transport = transport  # type: ignore[assignment]

        def data_received(self, data: bytes) -> None:
            self.transport.write(answer)

    async def serve() -> None:
        server = await asyncio.get_running_loop().create_server(Always, "127.0.0.1", 0)
        ready.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    uvloop.run(serve())


def measure(what: str, cpu_seconds: Callable[[], float], port: int, scrapes: int) -> bytes:
    """Prints the costs of that many scrapes; returns an answer."""
    picker, cpu, seconds = Picker(port), list[float](), list[float]()
    answer = picker.read()
    for _ in range(ROUNDS):
        before = cpu_seconds()
        seconds += [seconds_of(picker.read) for _ in range(scrapes)]
        cpu.append((cpu_seconds() - before) / scrapes)
    picker.close()
    listed = len(re.findall(rb"[^,]+", re.search(rb'running_lora_adapters="([^"]*)"', answer)[1]))  # type: ignore[index]
    shown = f"{1e3 * min(cpu):.3f} ms of CPU a scrape (median of the rounds {1e3 * statistics.median(cpu):.3f})"
    share = f"{100 * min(cpu) / PERIOD_SECONDS:.2f} % of a core at 20 a second"
    print(f"{what}: {listed} names, {len(answer)} bytes, {shown}, {share}")
    print_milliseconds("a scrape by the clock", seconds)
    print_milliseconds("the same, 20 a second", paced(port))
    return answer


def paced(port: int) -> list[float]:
    """The seconds of scrapes twenty times a second."""
    picker, seconds = Picker(port), list[float]()
    for _ in range(PACED_SCRAPES):
        time.sleep(PERIOD_SECONDS)
        seconds.append(seconds_of(picker.read))
    picker.close()
    return seconds


def compare(what: str, server: Server, port: int, scrapes: int) -> None:
    """The server's page, and the same bytes from a process that only sends them."""
    answer = measure(what, lambda: server.cpu_seconds, port, scrapes)
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=send_always, args=(answer, there), daemon=True)
    process.start()
    assert process.pid is not None
    measure("  the floor", partial(cpu_seconds_of, process.pid), here.recv(), scrapes)
    process.kill()
    process.join()


def main() -> None:
    options = create_parser(__doc__, adapters=10_000, names=100, scrapes=1000).parse_args()
    flags = ("--max-routing-names", str(options.names), "--device-bytes", str(4 * GIB), "--host-bytes", "0")
    original = {PRESET: make_bytes(load_backbone("minilm"), PRESET, 0)}
    with (
        ReservedPort() as port,
        serving_stock(original, options.adapters, "--routing-port", str(port.number), *flags) as (server, tasks),
    ):
        compare("no adapter on the device", server, port.number, options.scrapes)
        run(ask_all(server.url, [predict_bytes(task, "a gem of a film") for task in tasks], 16))
        resident = int(server.counter("peltier_adapters"))
        compare(f"{resident} adapters on the device", server, port.number, options.scrapes)


if __name__ == "__main__":
    main()
