"""Checks that a blob store belongs to a registry, because only its own registry knows which blobs are needed."""

import asyncio
from pathlib import Path

from peltier_store.blobs.blobs import BlobError, Blobs
from peltier_store.registry import Registry, RegistryError
from peltier_store.registry.database import database_url


async def require_own(registry: Registry, blobs: Blobs) -> None:
    """Claims a blob store without an owner for this registry; raises BlobError if another registry owns it."""
    identity = await registry.identity()
    _check(identity, await blobs.owner.claim(identity), blobs)


async def require_registry_of(blobs: Blobs, url: str) -> None:
    """Raises RegistryError if the blobs have an owner but the registry's file is missing or empty."""
    database = database_url(url)
    if database.get_backend_name() != "sqlite":
        return
    path, owner = Path(database.database or ""), await blobs.owner.read()
    if owner is None:
        return
    found = await asyncio.to_thread(lambda: path.stat().st_size if path.exists() else None)
    if not found:
        what = "is missing" if found is None else "is empty"
        raise RegistryError(
            f"the registry {str(path)!r} {what}, and the blob store {blobs.name!r} belongs to the registry {owner}: "
            "restore it from a backup; if it is lost, delete the file 'owner' in the store"
        )


async def require_not_foreign(registry: Registry, blobs: Blobs) -> None:
    """Raises BlobError if another registry owns the blob store; changes nothing."""
    identity = await registry.identity()
    _check(identity, await blobs.owner.read() or identity, blobs)


def _check(identity: str, owner: str, blobs: Blobs) -> None:
    if owner != identity:
        raise BlobError(
            f"the blob store {blobs.name!r} belongs to the registry {owner}, not to this one, which is {identity}; "
            "if that registry is lost, delete the file 'owner' in the store"
        )
