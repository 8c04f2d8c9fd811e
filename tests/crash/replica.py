"""What a server has of a registry, without the server around it."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from peltier_client.errors import NotReady
from peltier_server.auth.keyring import Keyring
from peltier_server.catalog.catalog import Catalog
from peltier_server.catalog.store_watch import StoreWatch
from peltier_server.catalog.sync import RegistrySync
from peltier_store.blobs.blobs import Blobs
from peltier_store.registry.errors import RegistryError
from peltier_store.registry.extensions.registry import Registry

Write = Callable[[Registry], Awaitable[object]]


class SyncedReplica:
    """A registry with its copy in memory. It polls only when `poll` is called."""

    def __init__(self, registry: Registry, blobs: Blobs) -> None:
        self.registry = registry
        self._catalog, self._keyring = Catalog(), Keyring()
        self._sync = RegistrySync(self.registry, self._catalog, self._keyring)
        self._watch = StoreWatch(self._sync, blobs)

    async def open(self) -> None:
        """Reads everything, as a server does before it is ready."""
        await self.registry.identity()
        await self._sync.catch_up()

    async def poll(self) -> None:
        """Reads what has changed. A failure is for the next poll."""
        with suppress(RegistryError):
            await self._sync.catch_up()

    async def change(self, write: Write) -> None:
        """Makes a change as a route does, which may be refused."""
        await self._watch.require_present()
        await write(self.registry)
        await self._sync.sync_after_write()

    @property
    def is_ready(self) -> bool:
        """Whether `/ready` says 200, as far as its store is asked."""
        try:
            self._watch.require_well()
        except NotReady:
            return False
        return True

    def image(self) -> dict[str, Any]:
        """All that callers may see of the registry."""
        return _image_of(self._catalog, self._keyring)


async def read_image(registry: Registry) -> dict[str, Any]:
    """The image of a replica that starts now."""
    catalog, keyring = Catalog(), Keyring()
    await RegistrySync(registry, catalog, keyring).catch_up()
    return _image_of(catalog, keyring)


def _image_of(catalog: Catalog, keyring: Keyring) -> dict[str, Any]:
    """Adapters with their versions and aliases, tenants, and keys."""
    tenants = keyring.tenants(after="", limit=1000)
    adapters = [one for tenant in tenants for one in catalog.page(tenant.name, after="", containing="", limit=99)]
    return {
        "tenants": tenants,
        "keys": keyring.list_keys(None, after="", limit=1000),
        **{
            f"{one.tenant}:{one.name}": (
                one.is_public, one.splits_by_alias, one.pin, {alias: last.id for alias, last in one.aliases.items()},
                sorted((number, entry.digest, entry.version.deprecation) for number, entry in one.entries.items()),
            )
            for one in adapters
        },
    }  # fmt: skip
