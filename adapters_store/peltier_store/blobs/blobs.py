"""Where the bytes of artifacts live: a content-addressed store."""

import asyncio
import hashlib
import re
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Self, TypeVar

from obstore.exceptions import AlreadyExistsError
from peltier_adapters.durable import make_directory, sync

from peltier_store.blobs.errors import BlobDamaged, BlobNotFound, BlobStoreFull, BlobStoreGone, as_blob_errors
from peltier_store.blobs.location import BlobError, BlobLocation, locate

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

_DIGEST = re.compile(r"sha256:([0-9a-f]{64})")
_FOLDER = "sha256"
# Whose blobs these are.
_OWNER = "owner"
_PROBE = "create-only-probe"
_PAGE = 1000
PIECE_BYTES = 256 * 1024
# Threads of their own for files: a disk that hangs takes no others with it.
_NUM_THREADS = 8
# What obstore calls a file that it is still writing.
_REMAINS = re.compile(r"[0-9a-f]{64}#[0-9]+")


@dataclass(frozen=True)
class StoredBlob:
    """One entry of the store's list; the store's clock says when it was last written."""

    digest: str
    size_bytes: int
    modified_at: datetime


class Blobs:
    """A content-addressed store in a local directory or a bucket, safe to share between tasks and processes.

    A blob is named by the sha256 of its bytes ("sha256:" and 64 hexadecimal digits), so it is never changed, only made
    and deleted. Every failure is a BlobError of one sentence, and comes within a bounded time.
    """

    def __init__(self, location: BlobLocation) -> None:
        self._name = location.name
        self._store = location.store
        self._root = location.directory
        # Whose these blobs are, once that is known.
        self._owner: str | None = None
        self._threads = ThreadPoolExecutor(_NUM_THREADS, thread_name_prefix="blobs")
        self._parsers = ThreadPoolExecutor(_NUM_THREADS, thread_name_prefix="blob-parsers")

    @classmethod
    def open(cls, location: str | Path, *, read_only: bool = False) -> Self:
        """Opens the store at a path or URL (see `locate`); a directory is made where it is missing, a bucket never.

        Raises BlobError if it cannot be written or does not honour create-only. With `read_only` nothing is made or
        written, and whoever opens it so may read and list.
        """
        place = locate(location, make=not read_only)
        if read_only:
            return cls(place)
        with as_blob_errors(f"the blob store {place.name!r} cannot be opened"):
            if place.directory is not None:
                make_directory(place.directory / _FOLDER)
            blobs = cls(place)
            blobs._probe()
        return blobs

    @property
    def name(self) -> str:
        """What sentences call this store."""
        return self._name

    async def put(self, data: bytes) -> str:
        """Stores the bytes and returns their digest once they are durable: on the disk, or acknowledged by the bucket.

        Bytes already stored are left alone; where the stored ones are damaged, they are replaced.
        """
        if self._root is not None:
            return await self._in_thread(lambda: self._put_file(data))
        await self.require_present()
        digest = await self._in_thread(lambda: digest_of(data))
        key = _key(digest)
        with as_blob_errors(f"the blob {digest} cannot be stored"):
            try:
                await self._store.put_async(key, data, mode="create")
            except AlreadyExistsError:
                if await self._stored(key) != data:
                    await self._store.put_async(key, data, mode="overwrite")
        return digest

    async def get(self, digest: str) -> bytes:
        """Returns exactly the bytes that have this digest; raises BlobNotFound or BlobDamaged."""
        return await self.load(digest, bytes)

    async def load(self, digest: str, parse: Callable[[bytes], T]) -> T:
        """What `parse` makes of the bytes that `get` returns, in a thread that in a directory reads them too: to hand
        them on would take longer than the reading.

        `parse` begins before their digest is known and must bear damaged bytes; nobody gets what it makes of those.
        Raises what `get` or `parse` raises.
        """
        key, downloaded = _key(digest), None
        if self._root is None:
            with as_blob_errors(f"the blob {digest} cannot be read"):
                downloaded = await self._stored(key)
            if downloaded is None:
                await self.require_present()

        def work() -> T:
            with as_blob_errors(f"the blob {digest} cannot be read"):
                data = downloaded if self._root is None else _read(self._root / key)
            if data is None:
                self._require_directory()
                raise BlobNotFound(f"the blob store {self._name!r} holds no blob {digest}")
            # In this order: hashing lets other threads run, and parsing hardly does.
            parsed = self._parsers.submit(parse, data)
            _require(digest, data)
            return parsed.result()

        return await self._in_thread(work)

    async def pieces(self, digest: str, size_bytes: int) -> AsyncIterator[bytes]:
        """Yields what `get` returns in pieces of 256 KiB, each read once it is asked for; raises what `get` raises.

        The last piece comes only if all of them together have the digest, so who has it has them right.
        """
        found = hashlib.sha256()
        for start in range(0, size_bytes, PIECE_BYTES):
            end = min(start + PIECE_BYTES, size_bytes)
            piece = await self._piece(digest, start, end)
            found.update(piece)
            if end == size_bytes and f"sha256:{found.hexdigest()}" != digest:
                raise BlobDamaged(f"the blob {digest} is damaged: what is stored has another digest or length")
            yield piece

    async def delete(self, digest: str) -> None:
        """Deletes the blob; one that is not there is no error."""
        # No fsync: a deletion that a power loss undoes leaves bytes that nothing refers to.
        key = _key(digest)
        with as_blob_errors(f"the blob {digest} cannot be deleted"):
            try:
                await self._store.delete_async(key)
            except FileNotFoundError:
                return

    async def entries(self) -> AsyncIterator[StoredBlob]:
        """Every blob of the store in no order, a page at a time; one that is put meanwhile may be missed."""
        with as_blob_errors(f"the blob store {self._name!r} cannot be listed"):
            async for page in self._store.list(_FOLDER, chunk_size=_PAGE):
                for entry in page:
                    digest = entry["path"].replace("/", ":")
                    if _DIGEST.fullmatch(digest):
                        yield StoredBlob(digest, entry["size"], entry["last_modified"])

    async def sweep(self, age: timedelta) -> int:
        """Removes what puts that broke off at least `age` ago left in a directory; returns how many files.

        In a bucket nothing is visible of a put that broke off.
        """
        if self._root is None:
            return 0
        with as_blob_errors(f"the blob store {self._name!r} cannot be swept"):
            return await asyncio.to_thread(_sweep, self._root / _FOLDER, time.time() - age.total_seconds())

    async def require_present(self) -> None:
        """Raises BlobStoreGone where the store is missing or another one, and BlobError where it does not answer.

        Before its owner is known nothing tells it from another one. In a directory this costs microseconds, in a
        bucket a request.
        """
        if self._root is not None:
            self._require_directory()
        elif self._owner is not None:
            self._require_owner(await self.owner())

    @property
    def is_local(self) -> bool:
        """The blobs are in a directory of this machine."""
        return self._root is not None

    async def owner(self) -> str | None:
        """Who has claimed this store."""
        with as_blob_errors(f"the owner of the blob store {self._name!r} cannot be read"):
            data = await self._stored(_OWNER)
        # What a power loss leaves of a file that was just made may be empty.
        return data.decode(errors="replace") if data else None

    async def claim(self, owner: str) -> str:
        """Writes down the owner of a store that has none; returns who is the owner then, of many claimants one."""
        # Another claimant of this process may write it down while this one reads.
        is_known = self._owner is not None
        found = await self.owner()
        if found is None and is_known:
            # Never made anew under a process that has used it.
            self._require_owner(found)
        if found is None:
            found = await self._write_owner(owner)
        self._owner = found
        return found

    async def _write_owner(self, owner: str) -> str:
        with as_blob_errors(f"the owner of the blob store {self._name!r} cannot be stored"):
            try:
                await self._store.put_async(_OWNER, owner.encode(), mode="create")
            except AlreadyExistsError:
                return await self.owner() or await self.hand_over(owner)
            await asyncio.to_thread(self._sync, _OWNER)
        return owner

    async def hand_over(self, owner: str) -> str:
        """Writes down another owner, whoever it was before; returns the new one."""
        with as_blob_errors(f"the owner of the blob store {self._name!r} cannot be stored"):
            await self._store.put_async(_OWNER, owner.encode(), mode="overwrite")
            await asyncio.to_thread(self._sync, _OWNER)
        self._owner = owner
        return owner

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    def _put_file(self, data: bytes) -> str:
        digest = digest_of(data)
        key = _key(digest)
        with as_blob_errors(f"the blob {digest} cannot be stored"):
            self._require_directory()
            try:
                self._store.put(key, data, mode="create")
            except AlreadyExistsError:
                assert self._root is not None, "a bucket has no files"
                if _read(self._root / key) != data:
                    self._store.put(key, data, mode="overwrite")
            self._sync(key)
            # It may have gone meanwhile, and obstore makes directories that are missing.
            self._require_directory()
        return digest

    def _require_directory(self) -> None:
        if self._root is None or self._owner is None:
            return
        if not (self._root / _FOLDER).is_dir():
            raise BlobStoreGone(f"the blob store {self._name!r} is gone: its directory {_FOLDER!r} is not there")
        # By its content, because a directory that is made anew may well get the inode of the one that was removed.
        with as_blob_errors(f"the owner of the blob store {self._name!r} cannot be read"):
            data = _read(self._root / _OWNER)
        self._require_owner(data.decode(errors="replace") if data else None)

    def _require_owner(self, found: str | None) -> None:
        if found is None or found != self._owner:
            whose = "has no owner" if found is None else f"belongs to the registry {found}"
            raise BlobStoreGone(f"the blob store {self._name!r} is another one: it {whose}, and was {self._owner}'s")

    async def _stored(self, key: str) -> bytes | None:
        try:
            result = await self._store.get_async(key)
            return bytes(await result.bytes_async())
        except FileNotFoundError:
            return None

    async def _piece(self, digest: str, start: int, end: int) -> bytes:
        key = _key(digest)
        # Not one stream: the time-out of a bucket's request would then be that of whoever reads slowly.
        with as_blob_errors(f"the blob {digest} cannot be read"):
            try:
                return bytes(await self._store.get_range_async(key, start=start, end=end))
            except FileNotFoundError:
                await self.require_present()
                raise BlobNotFound(f"the blob store {self._name!r} holds no blob {digest}") from None

    def _sync(self, key: str) -> None:
        # A bucket has acknowledged what is durable. In a directory, obstore links or renames a finished file into
        # place, but syncs neither the file nor its directory.
        if self._root is None:
            return
        path = self._root / key
        sync(path)
        sync(path.parent)

    def _probe(self) -> None:
        # A store that ignores create-only would let two writers of one name overwrite each other. The probe stays
        # where it is: deleting it would disturb another process that probes the same store.
        self._store.put(_PROBE, b"", mode="overwrite")
        try:
            self._store.put(_PROBE, b"", mode="create")
        except AlreadyExistsError:
            return
        raise BlobError(f"the blob store {self._name!r} overwrites a file that it was told only to create")


def _require(digest: str, data: bytes) -> None:
    found = digest_of(data)
    if found != digest:
        raise BlobDamaged(f"the blob {digest} is damaged: its {len(data)} stored bytes have the digest {found}")


def digest_of(data: bytes) -> str:
    """The name of these bytes: "sha256:" and 64 hexadecimal digits."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def _key(digest: str) -> str:
    match = _DIGEST.fullmatch(digest)
    if match is None:
        raise BlobError(f"the digest {digest!r} is not 'sha256:' and 64 lower-case hexadecimal digits")
    return f"{_FOLDER}/{match[1]}"


def _sweep(directory: Path, before: float) -> int:
    remains = [path for path in directory.iterdir() if _REMAINS.fullmatch(path.name)]
    return sum(_remove_older(path, before) for path in remains)


def _remove_older(path: Path, before: float) -> bool:
    """Whether the file was older and is removed; one that its put or another sweep has just taken away is neither."""
    try:
        if path.stat().st_mtime >= before:
            return False
        path.unlink()
    except FileNotFoundError:
        return False
    return True
