"""Notices when the store under a running server is gone, so that no change is acknowledged that would be lost."""

import asyncio
import logging

from peltier_adapters.errors import AdapterError
from peltier_client.errors import NotReady
from peltier_store.blobs.blobs import Blobs, BlobStoreGone
from peltier_store.registry import Registry, RegistryGone

from peltier_server import retry_hints

logger = logging.getLogger(__name__)

_PAUSE_SECONDS = 1.0
# Each look at a bucket is a request that somebody pays for.
_REMOTE_PAUSE_SECONDS = 10.0
GONE = (RegistryGone, BlobStoreGone)


class StoreWatch:
    """Looks at the registry and the blobs again and again, and before each change.

    Gone is a store that is missing, damaged, older than it was, or another one: changes are refused and the server is
    not ready until the same one is back. One that does not answer is not gone: what asks it fails by itself.
    """

    def __init__(self, registry: Registry, blobs: Blobs) -> None:
        self._registry = registry
        self._blobs = blobs
        self._is_gone = False
        self._watching: asyncio.Task[None] | None = None

    def start(self) -> None:
        """From now on it looks by itself."""
        self._watching = asyncio.create_task(self._watch())

    async def close(self) -> None:
        """Looks no longer."""
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)

    def require_well(self) -> None:
        """Raises `NotReady` if the store was gone when it was last looked at."""
        if self._is_gone:
            raise NotReady(
                "the server's store is gone, so it takes no changes; its log has the reason",
                retry_after=retry_hints.STORE_GONE,
            )

    async def require_present(self) -> None:
        """Raises RegistryGone or BlobStoreGone where a change would be lost; to be asked before one."""
        # The registry is asked by each change itself.
        if self._blobs.is_local or self._is_gone:
            await self._look()

    async def _look(self) -> None:
        try:
            await self._registry.revision()
            await self._blobs.require_present()
        except GONE as error:
            if not self._is_gone:
                logger.error("the store is gone, so changes are refused until it is back: %s", error)
            self._is_gone = True
            raise
        if self._is_gone:
            logger.info("the store is back, and changes are taken again")
        self._is_gone = False

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(_PAUSE_SECONDS if self._blobs.is_local else _REMOTE_PAUSE_SECONDS)
            try:
                await self._look()
            except AdapterError:
                # Noted, or one that does not answer, which the follower says.
                continue
            except Exception:
                # Nothing else would notice if this ended.
                logger.exception("the store could not be looked at")
