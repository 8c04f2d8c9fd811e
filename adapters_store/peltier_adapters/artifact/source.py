"""An artifact's bytes: their digest, and sources from which they are read once. Imports no torch."""

import hashlib
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

T = TypeVar("T")


def digest_of(data: bytes | memoryview) -> str:
    """The digest of these bytes: "sha256:" and 64 hexadecimal digits."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


class ByteSource(Protocol):
    """Some bytes, `num_bytes` of them. Each is read once."""

    num_bytes: int

    def read(self, num_bytes: int) -> bytes:
        """The next bytes; raises EOFError if there are fewer."""

    def read_into(self, pieces: Sequence[memoryview], then: Callable[[], T]) -> T:
        """Fills each piece with the next bytes, and returns what `then` returns, which another thread may call.

        Raises EOFError if there are fewer bytes."""


class MemorySource:
    """The bytes of `data`."""

    def __init__(self, data: bytes) -> None:
        self.num_bytes = len(data)
        self._rest = memoryview(data)

    def read(self, num_bytes: int) -> bytes:
        """See `ByteSource`."""
        return bytes(self._take(num_bytes))

    def read_into(self, pieces: Sequence[memoryview], then: Callable[[], T]) -> T:
        """See `ByteSource`."""
        for piece in pieces:
            piece[:] = self._take(len(piece))
        return then()

    def _take(self, num_bytes: int) -> memoryview:
        if num_bytes > len(self._rest):
            raise EOFError(f"{num_bytes} bytes are wanted of {len(self._rest)}")
        taken, self._rest = self._rest[:num_bytes], self._rest[num_bytes:]
        return taken
