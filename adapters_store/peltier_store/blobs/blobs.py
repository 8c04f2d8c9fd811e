"""A content-addressed store of artifacts."""

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Self, TypeVar

from obstore.exceptions import AlreadyExistsError
from peltier_adapters.artifact.source import ByteSource, MemorySource, digest_of
from peltier_adapters.durable import make_directory

from peltier_store.blobs.errors import (
    BlobDamaged,
    BlobError,
    BlobNotFound,
    BlobStoreFull,
    BlobStoreGone,
    as_blob_errors,
)
from peltier_store.blobs.files import (
    FOLDER,
    blob_key,
    digest_in,
    read_object,
    remove_partial_files,
    sync_file,
)
from peltier_store.blobs.location import BlobLocation, BlobStoreOwner, locate
from peltier_store.blobs.sources import CheckedSource, FileSource
from peltier_store.blobs.threads import in_daemon_thread

__all__ = [
    "BlobDamaged",
    "BlobError",
    "BlobNotFound",
    "BlobStoreFull",
    "BlobStoreGone",
    "Blobs",
    "StoredBlob",
    "digest_of",
]

T = TypeVar("T")

_PROBE = "create-only-probe"
_PAGE = 1000
PIECE_BYTES = 256 * 1024
# A separate pool for files, so that a disk that hangs does not block other work.
_NUM_THREADS = 8


@dataclass(frozen=True)
class StoredBlob:
    """One entry of the store's list. `modified_at` is by the store's clock."""

    digest: str
    size_bytes: int
    modified_at: datetime


class Blobs:
    """A content-addressed store in a local directory or a bucket, safe to share between tasks and processes.

    A blob is named by the digest of its bytes, so it never changes. Every failure is a BlobError of one sentence,
    raised within a bounded time.
    """

    def __init__(self, location: BlobLocation) -> None:
        # In messages.
        self.name = location.name
        self.is_local = location.directory is not None
        self._store = location.store
        self._root = location.directory
        self.owner = BlobStoreOwner(location)
        self._threads = ThreadPoolExecutor(_NUM_THREADS, thread_name_prefix="blobs")
        self._checkers = ThreadPoolExecutor(_NUM_THREADS, thread_name_prefix="blob-checkers")

    @classmethod
    def open(cls, location: str | Path, *, read_only: bool = False) -> Self:
        """Opens the store at a path or URL (see `locate`). Creates a missing directory, but never a bucket.

        Raises BlobError if it cannot be written or ignores create-only. With `read_only` it creates and writes nothing,
        and the store can be read and listed.
        """
        place = locate(location, make=not read_only)
        if read_only:
            return cls(place)
        with as_blob_errors(f"the blob store {place.name!r} cannot be opened"):
            if place.directory is not None:
                make_directory(place.directory / FOLDER)
            blobs = cls(place)
            blobs._probe()
        return blobs

    async def put(self, data: bytes | memoryview) -> str:
        """Stores the bytes and returns their digest once they are durable: on the disk, or acknowledged by the bucket.

        Does not write bytes that are already stored, but replaces them if they are damaged.
        """
        if self._root is not None:
            return await self._in_thread(lambda: self._put_file(data))
        await self.owner.require_present()
        digest = await self._in_thread(lambda: digest_of(data))
        key = blob_key(digest)
        with as_blob_errors(f"the blob {digest} cannot be stored"):
            await in_daemon_thread(partial(self._create, key, data))
        return digest

    async def get(self, digest: str) -> bytes:
        """Returns exactly the bytes that have this digest; raises BlobNotFound or BlobDamaged."""
        return await self.load(digest, lambda source: source.read(source.num_bytes))

    async def load(self, digest: str, parse: Callable[[ByteSource], T]) -> T:
        """Calls `parse` in a thread with a source of the bytes that `get` returns, and returns its result.

        The same thread reads a file, because handing the bytes over would take longer than reading them. The digest is
        that of the bytes which `parse` has got, and is checked when it has ended. So it must tolerate damaged bytes;
        its result is then discarded. Raises what `get` or `parse` raises.
        """
        key, downloaded = blob_key(digest), None
        if self._root is None:
            with as_blob_errors(f"the blob {digest} cannot be read"):
                downloaded = await in_daemon_thread(partial(read_object, self._store, key))
            if downloaded is None:
                await self.owner.require_present()
        return await self._in_thread(lambda: self._parse(digest, downloaded, parse))

    def _parse(self, digest: str, downloaded: bytes | None, parse: Callable[[ByteSource], T]) -> T:
        if downloaded is not None:
            return self._checked(digest, MemorySource(downloaded), parse)
        descriptor = None if self._root is None else self._open(digest, self._root)
        if descriptor is None:
            self.owner.require_directory()
            raise BlobNotFound(f"the blob store {self.name!r} holds no blob {digest}")
        try:
            return self._checked(digest, FileSource(descriptor), parse)
        finally:
            os.close(descriptor)

    def _open(self, digest: str, root: Path) -> int | None:
        with as_blob_errors(f"the blob {digest} cannot be read"):
            try:
                return os.open(f"{root}/{blob_key(digest)}", os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                return None

    def _checked(self, digest: str, source: ByteSource, parse: Callable[[ByteSource], T]) -> T:
        checked = CheckedSource(digest, source, self._checkers)
        try:
            return parse(checked)
        finally:
            checked.require_digest()

    async def pieces(self, digest: str, size_bytes: int) -> AsyncIterator[bytes]:
        """Yields the bytes that `get` returns in pieces of 256 KiB, each read on demand; raises what `get` raises.

        Yields the last piece only if all pieces together have the digest.
        """
        found = hashlib.sha256()
        for start in range(0, size_bytes, PIECE_BYTES):
            end = min(start + PIECE_BYTES, size_bytes)
            piece = await self._piece(digest, start, end)
            found.update(piece)
            if end == size_bytes and f"sha256:{found.hexdigest()}" != digest:
                raise BlobDamaged(f"the blob {digest} is damaged: the stored bytes have another digest or length")
            yield piece

    async def delete(self, digest: str) -> None:
        """Deletes the blob, if it exists."""
        # No fsync: if a power loss undoes the deletion, nothing refers to the bytes.
        key = blob_key(digest)
        with as_blob_errors(f"the blob {digest} cannot be deleted"):
            try:
                await in_daemon_thread(partial(self._store.delete, key))
            except FileNotFoundError:
                return

    async def entries(self) -> AsyncIterator[StoredBlob]:
        """Every blob of the store in no order, a page at a time; it may miss blobs that are stored meanwhile."""
        with as_blob_errors(f"the blob store {self.name!r} cannot be listed"):
            pages = self._store.list(FOLDER, chunk_size=_PAGE)
            while page := await in_daemon_thread(partial(next, pages, ())):
                for entry in page:
                    if digest := digest_in(entry["path"]):
                        yield StoredBlob(digest, entry["size"], entry["last_modified"])

    async def sweep(self, age: timedelta) -> int:
        """Removes files that `put` left when it was interrupted, at least `age` ago; returns how many.

        In a bucket an interrupted `put` leaves nothing visible.
        """
        if self._root is None:
            return 0
        with as_blob_errors(f"the blob store {self.name!r} cannot be swept"):
            return await asyncio.to_thread(remove_partial_files, self._root / FOLDER, age)

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    def _put_file(self, data: bytes | memoryview) -> str:
        assert self._root is not None, "a bucket has no files"
        digest = digest_of(data)
        key = blob_key(digest)
        with as_blob_errors(f"the blob {digest} cannot be stored"):
            self.owner.require_directory()
            self._create(key, data)
            sync_file(self._root / key)
            # Again, because the directory may have been removed meanwhile, and obstore creates missing directories.
            self.owner.require_directory()
        return digest

    def _create(self, key: str, data: bytes | memoryview) -> None:
        """Replaces the bytes of the key only if they are damaged."""
        try:
            self._store.put(key, data, mode="create")
        except AlreadyExistsError:
            if read_object(self._store, key) != data:
                self._store.put(key, data, mode="overwrite")

    async def _piece(self, digest: str, start: int, end: int) -> bytes:
        key = blob_key(digest)
        # One request per piece, because a slow reader would exceed the time-out of a single one.
        with as_blob_errors(f"the blob {digest} cannot be read"):
            try:
                return bytes(await in_daemon_thread(partial(self._store.get_range, key, start=start, end=end)))
            except FileNotFoundError:
                await self.owner.require_present()
                raise BlobNotFound(f"the blob store {self.name!r} holds no blob {digest}") from None

    def _probe(self) -> None:
        # If a store ignored create-only, two writers of the same key could overwrite each other. The probe is not
        # deleted, because that would disturb another process that probes the same store.
        self._store.put(_PROBE, b"", mode="overwrite")
        try:
            self._store.put(_PROBE, b"", mode="create")
        except AlreadyExistsError:
            return
        raise BlobError(f"the blob store {self.name!r} ignores create-only: it overwrote an existing file")
