"""Bounds the uploads that the server receives at once, and the bytes of uploads that it holds in memory."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from weakref import WeakValueDictionary

from peltier_client.errors import QueueFull, TooLarge
from peltier_client.protocol.reports import MAX_REPORT_BYTES

from peltier_server import retry_hints

# Each upload is received into a temporary file, so this many times the most bytes of a body are enough disk space.
MAX_RECEIVED_AT_ONCE = 32
# The limit of one tenant. A body may take an hour to arrive, and must not keep other tenants waiting for so long.
MAX_RECEIVED_OF_ONE = 8
# The bytes of a multipart body besides its files.
FORM_BYTES = 64 * 1024
# During its check an artifact is in memory four times: as received, as tensors, on the device, and on the way to disk.
_READ_AT_ONCE = 2


class UploadTurns:
    """Makes uploads wait for two turns: one to be received into a file, and one to be read from the file into memory.

    Waiting costs neither memory nor disk, because the server does not read a waiting body. The second turn counts
    bytes: large artifacts are read one after another, and small ones at the same time. The body of an upload has at
    most `max_bytes`.
    """

    def __init__(self, max_artifact_bytes: int, patience_seconds: float) -> None:
        self.max_bytes = max_artifact_bytes + MAX_REPORT_BYTES + FORM_BYTES
        self._max_artifact_bytes = max_artifact_bytes
        self._max_read_bytes = _READ_AT_ONCE * max_artifact_bytes
        self._patience_seconds = patience_seconds
        self._receiving = asyncio.Semaphore(MAX_RECEIVED_AT_ONCE)
        self._of_tenant = WeakValueDictionary[str, asyncio.Semaphore]()
        self._first = asyncio.Lock()  # asyncio's locks are fair, so small uploads cannot overtake a large one for ever
        self._freed = asyncio.Event()
        self._read_bytes = 0

    @asynccontextmanager
    async def receive(self, tenant: str) -> AsyncIterator[None]:
        """Waits for the first turn. Raises `QueueFull` if it does not come within `patience_seconds`."""
        async with AsyncExitStack() as places:
            try:
                async with asyncio.timeout(self._patience_seconds):
                    # The tenant's slot comes first, so that an upload that waits for it does not occupy a slot of the
                    # server.
                    await places.enter_async_context(self._places_of(tenant))
                    await places.enter_async_context(self._receiving)
            except TimeoutError:
                sentence = (
                    f"{MAX_RECEIVED_AT_ONCE} uploads, or {MAX_RECEIVED_OF_ONE} of tenant {tenant!r}, "
                    "are being received; send this one again later"
                )
                raise QueueFull(sentence, retry_after=retry_hints.SOON) from None
            yield

    def check_size(self, num_bytes: int) -> None:
        """Raises `TooLarge` for an artifact of so many bytes, beside which the body had room for a report."""
        if num_bytes > self._max_artifact_bytes:
            raise TooLarge(f"the artifact has {num_bytes} bytes; at most {self._max_artifact_bytes} are allowed")

    @asynccontextmanager
    async def read(self, num_bytes: int) -> AsyncIterator[None]:
        """Waits for the second turn, for an artifact of `num_bytes`. It always comes, because no upload in it waits
        for a caller.
        """
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

    def _places_of(self, tenant: str) -> asyncio.Semaphore:
        # The semaphore exists as long as an upload holds one of its slots or waits for one.
        return self._of_tenant.setdefault(tenant, asyncio.Semaphore(MAX_RECEIVED_OF_ONE))
