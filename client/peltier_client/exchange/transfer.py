"""Progress of the transfer of a file, and its atomic writing."""

import os
import secrets
from collections.abc import Callable
from contextlib import suppress
from io import BytesIO
from pathlib import Path

# Takes the bytes transferred so far, and all bytes, None if their number is not known. A retry begins again at 0.
OnProgress = Callable[[int, int | None], object]


class ReportedFile(BytesIO):
    """A file that tells how much of it has been read to be sent."""

    def __init__(self, content: bytes, report: OnProgress) -> None:
        super().__init__(content)
        self._size, self._report = len(content), report

    def read(self, size: int | None = -1) -> bytes:
        data = super().read(size)
        self._report(self.tell(), self._size)
        return data


def write_whole(path: Path, data: bytes) -> Path:
    """Write `data` to `path` atomically and durably. Raises OSError, and leaves `path` as it was, if that fails."""
    # A unique name, so that concurrent writers of one path do not share a part file.
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        with part.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
        _sync_folder(path.parent)
    finally:
        with suppress(OSError):
            part.unlink()
    return path


def _sync_folder(folder: Path) -> None:
    """Make a new name durable. Windows cannot open folders."""
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
