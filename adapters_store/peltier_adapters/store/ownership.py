"""Which registry a blob store belongs to: only that one can tell which of its blobs nobody needs."""

from peltier_adapters.registry import Registry
from peltier_adapters.store.blobs import BlobError, Blobs


async def require_own(registry: Registry, blobs: Blobs) -> None:
    """Makes a blob store without an owner this registry's own; raises BlobError where it is another's."""
    identity = await registry.identity()
    _check(identity, await blobs.claim(identity), blobs)


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
