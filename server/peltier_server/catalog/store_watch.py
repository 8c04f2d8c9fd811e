"""Detects that the store of a running server is gone, so that no change is acknowledged that would be lost."""

import asyncio
import logging

from peltier_adapters.errors import AdapterError
from peltier_client.errors import NotReady
from peltier_store.blobs.blobs import Blobs, BlobStoreGone

from peltier_server import retry_hints
from peltier_server.background import BackgroundTask
from peltier_server.catalog.sync import RegistrySync

logger = logging.getLogger(__name__)

_PAUSE_SECONDS = 1.0
# Each check of a bucket is a request that costs money.
_REMOTE_PAUSE_SECONDS = 10.0


class StoreWatch:
    """Checks the blobs periodically, and before each change; `RegistrySync` checks the registry.

    Blobs are gone if they are missing, or of another store. Then changes are refused, and the server is not ready,
    until the same ones are back. A store that does not answer is not gone: requests to it fail.
    """

    def __init__(self, sync: RegistrySync, blobs: Blobs) -> None:
        self._sync = sync
        self._blobs = blobs
        self._is_gone = False
        self._watching = BackgroundTask()

    def start(self) -> None:
        """Starts the periodic check."""
        self._watching.start(self._watch())

    async def close(self) -> None:
        """Stops the periodic check."""
        await self._watching.close()

    def require_well(self) -> None:
        """Raises `NotReady` if the blobs were gone at the last check, or the registry is not the one that was read."""
        self._sync.require_current()
        if self._is_gone:
            raise NotReady(
                "the server's store is gone, so it accepts no changes; its log has the reason",
                retry_after=retry_hints.STORE_GONE,
            )

    async def require_present(self) -> None:
        """Raises RegistryError or BlobStoreGone if a change would be lost. Call it before a change."""
        await self._sync.require_present()
        # Not for a bucket, to save a request.
        if self._blobs.is_local or self._is_gone:
            await self._look()

    async def _look(self) -> None:
        try:
            await self._blobs.owner.require_present()
        except BlobStoreGone as error:
            if not self._is_gone:
                logger.error("the store is gone, so changes are refused until it is back: %s", error)
            self._is_gone = True
            raise
        if self._is_gone:
            logger.info("the store is back, so changes are accepted again", extra={"outage": "blob store"})
        self._is_gone = False

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(_PAUSE_SECONDS if self._blobs.is_local else _REMOTE_PAUSE_SECONDS)
            try:
                await self._look()
            except AdapterError:
                # `_look` has logged it, or the store does not answer.
                continue
            except Exception:
                # Nothing else would notice if this task ended.
                logger.exception("the check of the store failed")
