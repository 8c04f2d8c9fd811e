"""Results of a batch in temporary files, so that their size does not matter for the server's memory."""

import os
import shutil
from collections.abc import AsyncIterator, Iterable
from mmap import ACCESS_READ, mmap
from tempfile import TemporaryFile
from typing import Self

from peltier_store.blobs.blobs import BlobError, Blobs
from peltier_store.registry import BatchPart


class LineFile:
    """Lines in a temporary file, which is gone when it is closed."""

    def __init__(self) -> None:
        self._file = TemporaryFile()  # noqa: SIM115 - closed by `close`
        self.num_bytes = self.num_lines = 0

    def add(self, line: bytes) -> tuple[int, int]:
        """Appends a line, or a piece of one. Returns where it starts and how long it is, for `read`."""
        start, size = self.num_bytes, len(line)
        self.num_bytes += size
        self.num_lines += line.endswith(b"\n")
        os.pwrite(self._file.fileno(), line, start)
        return start, size

    def read(self, start: int, size: int) -> bytes:
        """What `add` wrote there."""
        return os.pread(self._file.fileno(), size, start)

    def truncate(self, num_bytes: int, num_lines: int) -> None:
        """Removes what follows the first lines."""
        self._file.truncate(num_bytes)
        self.num_bytes, self.num_lines = num_bytes, num_lines

    def append(self, other: Self) -> None:
        """Appends the lines of another file."""
        self._file.seek(self.num_bytes)
        other._file.seek(0)
        shutil.copyfileobj(other._file, self._file)
        self._file.flush()
        self.num_bytes += other.num_bytes
        self.num_lines += other.num_lines

    def content(self) -> memoryview:
        """All bytes, of which there is at least one. The system reads them when they are used."""
        return memoryview(mmap(self._file.fileno(), 0, access=ACCESS_READ))

    def close(self) -> None:
        """Frees the disk, when no `content` is used any more."""
        self._file.close()


class BatchResults:
    """The results of a batch, or of one turn: the lines of answers and of errors, each in the order of the requests."""

    def __init__(self) -> None:
        self.completed, self.failed = LineFile(), LineFile()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.completed.close()
        self.failed.close()

    def add_errors(self, lines: Iterable[bytes]) -> None:
        """Appends errors. There may be thousands, which takes too long for the event loop."""
        for line in lines:
            self.failed.add(line)

    async def add_part(self, blobs: Blobs, part: BatchPart) -> None:
        """Appends the stored results of a turn. Raises BlobNotFound or BlobDamaged, and then appends none of them."""
        files = self.completed, self.failed
        before = [(file.num_bytes, file.num_lines) for file in files]
        try:
            await self._copy(blobs.pieces(part.digest, part.size_bytes), part.num_completed)
        except BlobError:
            for file, (num_bytes, num_lines) in zip(files, before, strict=True):
                file.truncate(num_bytes, num_lines)
            raise

    async def _copy(self, pieces: AsyncIterator[bytes], num_completed: int) -> None:
        end = self.completed.num_lines + num_completed
        async for piece in pieces:
            for line in piece.splitlines(keepends=True):
                (self.completed if self.completed.num_lines < end else self.failed).add(line)
