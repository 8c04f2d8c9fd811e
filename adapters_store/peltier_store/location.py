"""Where the blobs and the registry of a store are, and whether they belong together: only its own registry knows which
blobs a blob store needs."""

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

from peltier_store.blobs.blobs import Blobs
from peltier_store.blobs.errors import BlobError
from peltier_store.blobs.location import is_remote, local_path
from peltier_store.registry.database import database_url
from peltier_store.registry.errors import RegistryError

if TYPE_CHECKING:
    from peltier_store.registry.extensions.registry import Registry


@dataclass(frozen=True)
class StoreLocation:
    """A place for blobs, for `Blobs.open`, and the URL of a registry, for `Registry.open`."""

    blobs: Path | str
    registry: str

    @classmethod
    def of(cls, store: Path | str, registry: str = "") -> Self:
        """A directory holds both unless a registry is given; a bucket holds only blobs.

        Raises BlobError for a bucket without a registry.
        """
        if not is_remote(store):
            directory = local_path(store)
            return cls(directory / "blobs", registry or f"sqlite+aiosqlite:///{directory / 'registry.db'}")
        if not registry:
            shown = str(store).partition("?")[0]
            raise BlobError(
                f"the store {shown!r} cannot hold a registry: also give the registry's URL, "
                "postgresql+asyncpg://USER@HOST/DATABASE or sqlite+aiosqlite:///PATH"
            )
        return cls(str(store), registry)

    def existing(self) -> Self:
        """This location; raises BlobError if its registry is a file that does not exist."""
        file = database_url(self.registry)
        if file.get_backend_name() == "sqlite" and not Path(file.database or "").is_file():
            raise BlobError(f"there is no store: the registry {file.database!r} does not exist")
        return self


async def require_own(registry: "Registry", blobs: Blobs) -> None:
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


async def require_not_foreign(registry: "Registry", blobs: Blobs) -> None:
    """Raises BlobError if another registry owns the blob store; changes nothing."""
    identity = await registry.identity()
    _check(identity, await blobs.owner.read() or identity, blobs)


def _check(identity: str, owner: str, blobs: Blobs) -> None:
    if owner != identity:
        raise BlobError(
            f"the blob store {blobs.name!r} belongs to the registry {owner}, not to this one, which is {identity}; "
            "if that registry is lost, delete the file 'owner' in the store"
        )
