"""Changes of published versions: aliases, pins, deprecation, deletion and undeletion."""

import asyncio
from collections.abc import Awaitable, Mapping
from typing import TypeVar

from peltier_adapters.errors import first_of
from peltier_client.errors import InvalidInput
from peltier_client.protocol.adapters import AdapterPin
from peltier_store.registry.errors import InvalidRecord, VersionUnknown
from peltier_store.registry.records import AliasRecord

from peltier_server.auth.keyring import Caller
from peltier_server.catalog.published import Entry, split_faults
from peltier_server.catalog.publisher import Store
from peltier_server.residency.pins import Pins

T = TypeVar("T")


class VersionAdmin:
    """Changes a caller's own adapters. A change survives a crash, is in the audit log under the caller's name, and
    applies to every request that arrives after the call has returned. Requests in progress keep their version.
    """

    def __init__(self, store: Store, pins: Pins) -> None:
        self._registry = store.registry
        self._catalog = store.catalog
        self._sync = store.sync
        self._pins = pins

    async def set_alias(self, caller: Caller, name: str, alias: str, split: Mapping[int, float]) -> AliasRecord:
        """Points `alias` to these versions, with these shares of requests; raises `InvalidInput` with every reason."""
        try:
            return await self._apply(self._registry.set_alias(caller.tenant, name, alias, split, actor=caller.actor))
        except (InvalidRecord, VersionUnknown):
            # Updates first, because another replica may have published or deleted versions.
            await self._sync.sync_after_write()
            self._check_split(caller, name, split)
            raise

    async def roll_back(self, caller: Caller, name: str, alias: str) -> AliasRecord:
        """Restores the previous split of `alias`; raises RegistryConflict if there is none or a version is deleted."""
        return await self._apply(self._registry.rollback_alias(caller.tenant, name, alias, actor=caller.actor))

    async def delete_alias(self, caller: Caller, name: str, alias: str) -> None:
        """Deletes `alias`; a rollback restores it."""
        await self._apply(self._registry.delete_alias(caller.tenant, name, alias, actor=caller.actor))

    async def delete(self, caller: Caller, name: str, number: int | None = None) -> None:
        """Deletes one version, or all versions and aliases; rows in progress finish."""
        if number is None:
            await self._apply(self._registry.delete_adapter(caller.tenant, name, actor=caller.actor))
        else:
            await self._apply(self._registry.delete_version(caller.tenant, name, number, actor=caller.actor))

    async def undelete(self, caller: Caller, name: str, number: int) -> Entry:
        """Undeletes a version during its grace period."""
        version = await self._apply(self._registry.undelete(caller.tenant, name, number, actor=caller.actor))
        return await asyncio.to_thread(Entry.of, version)

    async def deprecate(self, caller: Caller, name: str, number: int, reason: str | None) -> Entry:
        """Deprecates a version, or with None removes the deprecation. Bare names prefer versions without one."""
        version = await self._apply(self._registry.deprecate(caller.tenant, name, number, reason, actor=caller.actor))
        return await asyncio.to_thread(Entry.of, version)

    async def set_public(self, caller: Caller, name: str, *, public: bool) -> None:
        """Allows or forbids other tenants to use an adapter."""
        await self._apply(self._registry.set_public(caller.tenant, name, public, actor=caller.actor))

    async def pin(self, caller: Caller, name: str) -> AdapterPin:
        """Pins an adapter to the device of every replica; this one has loaded it when the call returns.

        Raises `StorageFull` if there is no room for it, or what its load raises; then nothing is pinned.
        """
        keys = [entry.owned for entry in self._catalog.get(caller.tenant, name).answering]
        async with self._pins.holding(keys):
            return await self._apply(self._registry.pin(caller.tenant, name, actor=caller.actor))

    async def unpin(self, caller: Caller, name: str) -> None:
        """Releases the pin of an adapter, if it has one; it stays in memory until it is evicted."""
        await self._apply(self._registry.unpin(caller.tenant, name, actor=caller.actor))

    async def _apply(self, change: Awaitable[T]) -> T:
        """What the registry returns for a change, once the change applies here."""
        changed = await change
        await self._sync.sync_after_write()
        return changed

    def _check_split(self, caller: Caller, name: str, split: Mapping[int, float]) -> None:
        """Raises `InvalidInput` with all faults, because the registry names only the first."""
        published = self._catalog.get(caller.tenant, name)
        faults = split_faults(split)
        for number in sorted(split):
            if number in published.deleted:
                faults.append(f"version {number} of adapter {name!r} is deleted; undelete it first")
            elif number not in published.entries:
                faults.append(f"adapter {name!r} has no version {number}; its newest is {published.newest.number}")
        if faults:
            raise InvalidInput(first_of(faults[0], len(faults), "reason"), faults)
