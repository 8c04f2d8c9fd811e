"""How many uploads the server takes in at once, and how many of their bytes it has in memory."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from weakref import WeakValueDictionary

from peltier_client.errors import QueueFull

from peltier_server import retry_hints

# An upload that is being received lies in a temporary file, so this many times max_artifact_bytes of disk is enough.
MAX_RECEIVED_AT_ONCE = 32
# Of one tenant: a body may take an hour to arrive, and must not keep the others out for so long.
MAX_RECEIVED_OF_ONE = 8
# What the parts of a multipart body need besides the artifact.
_FORM_BYTES = 64 * 1024
# While it is proved an artifact is in memory four times: as it came, as tensors, on the device, on its way to disk.
_READ_AT_ONCE = 2


class UploadTurns:
    """Uploads wait for their turn twice: to be received, and to be read from their file into memory.

    Waiting costs neither memory nor disk: a body that nobody reads stays with its sender. The second turn goes by
    bytes, so that large artifacts come one after the other and small ones side by side. The body of one has at most
    `max_bytes`.
    """

    def __init__(self, max_artifact_bytes: int, patience_seconds: float) -> None:
        self.max_bytes = max_artifact_bytes + _FORM_BYTES
        self._max_read_bytes = _READ_AT_ONCE * max_artifact_bytes
        self._patience_seconds = patience_seconds
        self._receiving = asyncio.Semaphore(MAX_RECEIVED_AT_ONCE)
        self._of_tenant = WeakValueDictionary[str, asyncio.Semaphore]()
        self._first = asyncio.Lock()  # the locks of asyncio serve in order, so a large one is not overtaken for ever
        self._freed = asyncio.Event()
        self._read_bytes = 0

    @asynccontextmanager
    async def receive(self, tenant: str) -> AsyncIterator[None]:
        """The first turn; raises `QueueFull` if it does not come within `patience_seconds`."""
        async with AsyncExitStack() as places:
            try:
                async with asyncio.timeout(self._patience_seconds):
                    # In this order, so that who waits for a place of the tenant takes none of the server.
                    await places.enter_async_context(self._places_of(tenant))
                    await places.enter_async_context(self._receiving)
            except TimeoutError:
                sentence = (
                    f"{MAX_RECEIVED_AT_ONCE} uploads, or {MAX_RECEIVED_OF_ONE} of tenant {tenant!r}, "
                    "are being received; send this one again later"
                )
                raise QueueFull(sentence, retry_after=retry_hints.SOON) from None
            yield

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

    def _places_of(self, tenant: str) -> asyncio.Semaphore:
        # Kept as long as somebody has one of the places or waits for it.
        return self._of_tenant.setdefault(tenant, asyncio.Semaphore(MAX_RECEIVED_OF_ONE))
