"""Updates this replica's memory after changes of the registry by any replica."""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from peltier_store.registry import AdapterRecord, Registry, RegistryError, RegistryGone, RegistrySnapshot

from peltier_server.background import BackgroundTask
from peltier_server.catalog.catalog import Catalog
from peltier_server.catalog.published import Published
from peltier_server.residency.leases import AdapterKey

logger = logging.getLogger(__name__)

_POLL_SECONDS = 0.25
_READ_SECONDS = 5.0
# Larger manifests take milliseconds to parse, so a thread parses them.
_CHARS_ON_THE_LOOP = 65_536


class Image(Protocol):
    """Another object in memory that follows the registry."""

    def apply(self, snapshot: RegistrySnapshot) -> None:
        """Applies the changes."""


class Retiring(Protocol):
    """The adapters in memory."""

    def retire(self, key: AdapterKey) -> None:
        """Drops an adapter that no version of its tenant has any more."""


class RegistrySync:
    """Applies the changes of all replicas within a quarter of a second and the time to read them.

    If the registry fails, it polls until the registry answers; meanwhile the last known state is served.
    """

    def __init__(self, registry: Registry, catalog: Catalog, images: Iterable[Image] = ()) -> None:
        self.revision = 0
        self._registry = registry
        self._catalog = catalog
        self._images = tuple(images)
        self._retiring: Retiring | None = None
        self._on_change: Callable[[], None] | None = None
        self._followers = list[Callable[[], None]]()
        self._turn = asyncio.Lock()
        self._read_at = 0.0
        self._polling = BackgroundTask()
        self._failing = False
        self._timeout_seconds = _READ_SECONDS

    def start(self, retiring: Retiring, on_change: Callable[[], None] | None = None) -> None:
        """Starts polling. Adapters that no version has any more are retired. Calls `on_change` when adapters have
        changed."""
        self._retiring, self._on_change = retiring, on_change
        self._polling.start(self._poll())

    def follow(self, on_revision: Callable[[], None]) -> None:
        """Calls `on_revision` when anything in the registry has changed."""
        self._followers.append(on_revision)

    async def close(self) -> None:
        """Stops polling."""
        await self._polling.close()

    async def catch_up(self) -> None:
        """Applies everything that was committed before the call; raises RegistryError."""
        asked_at = time.monotonic()
        async with self._turn:
            # The first of several waiting callers reads for all.
            if self._read_at <= asked_at:
                await self._read()

    async def sync_after_write(self) -> None:
        """`catch_up` after a write of this replica; a failure is only logged, because the write is committed."""
        try:
            await self.catch_up()
        except RegistryError as error:
            self._fail(error)

    async def _read(self) -> None:
        read_at = time.monotonic()
        snapshot = await self._snapshot()
        # Before the adapters, because revoked keys must lose their access first.
        for image in self._images:
            image.apply(snapshot)
        await self._apply_all(snapshot.adapters)
        if snapshot.revision != self.revision:
            for on_revision in self._followers:
                on_revision()
        self.revision = snapshot.revision
        self._read_at = read_at
        if self._failing:
            logger.info("the registry answers again")
            self._failing = False

    async def _apply_all(self, records: Sequence[AdapterRecord]) -> None:
        gone: set[AdapterKey] = set()
        try:
            for record in records:
                gone |= await self._apply(record)
                # Lets requests run in between, because there may be thousands of records.
                await asyncio.sleep(0)
        finally:
            # At the end, because the same bytes may leave one name and arrive under the next.
            for owned in gone:
                self._retire(owned)
            if records and self._on_change is not None:
                self._on_change()

    async def _apply(self, record: AdapterRecord) -> set[AdapterKey]:
        if sum(len(version.manifest) for version in record.versions) <= _CHARS_ON_THE_LOOP:
            return self._catalog.apply(record)
        known = self._catalog.find(record.tenant, record.name)
        published = await asyncio.to_thread(Published.of, record, known)
        return self._catalog.replace(record.tenant, record.name, published)

    async def _snapshot(self) -> RegistrySnapshot:
        if not self.revision:
            # The first snapshot is everything, and the server waits for it before it serves.
            return await self._registry.snapshot()
        # A dead connection would otherwise block much longer; the next attempt uses another one.
        seconds = self._timeout_seconds
        try:
            async with asyncio.timeout(seconds):
                snapshot = await self._registry.snapshot(self.revision)
        except TimeoutError:
            # The next attempt gets more time, in case the snapshot is large.
            self._timeout_seconds = 2 * seconds
            raise RegistryError(f"it has not answered within {seconds:g} s") from None
        self._timeout_seconds = _READ_SECONDS
        return snapshot

    def _retire(self, gone: AdapterKey) -> None:
        if self._retiring is not None and not self._catalog.holds(gone):
            self._retiring.retire(gone)

    async def _poll(self) -> None:
        while True:
            await asyncio.sleep(_POLL_SECONDS)
            try:
                await self.catch_up()
            except RegistryError as error:
                self._fail(error)
            except Exception:
                # Nothing else would notice if this task ended.
                logger.exception("changes of the registry could not be applied; they are tried again")

    def _fail(self, error: RegistryError) -> None:
        # `StoreWatch` logs a registry that is gone.
        if isinstance(error, RegistryGone):
            return
        if not self._failing:
            logger.warning("the registry does not answer, so the last known state is served: %s", error)
        self._failing = True
