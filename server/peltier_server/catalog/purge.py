"""What was deleted goes for good once it can no longer be undeleted."""

import asyncio
import logging
from datetime import UTC, datetime, timedelta

from peltier_adapters.errors import AdapterError
from peltier_store.blobs.blobs import Blobs
from peltier_store.garbage import Collector
from peltier_store.registry import Registry

logger = logging.getLogger(__name__)

_ACTOR = "server"
_MIN_PAUSE_SECONDS = 60.0
_MAX_PAUSE_SECONDS = 3600.0


class PurgeTask:
    """Purges versions that were deleted longer than `undelete_seconds` ago, and deletes the bytes that nothing needs.

    At most once an hour, and again at the next turn where the registry or the store fails. Every replica may have one.
    """

    def __init__(self, registry: Registry, blobs: Blobs, undelete_seconds: float) -> None:
        self._registry = registry
        self._blobs = blobs
        self._grace = timedelta(seconds=undelete_seconds)
        self._pause_seconds = min(_MAX_PAUSE_SECONDS, max(_MIN_PAUSE_SECONDS, undelete_seconds))
        self._turns: asyncio.Task[None] | None = None

    def start(self) -> None:
        """From now on it tidies up by itself."""
        self._turns = asyncio.create_task(self._tidy_again_and_again())

    async def close(self) -> None:
        """Tidies up no longer."""
        if self._turns is not None:
            self._turns.cancel()
            await asyncio.gather(self._turns, return_exceptions=True)

    async def tidy(self) -> None:
        """Purges, and deletes the bytes that nothing needs, be they of what was purged or of uploads that broke off."""
        await self._registry.purge(datetime.now(UTC) - self._grace, actor=_ACTOR)
        done = await Collector(self._registry, self._blobs).run()
        if done.num_deleted:
            logger.info("deleted %d blobs, %d bytes, that nothing needs any more", done.num_deleted, done.deleted_bytes)

    async def _tidy_again_and_again(self) -> None:
        while True:
            await asyncio.sleep(self._pause_seconds)
            try:
                await self.tidy()
            except AdapterError as error:
                logger.warning("what was deleted is not purged yet: %s", error)
            except Exception:
                # Nothing else would notice if this ended.
                logger.exception("what was deleted is not purged yet")
