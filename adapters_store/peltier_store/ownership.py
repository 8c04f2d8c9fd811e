"""Which registry a blob store belongs to: only that one can tell which of its blobs nobody needs."""

import asyncio
from pathlib import Path

from peltier_store.blobs.blobs import BlobError, Blobs
from peltier_store.registry import Registry, RegistryError
from peltier_store.registry.database import database_url


async def require_own(registry: Registry, blobs: Blobs) -> None:
    """Makes a blob store without an owner this registry's own; raises BlobError where it is another's."""
    identity = await registry.identity()
    _check(identity, await blobs.claim(identity), blobs)


async def require_registry_of(blobs: Blobs, url: str) -> None:
    """Raises RegistryError where the blobs belong to a registry and the file that is to be it is missing or empty."""
    database = database_url(url)
    if database.get_backend_name() != "sqlite":
        return
    path, owner = Path(database.database or ""), await blobs.owner()
    if owner is None:
        return
    found = await asyncio.to_thread(lambda: path.stat().st_size if path.exists() else None)
    if not found:
        what = "is missing" if found is None else "is empty"
        raise RegistryError(
            f"the registry {str(path)!r} {what}, and the blob store {blobs.name!r} belongs to the registry {owner}: "
            "bring it back from a backup; if it is gone for good, delete the file 'owner' in the store"
        )


async def require_not_foreign(registry: Registry, blobs: Blobs) -> None:
    """Raises BlobError where the blob store is another registry's; changes nothing."""
    identity = await registry.identity()
    _check(identity, await blobs.owner() or identity, blobs)


def _check(identity: str, owner: str, blobs: Blobs) -> None:
    if owner != identity:
        raise BlobError(
            f"the blob store {blobs.name!r} belongs to the registry {owner}, not to this one, which is {identity}; "
            "if that registry is gone for good, delete the file 'owner' in the store"
        )
