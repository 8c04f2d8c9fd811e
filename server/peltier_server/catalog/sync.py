"""Updates this replica's memory after changes of the registry by any replica."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

from peltier_client.errors import NotReady
from peltier_store.registry.errors import RegistryError, RegistryGone, RegistryRewound
from peltier_store.registry.extensions.registry import Registry
from peltier_store.registry.records import AdapterRecord, Position, RegistrySnapshot

from peltier_server import retry_hints
from peltier_server.auth.authenticator import Authenticator
from peltier_server.background import BackgroundTask
from peltier_server.catalog.catalog import Catalog
from peltier_server.catalog.published import Published
from peltier_server.context import AdapterKey
from peltier_server.residency.slots import Slots

logger = logging.getLogger(__name__)

_POLL_SECONDS = 0.25
_READ_SECONDS = 5.0
# Larger manifests take milliseconds to parse, so a thread parses them.
_CHARS_ON_THE_LOOP = 65_536


# Reads other tables of the registry.
Reader = Callable[[RegistrySnapshot], Awaitable[None]]


class RegistrySync:
    """Applies the changes of all replicas within a quarter of a second and the time to read them.

    If the registry does not answer, it polls until the registry answers; meanwhile the last known state is served. If
    the registry lacks a change that was read, everything is read again and replaces what is in memory. Until then, and
    while the registry is gone, `require_current` raises `NotReady`.
    """

    def __init__(self, registry: Registry, catalog: Catalog, authenticator: Authenticator | None = None) -> None:
        self.position: Position | None = None
        self._registry = registry
        self._catalog = catalog
        self._authenticator = authenticator
        self._slots: Slots | None = None
        self._on_change: Callable[[], None] | None = None
        self._followers = list[Callable[[], None]]()
        self._readers = list[Reader]()
        self._has_new_reader = False
        self._turn = asyncio.Lock()
        self._read_at = 0.0
        self._polling = BackgroundTask()
        self._is_failing = self._is_gone = False
        self._timeout_seconds = _READ_SECONDS

    def start(self, slots: Slots, on_change: Callable[[], None] | None = None) -> None:
        """Starts polling. Adapters that no version has any more are retired. Calls `on_change` when adapters have
        changed."""
        self._slots, self._on_change = slots, on_change
        self._polling.start(self._poll())

    def follow(self, on_revision: Callable[[], None]) -> None:
        """Calls `on_revision` when anything in the registry has changed."""
        self._followers.append(on_revision)

    def read_also(self, read: Reader) -> None:
        """Awaits `read` with the changes of adapters, tenants and keys before `catch_up` returns, and once with those
        that come next, whatever they are. It may raise RegistryError, and then gets the same changes again."""
        self._readers.append(read)
        self._has_new_reader = True

    async def close(self) -> None:
        """Stops polling."""
        await self._polling.close()

    def require_current(self) -> None:
        """Raises `NotReady` if the registry is gone, or must be read again."""
        if self._is_gone:
            raise NotReady(
                "the server's registry is gone, so it accepts no changes; its log has the reason",
                retry_after=retry_hints.STORE_GONE,
            )
        if self.position is None:
            raise NotReady("the server reads its registry again, which lacks changes", retry_after=retry_hints.SOON)

    async def require_present(self) -> None:
        """Raises RegistryError where `require_current` raises, unless the registry can be read now."""
        if self._is_gone or self.position is None:
            await self.catch_up()

    async def catch_up(self) -> None:
        """Applies everything that was committed before the call; raises RegistryError."""
        asked_at = time.monotonic()
        async with self._turn:
            # The first of several waiting callers reads for all.
            if self._read_at <= asked_at:
                try:
                    await self._read()
                except RegistryError as error:
                    self._fail(error)
                    raise

    async def sync_after_write(self) -> None:
        """`catch_up` after a write of this replica; a failure is only logged, because the write is committed."""
        with suppress(RegistryError):
            await self.catch_up()

    async def _read(self) -> None:
        read_at = time.monotonic()
        try:
            snapshot = await self._snapshot()
        except RegistryRewound as error:
            logger.warning("everything is read again: %s", error)
            self.position = None
            snapshot = await self._snapshot()
        # Before the adapters, because revoked keys must lose their access first.
        if self._authenticator is not None:
            self._authenticator.apply(snapshot)
        await self._apply_all(snapshot)
        if snapshot.position != self.position or self._has_new_reader:
            await self._read_rest(snapshot)
        if snapshot.position != self.position:
            self.position = snapshot.position
            for on_revision in self._followers:
                on_revision()
        self._read_at = read_at
        if self._is_failing or self._is_gone:
            news = "the registry is back" if self._is_gone else "the registry answers again"
            logger.info(news, extra={"outage": "registry"})
            self._is_failing = self._is_gone = False

    async def _read_rest(self, snapshot: RegistrySnapshot) -> None:
        try:
            async with asyncio.timeout(_READ_SECONDS):
                for read in self._readers:
                    await read(snapshot)
        except TimeoutError:
            raise RegistryError(f"it has not answered within {_READ_SECONDS:g} s") from None
        self._has_new_reader = False

    async def _apply_all(self, snapshot: RegistrySnapshot) -> None:
        gone: set[AdapterKey] = set()
        try:
            if snapshot.is_whole:
                gone = await self._replace_all(snapshot.adapters)
            else:
                for record in snapshot.adapters:
                    gone |= self._catalog.replace(record.tenant, record.name, await self._published(record))
        finally:
            # At the end, because the same bytes may leave one name and arrive under the next.
            for owned in gone:
                self._retire(owned)
            if (snapshot.is_whole or snapshot.adapters) and self._on_change is not None:
                self._on_change()

    async def _replace_all(self, records: Sequence[AdapterRecord]) -> set[AdapterKey]:
        fresh = Catalog()
        for record in records:
            fresh.replace(record.tenant, record.name, await self._published(record))
        return self._catalog.become(fresh)

    async def _published(self, record: AdapterRecord) -> Published | None:
        known = self._catalog.find(record.tenant, record.name)
        if sum(len(version.manifest) for version in record.versions) > _CHARS_ON_THE_LOOP:
            return await asyncio.to_thread(Published.of, record, known)
        # Lets requests run in between, because there may be thousands of records.
        await asyncio.sleep(0)
        return Published.of(record, known)

    async def _snapshot(self) -> RegistrySnapshot:
        if self.position is None:
            # It is everything, which may take long, and the server is not ready before.
            return await self._registry.snapshot()
        # A dead connection would otherwise block much longer; the next attempt uses another one.
        seconds = self._timeout_seconds
        try:
            async with asyncio.timeout(seconds):
                snapshot = await self._registry.snapshot(self.position)
        except TimeoutError:
            # The next attempt gets more time, in case the snapshot is large.
            self._timeout_seconds = 2 * seconds
            raise RegistryError(f"it has not answered within {seconds:g} s") from None
        self._timeout_seconds = _READ_SECONDS
        return snapshot

    def _retire(self, gone: AdapterKey) -> None:
        if self._slots is not None and not self._catalog.holds(gone):
            self._slots.retire(gone)

    async def _poll(self) -> None:
        while True:
            await asyncio.sleep(_POLL_SECONDS)
            try:
                await self.catch_up()
            except RegistryError:
                continue  # it is logged
            except Exception:
                # Nothing else would notice if this task ended.
                if not self._is_failing:
                    logger.exception("changes of the registry could not be applied; they are tried again")
                self._is_failing = True

    def _fail(self, error: RegistryError) -> None:
        if isinstance(error, RegistryGone):
            if not self._is_gone:
                logger.error("the registry is gone, so changes are refused until it is back: %s", error)
            self._is_gone = True
        else:
            if not self._is_failing:
                logger.warning("the registry does not answer, so the last known state is served: %s", error)
            self._is_failing = True
