"""Keeps in memory what is pinned in the registry, and loads what a server has in memory before it is ready."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping
from contextlib import asynccontextmanager, suppress

from peltier_adapters.errors import AdapterError
from peltier_client.errors import NotReady, PeltierError

from peltier_server import retry_hints
from peltier_server.background import BackgroundTask
from peltier_server.context import AdapterKey
from peltier_server.metrics.metrics import Metrics
from peltier_server.residency.slots import Slots

logger = logging.getLogger(__name__)

_RETRY_SECONDS = 30.0
# The number of loads of pins, or of the warm list, at a time. Requests load beside them.
NUM_LOADS = 8


class Pins:
    """Loads the adapters that `wanted` names, several at a time, and keeps them on the device while it names them.

    An adapter that cannot be loaded or does not fit here is logged, is in `failures`, and is tried again after
    `_RETRY_SECONDS`, or at the next change. Requests for it load it as any other. Belongs to the event loop.
    """

    def __init__(
        self,
        slots: Slots,
        wanted: Callable[[], Collection[AdapterKey]],
        metrics: Metrics,
    ) -> None:
        self.failures: dict[AdapterKey, str] = {}
        # Set when every pin has been tried once.
        self.tried = asyncio.Event()
        self._slots = slots
        self._wanted = wanted
        self._metrics = metrics
        self._turn = asyncio.Lock()
        self._loads = asyncio.Semaphore(NUM_LOADS)
        self._changed = asyncio.Event()
        self._task = BackgroundTask()

    def start(self) -> None:
        """Starts to follow `wanted`."""
        self._task.start(self._run())

    async def close(self) -> None:
        """Stops; the pins stay."""
        await self._task.close()

    def wake(self) -> None:
        """`wanted` may have changed."""
        self._changed.set()

    @asynccontextmanager
    async def holding(self, keys: Iterable[AdapterKey]) -> AsyncIterator[None]:
        """Pins these before the block, which makes `wanted` name them. Afterwards what it does not name is released.

        Raises what `Slots.pin` raises; then the block does not run.
        """
        async with self._turn:
            try:
                for key in keys:
                    await self._slots.pin(key, key.tenant)
                yield
            finally:
                self.wake()

    async def _run(self) -> None:
        while True:
            self._changed.clear()
            has_failed = False
            try:
                await self._follow()
            except Exception:
                # Nothing else would notice if this task ended.
                logger.exception("the pins could not be followed; they are tried again")
                has_failed = True
            self.tried.set()
            with suppress(TimeoutError):
                async with asyncio.timeout(_RETRY_SECONDS if has_failed or self.failures else None):
                    await self._changed.wait()

    async def _follow(self) -> None:
        async with self._turn:
            wanted, held = dict.fromkeys(self._wanted()), self._slots.device.pinned
            # First, because it makes room.
            for key in held:
                if key not in wanted:
                    self._slots.unpin(key)
            self.failures = {key: reason for key, reason in self.failures.items() if key in wanted}
            await asyncio.gather(*(self._try(key) for key in wanted if key not in held))
            self._metrics.pin_failures.set(len(self.failures))

    async def _try(self, key: AdapterKey) -> None:
        try:
            async with self._loads:
                await self._slots.pin(key, key.tenant)
        except (AdapterError, PeltierError) as error:
            # The reason is logged when it is new, and not at each attempt.
            if self.failures.get(key) != (reason := str(error)):
                logger.warning("%s of tenant %s is not pinned to the device: %s", key.digest, key.tenant, error)
            self.failures[key] = reason
        else:
            self.failures.pop(key, None)


class WarmList:
    """The pinned adapters, and others that are loaded once and not kept.

    Each is tried once. One that fails is logged and counted, and the server becomes ready without it: otherwise one
    damaged adapter of one tenant would stop the service for all. The same holds for the rest of the list after
    `max_seconds`.
    """

    def __init__(self, slots: Slots, pins: Pins, metrics: Metrics, max_seconds: float) -> None:
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
