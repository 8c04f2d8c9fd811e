"""The owner of a blob store: the registry that its blobs belong to."""

import asyncio

from obstore.exceptions import AlreadyExistsError

from peltier_store.blobs.errors import BlobStoreGone, as_blob_errors
from peltier_store.blobs.files import FOLDER, read_file, read_object, sync_file
from peltier_store.blobs.location import BlobLocation

_KEY = "owner"


class BlobStoreOwner:
    """The file of a blob store that names its owner. Once the owner is known, a store without it is not the same."""

    def __init__(self, location: BlobLocation) -> None:
        self._name = location.name
        self._store = location.store
        self._root = location.directory
        self._known: str | None = None

    async def read(self) -> str | None:
        """The owner; None if nobody has claimed this store."""
        with as_blob_errors(f"the owner of the blob store {self._name!r} cannot be read"):
            return _decode(await read_object(self._store, _KEY))

    async def claim(self, owner: str) -> str:
        """Records the owner of a store without one; returns its owner, the same one to all claimants."""
        # Before the read, because another claimant of this process may record it meanwhile.
        is_known = self._known is not None
        found = await self.read()
        if found is None and is_known:
            # A process that has used the store never claims it again.
            self._require(found)
        if found is None:
            found = await self._create(owner)
        self._known = found
        return found

    async def hand_over(self, owner: str) -> str:
        """Records another owner, whatever the owner was; returns the new one."""
        with as_blob_errors(f"the owner of the blob store {self._name!r} cannot be stored"):
            await self._store.put_async(_KEY, owner.encode(), mode="overwrite")
            await self._sync()
        self._known = owner
        return owner

    async def require_present(self) -> None:
        """See `Blobs.require_present`."""
        if self._root is not None:
            self.require_directory()
        elif self._known is not None:
            self._require(await self.read())

    def require_directory(self) -> None:
        """Raises BlobStoreGone if the store is in a directory that is missing or was replaced."""
        if self._root is None or self._known is None:
            return
        if not (self._root / FOLDER).is_dir():
            raise BlobStoreGone(f"the blob store {self._name!r} is gone: it has no directory {FOLDER!r}")
        # Its contents decide, because a new directory may get the inode of a removed one.
        with as_blob_errors(f"the owner of the blob store {self._name!r} cannot be read"):
            data = read_file(self._root / _KEY)
        self._require(_decode(data))

    def _require(self, found: str | None) -> None:
        if found is None or found != self._known:
            state = "has no owner" if found is None else f"belongs to the registry {found}"
            raise BlobStoreGone(
                f"the blob store {self._name!r} was replaced: it {state}, and belonged to the registry {self._known}"
            )

    async def _create(self, owner: str) -> str:
        with as_blob_errors(f"the owner of the blob store {self._name!r} cannot be stored"):
            try:
                await self._store.put_async(_KEY, owner.encode(), mode="create")
            except AlreadyExistsError:
                return await self.read() or await self.hand_over(owner)
            await self._sync()
        return owner

    async def _sync(self) -> None:
        if self._root is not None:
            await asyncio.to_thread(sync_file, self._root / _KEY)


def _decode(data: bytes | None) -> str | None:
    # After a power loss, a file that was being created may be empty.
    return data.decode(errors="replace") if data else None
