"""How many uploads the server takes in at once, and how many of their bytes it has in memory."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from peltier_client.errors import QueueFull

# An upload that is being received lies in a temporary file, so this many times max_artifact_bytes of disk is enough.
MAX_RECEIVED_AT_ONCE = 32


class Intake:
    """Uploads wait for their turn twice: to be received, and to be read from their file into memory.

    Waiting costs neither memory nor disk: a body that nobody reads stays with its sender. The second turn goes by
    bytes, so that large artifacts come one after the other and small ones side by side.
    """

    def __init__(self, max_read_bytes: int, patience_seconds: float) -> None:
        self._max_read_bytes = max_read_bytes
        self._patience_seconds = patience_seconds
        self._receiving = asyncio.Semaphore(MAX_RECEIVED_AT_ONCE)
        self._first = asyncio.Lock()  # the locks of asyncio serve in order, so a large one is not overtaken for ever
        self._freed = asyncio.Event()
        self._read_bytes = 0

    @asynccontextmanager
    async def receive(self) -> AsyncIterator[None]:
        """The first turn; raises `QueueFull` if it does not come within `patience_seconds`."""
        try:
            async with asyncio.timeout(self._patience_seconds):
                await self._receiving.acquire()
        except TimeoutError:
            sentence = f"{MAX_RECEIVED_AT_ONCE} uploads are being received; send this one again later"
            raise QueueFull(sentence, retry_after=1.0) from None
        try:
            yield
        finally:
            self._receiving.release()

    @asynccontextmanager
    async def read(self, num_bytes: int) -> AsyncIterator[None]:
        """The second turn, for an upload of this many bytes. It comes for certain: nobody in it waits for a caller."""
        taken = min(num_bytes, self._max_read_bytes)
        async with self._first:
            while self._read_bytes + taken > self._max_read_bytes:
                self._freed.clear()
                await self._freed.wait()
            self._read_bytes += taken
        try:
            yield
        finally:
            self._read_bytes -= taken
            self._freed.set()
