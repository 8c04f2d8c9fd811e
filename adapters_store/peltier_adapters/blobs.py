"""Where the bytes of artifacts live: a content-addressed store."""

import asyncio
import hashlib
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self
from urllib.parse import unquote, urlsplit

from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import LocalStore

from peltier_adapters.durable import make_directory, sync
from peltier_adapters.errors import AdapterError

_DIGEST = re.compile(r"sha256:([0-9a-f]{64})")
_FOLDER = "sha256"
_PROBE = "create-only-probe"


class BlobError(AdapterError):
    """The blob store could not do what was asked of it."""


class BlobNotFound(BlobError):
    """The blob store holds no blob of that digest."""


class Blobs:
    """A content-addressed store in one local directory, safe to share between tasks and between processes.

    A blob is named by the sha256 of its bytes ("sha256:" and 64 hexadecimal digits), so it is never changed, only made
    and deleted. Every failure is a BlobError of one sentence.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._store = LocalStore(root)

    @classmethod
    def open(cls, location: str | Path) -> Self:
        """Opens the store in a directory, given as a path or a file:// URL, and makes it where it is missing.

        Raises BlobError if the directory cannot be written or does not honour create-only.
        """
        root = _local_directory(location)
        with _plainly(f"the blob store {str(root)!r} cannot be opened"):
            make_directory(root / _FOLDER)
            blobs = cls(root)
            blobs._probe()
        return blobs

    async def put(self, data: bytes) -> str:
        """Stores the bytes and returns their digest once they are on the disk.

        Bytes already stored are left alone; where the stored ones are damaged, they are replaced.
        """
        digest = await asyncio.to_thread(digest_of, data)
        key = _key(digest)
        with _plainly(f"the blob {digest} cannot be stored"):
            try:
                await self._store.put_async(key, data, mode="create")
            except AlreadyExistsError:
                if await self._stored(key) != data:
                    await self._store.put_async(key, data, mode="overwrite")
            await asyncio.to_thread(self._sync, key)
        return digest

    async def get(self, digest: str) -> bytes:
        """Returns exactly the bytes that have this digest; raises BlobNotFound, or BlobError if they are damaged."""
        key = _key(digest)
        with _plainly(f"the blob {digest} cannot be read"):
            data = await self._stored(key)
        if data is None:
            raise BlobNotFound(f"the blob store {str(self._root)!r} holds no blob {digest}")
        found = await asyncio.to_thread(digest_of, data)
        if found != digest:
            raise BlobError(f"the blob {digest} is damaged: its {len(data)} stored bytes have the digest {found}")
        return data

    async def delete(self, digest: str) -> None:
        """Deletes the blob; one that is not there is no error."""
        # No fsync: a deletion that a power loss undoes leaves bytes that nothing refers to.
        key = _key(digest)
        with _plainly(f"the blob {digest} cannot be deleted"):
            try:
                await self._store.delete_async(key)
            except FileNotFoundError:
                return

    async def _stored(self, key: str) -> bytes | None:
        try:
            result = await self._store.get_async(key)
            return bytes(await result.bytes_async())
        except FileNotFoundError:
            return None

    def _sync(self, key: str) -> None:
        # obstore links or renames a finished file into place, but syncs neither the file nor its directory.
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
        raise BlobError(f"the blob store {str(self._root)!r} overwrites a file that it was told only to create")


def digest_of(data: bytes) -> str:
    """The name of these bytes: "sha256:" and 64 hexadecimal digits."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def _key(digest: str) -> str:
    match = _DIGEST.fullmatch(digest)
    if match is None:
        raise BlobError(f"the digest {digest!r} is not 'sha256:' and 64 lower-case hexadecimal digits")
    return f"{_FOLDER}/{match[1]}"


def _local_directory(location: str | Path) -> Path:
    url = urlsplit(str(location))
    if "://" not in str(location):
        return Path(location).absolute()
    if url.scheme != "file" or url.netloc not in ("", "localhost") or not url.path:
        raise BlobError(f"the blob store {str(location)!r} is neither a directory nor a file:///DIRECTORY URL")
    return Path(unquote(url.path)).absolute()


@contextmanager
def _plainly(failure: str) -> Iterator[None]:
    try:
        yield
    except (BaseError, OSError, ValueError) as error:
        # Behind the first line obstore writes out its own internals.
        reason = str(error).partition("\n")[0]
        raise BlobError(f"{failure}: {reason}") from error
