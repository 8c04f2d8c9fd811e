"""Results of a batch in files in `TMPDIR`, so that their size does not matter for the server's memory."""

import os
import shutil
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import contextmanager
from mmap import ACCESS_READ, mmap
from tempfile import TemporaryFile
from threading import Lock
from typing import Self

from peltier_adapters.errors import AdapterError
from peltier_store.blobs.blobs import BlobError, Blobs
from peltier_store.registry.extensions.queue_records import BatchPart


class ResultsError(AdapterError):
    """The temporary files cannot be written; their disk may be full."""


class LineFile:
    """Lines in a temporary file, which is gone when it is closed. Several threads may append to it."""

    def __init__(self) -> None:
        with _as_results_errors():
            self._file = TemporaryFile()  # noqa: SIM115 - closed by `close`
        self._lock = Lock()
        self.num_bytes = self.num_lines = 0

    def add(self, line: bytes) -> tuple[int, int]:
        """Appends a line, or a piece of one. Returns where it starts and how long it is, for `read`."""
        with self._lock, _as_results_errors():
            start, end = self.num_bytes, self.num_bytes + len(line)
            # One call may write less.
            while self.num_bytes < end:
                self.num_bytes += os.pwrite(self._file.fileno(), line[self.num_bytes - start :], self.num_bytes)
            self.num_lines += line.endswith(b"\n")
        return start, len(line)

    def read(self, start: int, size: int) -> bytes:
        """What `add` wrote there."""
        return os.pread(self._file.fileno(), size, start)

    def truncate(self, num_bytes: int, num_lines: int) -> None:
        """Removes what follows the first lines."""
        with _as_results_errors():
            self._file.truncate(num_bytes)
        self.num_bytes, self.num_lines = num_bytes, num_lines

    def append(self, other: Self) -> None:
        """Appends the lines of another file."""
        with _as_results_errors():
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
        """Frees the disk, when no `content` is used any more. A write of another thread ends first."""
        with self._lock:
            self._file.close()


@contextmanager
def _as_results_errors() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ResultsError(f"the temporary files of a batch cannot be written: {error.strerror}") from error


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
