"""A TCP proxy on loopback that can cut connections, refuse them or swallow their bytes."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Literal

Mode = Literal["open", "cut", "silent", "refused"]
_CHUNK_BYTES = 65536


class FaultProxy:
    """Forwards every connection to `host`:`port` in a separate thread. Callers connect to `port` of the proxy."""

    def __init__(self, host: str, port: int) -> None:
        self.port = 0
        self._target = (host, port)
        self._mode: Mode = "open"
        self._loop = asyncio.new_event_loop()
        self._writers: set[asyncio.StreamWriter] = set()
        self._flows = asyncio.Event()
        self._listening = threading.Event()
        self._thread = threading.Thread(target=self._run, name="fault proxy")

    def set_mode(self, mode: Mode) -> None:
        """`open` forwards; `cut` breaks open and new connections; `silent` lets all connections wait; `refused` breaks
        open connections and listens to no new ones, as a machine without the server."""
        asyncio.run_coroutine_threadsafe(self._set_mode(mode), self._loop).result()

    @contextmanager
    def running(self) -> Iterator["FaultProxy"]:
        """Listens until the block ends."""
        self._thread.start()
        self._listening.wait()
        try:
            yield self
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._listen())
        self._flows.set()
        self._listening.set()
        self._loop.run_forever()
        self._loop.run_until_complete(self._set_mode("refused"))
        self._loop.run_until_complete(asyncio.gather(*asyncio.all_tasks(self._loop)))
        self._loop.close()

    async def _set_mode(self, mode: Mode) -> None:
        self._mode = mode
        if mode in ("cut", "refused"):
            self._break_all()
        if mode == "refused":
            self._server.close()
        elif not self._server.is_serving():
            await self._listen()
        if mode == "silent":
            self._flows.clear()
        else:
            self._flows.set()

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    def _break_all(self) -> None:
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._mode in ("cut", "refused"):
            writer.transport.abort()
            return
        with suppress(OSError):
            far_reader, far_writer = await asyncio.open_connection(*self._target)
            self._writers |= {writer, far_writer}
            if self._mode in ("cut", "refused"):  # meanwhile
                self._break_all()
            await asyncio.gather(self._forward(reader, far_writer), self._forward(far_reader, writer))
        writer.transport.abort()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(_CHUNK_BYTES):
                await self._flows.wait()
                writer.write(data)
                await writer.drain()
        writer.transport.abort() if self._mode in ("cut", "refused") else writer.close()
        self._writers.discard(writer)
