"""The adapters that a server loads before it is ready."""

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

from peltier_adapters.errors import AdapterError
from peltier_client.errors import NotReady, PeltierError

from peltier_server import retry_hints
from peltier_server.background import BackgroundTask
from peltier_server.metrics.metrics import Metrics
from peltier_server.residency.leases import AdapterKey
from peltier_server.residency.pins import NUM_LOADS, Pins
from peltier_server.residency.slots import Slots

logger = logging.getLogger(__name__)


class WarmList:
    """The pinned adapters, and others that are loaded once and not kept.

    Each is tried once. One that fails is logged and counted, and the server becomes ready without it: otherwise one
    damaged adapter of one tenant would stop the service for all. The same holds for the rest of the list after
    `max_seconds`.
    """

    def __init__(self, slots: Slots[AdapterKey, Any, Any], pins: Pins, metrics: Metrics, max_seconds: float) -> None:
        self._slots = slots
        self._pins = pins
        self._metrics = metrics
        self._max_seconds = max_seconds
        self._loads = asyncio.Semaphore(NUM_LOADS)
        self._is_loaded = True
        self._task = BackgroundTask()

    def start(self, names: Mapping[AdapterKey, str], num_pins: int) -> None:
        """Loads these adapters, by the names that the log shows, and waits for the first attempt of `num_pins` pins."""
        if names or num_pins:
            self._is_loaded = False
            self._task.start(self._run(names, len(names) + num_pins))

    async def close(self) -> None:
        """Stops loading."""
        await self._task.close()

    def require_loaded(self) -> None:
        """Raises `NotReady` until every adapter was tried."""
        if not self._is_loaded:
            raise NotReady("the server is still loading its warm list", retry_after=retry_hints.SOON)

    async def _run(self, names: Mapping[AdapterKey, str], number: int) -> None:
        try:
            async with asyncio.timeout(self._max_seconds):
                await asyncio.gather(*(self._load(key, name) for key, name in names.items()), self._pins.tried.wait())
            logger.info("the warm list of %d adapters is loaded", number)
        except TimeoutError:
            logger.warning("the warm list is not loaded after %g s; the server is ready without it", self._max_seconds)
        finally:
            self._is_loaded = True

    async def _load(self, key: AdapterKey, name: str) -> None:
        try:
            async with self._loads:
                await self._slots.warm(key, key.tenant)
        except (AdapterError, PeltierError) as error:
            self._metrics.warm_failures.inc()
            logger.warning("%s of the warm list cannot be loaded: %s", name, error)
