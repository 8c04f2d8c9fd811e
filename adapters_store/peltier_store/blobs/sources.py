"""Reads the bytes of a blob once, and checks that exactly these bytes have its digest."""

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from typing import TypeVar

from peltier_adapters.artifact.source import ByteSource

from peltier_store.blobs.errors import BlobDamaged, as_blob_errors

T = TypeVar("T")

_REST_BYTES = 1024 * 1024
# Hashing fewer bytes takes less time than waking another thread to check them meanwhile.
_BYTES_OF_TWO_THREADS = 512 * 1024
# The most pieces of one call of the operating system (IOV_MAX).
_MAX_PIECES = 1024


class FileSource:
    """The bytes of a file, by its descriptor; see `ByteSource`."""

    def __init__(self, descriptor: int) -> None:
        self.num_bytes = os.fstat(descriptor).st_size
        self._descriptor = descriptor

    def read(self, num_bytes: int) -> bytes:
        data = os.read(self._descriptor, num_bytes)
        while len(data) < num_bytes:
            more = os.read(self._descriptor, num_bytes - len(data))
            if not more:
                raise EOFError(f"the file ends {num_bytes - len(data)} bytes early")
            data += more
        return data

    def read_into(self, pieces: Sequence[memoryview], then: Callable[[], T]) -> T:
        rest = list(pieces)
        while rest:
            count = os.readv(self._descriptor, rest[:_MAX_PIECES])
            if not count:
                raise EOFError(f"the file ends {sum(map(len, rest))} bytes early")
            rest = _after(count, rest)
        return then()


def _after(count: int, pieces: Sequence[memoryview]) -> list[memoryview]:
    for number, piece in enumerate(pieces):
        if count < len(piece):
            return [piece[count:], *pieces[number + 1 :]]
        count -= len(piece)
    return []


class CheckedSource:
    """The bytes of the blob with this digest; see `ByteSource`. The bytes are known to be right once `require_digest`
    returns. A failure to read is a BlobError."""

    def __init__(self, digest: str, source: ByteSource, executor: Executor) -> None:
        """`executor` runs what follows a long read while this thread hashes, if it has a thread and a core for it."""
        self.num_bytes = self._rest = source.num_bytes
        self._digest, self._source, self._executor = digest, source, executor
        self._hash = hashlib.sha256()

    def read(self, num_bytes: int) -> bytes:
        with self._reading():
            data = self._source.read(num_bytes)
        self._take([data])
        return data

    def read_into(self, pieces: Sequence[memoryview], then: Callable[[], T]) -> T:
        with self._reading():
            self._source.read_into(pieces, _nothing)
        if sum(map(len, pieces)) < _BYTES_OF_TWO_THREADS:
            self._take(pieces)
            return then()
        # Hashing in this thread, because it releases the GIL and `then` hardly does.
        result = self._executor.submit(then)
        self._take(pieces)
        # While all cores are busy, `then` has not begun yet, and waiting for its turn would take longer.
        return then() if result.cancel() else result.result()

    def require_digest(self) -> None:
        """Reads the rest. Raises BlobDamaged if all bytes together have another digest."""
        while self._rest:
            self.read(min(_REST_BYTES, self._rest))
        found = f"sha256:{self._hash.hexdigest()}"
        if found != self._digest:
            raise self._damaged(f"its {self.num_bytes} stored bytes have the digest {found}")

    def _take(self, pieces: Sequence[bytes | memoryview]) -> None:
        for piece in pieces:
            self._hash.update(piece)
            self._rest -= len(piece)

    @contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            with as_blob_errors(f"the blob {self._digest} cannot be read"):
                yield
        except EOFError as error:
            raise self._damaged(str(error)) from None

    def _damaged(self, reason: str) -> BlobDamaged:
        return BlobDamaged(f"the blob {self._digest} is damaged: {reason}")


def _nothing() -> None:
    return None
