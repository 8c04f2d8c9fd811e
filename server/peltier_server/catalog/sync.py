"""How this replica's memory follows the registry, whoever writes to it."""

import asyncio
import logging
import time
from collections.abc import Iterable
from typing import Protocol

from peltier_store.registry import AdapterRecord, Registry, RegistryError, RegistryGone, Snapshot

from peltier_server.catalog.catalog import Catalog
from peltier_server.catalog.published import Published
from peltier_server.residency.adapter_key import AdapterKey

logger = logging.getLogger(__name__)

_POLL_SECONDS = 0.25
_READ_SECONDS = 5.0
# Manifests of more than this take milliseconds to read, so they are read in a thread.
_CHARS_ON_THE_LOOP = 65_536


class Image(Protocol):
    """Something else in memory that follows the registry."""

    def apply(self, snapshot: Snapshot) -> None:
        """Takes over what has changed."""


class Retiring(Protocol):
    """Where adapters are kept in memory."""

    def retire(self, key: AdapterKey) -> None:
        """No version of that tenant has these bytes any more."""


class RegistrySync:
    """Brings into memory what any replica has written, within a quarter of a second and what reading it takes.

    A registry that fails is asked again until it answers; meanwhile everything is served as it was last known.
    """

    def __init__(self, registry: Registry, catalog: Catalog, images: Iterable[Image] = ()) -> None:
        self.revision = 0
        self._registry = registry
        self._catalog = catalog
        self._images = tuple(images)
        self._retiring: Retiring | None = None
        self._turn = asyncio.Lock()
        self._read_at = 0.0
        self._polling: asyncio.Task[None] | None = None
        self._failing = False
        self._patience_seconds = _READ_SECONDS

    def start(self, retiring: Retiring) -> None:
        """From now on changes are followed by themselves, and bytes that no version has any more are retired."""
        self._retiring = retiring
        self._polling = asyncio.create_task(self._poll())

    async def close(self) -> None:
        """Follows no longer."""
        if self._polling is not None:
            self._polling.cancel()
            await asyncio.gather(self._polling, return_exceptions=True)

    async def catch_up(self) -> None:
        """Returns once everything is in memory that was committed before the call; raises RegistryError."""
        asked_at = time.monotonic()
        async with self._turn:
            # Of many who wait here together, the first reads for all.
            if self._read_at <= asked_at:
                await self._read()

    async def sync_after_write(self) -> None:
        """`catch_up` after a write of this replica, which stands even if the registry cannot be read just now."""
        try:
            await self.catch_up()
        except RegistryError as error:
            self._fail(error)

    async def _read(self) -> None:
        read_at = time.monotonic()
        snapshot = await self._snapshot()
        # Before the adapters, because among them are the keys that are no longer to open any.
        for image in self._images:
            image.apply(snapshot)
        await self._take_over_all(snapshot.adapters)
        self.revision = snapshot.revision
        self._read_at = read_at
        if self._failing:
            logger.info("the registry answers again")
            self._failing = False

    async def _take_over_all(self, records: Iterable[AdapterRecord]) -> None:
        gone: set[AdapterKey] = set()
        try:
            for record in records:
                gone |= await self._take_over(record)
                # There may be thousands: requests have their turn in between.
                await asyncio.sleep(0)
        finally:
            # Only now, because the same bytes may go under one name and come under the next.
            for owned in gone:
                self._retire(owned)

    async def _take_over(self, record: AdapterRecord) -> set[AdapterKey]:
        if sum(len(version.manifest) for version in record.versions) <= _CHARS_ON_THE_LOOP:
            return self._catalog.apply(record)
        known = self._catalog.find(record.tenant, record.name)
        published = await asyncio.to_thread(Published.of, record, known)
        return self._catalog.replace(record.tenant, record.name, published)

    async def _snapshot(self) -> Snapshot:
        if not self.revision:
            # The first is everything that there is, and nobody is served before it.
            return await self._registry.snapshot()
        # A connection that has silently died would be waited for much longer, and the next attempt takes another one.
        seconds = self._patience_seconds
        try:
            async with asyncio.timeout(seconds):
                snapshot = await self._registry.snapshot(self.revision)
        except TimeoutError:
            # Unless it is that there is so much to read.
            self._patience_seconds = 2 * seconds
            raise RegistryError(f"it has not answered within {seconds:g} s") from None
        self._patience_seconds = _READ_SECONDS
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
                # Nothing else would notice if this ended.
                logger.exception("what changed in the registry could not be taken over; it is tried again")

    def _fail(self, error: RegistryError) -> None:
        # Of one that is gone the store's watch says so.
        if isinstance(error, RegistryGone):
            return
        if not self._failing:
            logger.warning("the registry does not answer, so what was last known is served: %s", error)
        self._failing = True
