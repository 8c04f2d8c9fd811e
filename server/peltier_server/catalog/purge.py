"""Purges deleted versions after their grace period, and answers after the time for feedback."""

import asyncio
import logging
from datetime import timedelta

from peltier_adapters.errors import AdapterError
from peltier_store.blobs.blobs import Blobs
from peltier_store.garbage import Collector
from peltier_store.registry.extensions.registry import Registry

from peltier_server.background import BackgroundTask

logger = logging.getLogger(__name__)

_ACTOR = "server"
_MIN_PAUSE_SECONDS = 60.0
_MAX_PAUSE_SECONDS = 3600.0


class PurgeTask:
    """Purges versions that were deleted longer than `undelete_seconds` ago, deletes blobs that nothing needs, and
    forgets answers that were given longer than `feedback_seconds` ago.

    It runs once an hour, or more often if one of these times is shorter, but at most once a minute. After a failure of
    the registry or the store, the next run tries again. Each replica may run it.
    """

    def __init__(self, registry: Registry, blobs: Blobs, undelete_seconds: float, feedback_seconds: float) -> None:
        self._registry = registry
        self._blobs = blobs
        self._grace = timedelta(seconds=undelete_seconds)
        self._max_answer_age = timedelta(seconds=feedback_seconds)
        self._pause_seconds = min(_MAX_PAUSE_SECONDS, max(_MIN_PAUSE_SECONDS, min(undelete_seconds, feedback_seconds)))
        self._task = BackgroundTask()

    def start(self) -> None:
        """Starts the task."""
        self._task.start(self._run())

    async def close(self) -> None:
        """Stops the task."""
        await self._task.close()

    async def purge(self) -> None:
        """Forgets answers, purges versions, and deletes the blobs of purged versions and of interrupted uploads."""
        # Also for a server that leaves guarded changes out, because another one may have recorded them.
        await self._registry.rollouts.forget(self._max_answer_age)
        await self._registry.purge(self._grace, actor=_ACTOR)
        done = await Collector(self._registry, self._blobs).run()
        if done.num_deleted:
            logger.info("deleted %d unused blobs of %d bytes", done.num_deleted, done.deleted_bytes)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._pause_seconds)
            try:
                await self.purge()
            except AdapterError as error:
                logger.warning("the purge of deleted versions and old answers failed and will be repeated: %s", error)
            except Exception:
                # Nothing else would notice if this task ended.
                logger.exception("the purge of deleted versions and old answers failed and will be repeated")
