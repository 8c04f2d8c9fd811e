"""Removes adapters from memory that nobody has used for some time."""

import asyncio
import logging
import time
from typing import Any

from peltier_server.background import BackgroundTask
from peltier_server.residency.leases import AdapterKey
from peltier_server.residency.slots import Slots

logger = logging.getLogger(__name__)

# Adapters leave at most a quarter of the time late, and the sweep looks at all of them at most once a second.
_SWEEPS = 4
_MIN_PAUSE_SECONDS = 1.0


class IdleUnload:
    """Unloads adapters that were not used for `seconds`, pins excepted. With None, adapters leave only for others."""

    def __init__(self, slots: Slots[AdapterKey, Any, Any], seconds: float | None) -> None:
        self._slots = slots
        self._seconds = seconds
        self._task = BackgroundTask()

    def start(self) -> None:
        """Starts the task, if there is a time."""
        if self._seconds is not None:
            self._task.start(self._run(self._seconds))

    async def close(self) -> None:
        """Stops the task."""
        await self._task.close()

    async def _run(self, seconds: float) -> None:
        while True:
            await asyncio.sleep(max(_MIN_PAUSE_SECONDS, seconds / _SWEEPS))
            try:
                self._slots.unload(time.monotonic() - seconds)
            except Exception:
                # Nothing else would notice if this task ended.
                logger.exception("idle adapters could not be unloaded; it is tried again")
