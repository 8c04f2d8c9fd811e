"""Atomic writing of files."""

import os
import secrets
from contextlib import suppress
from pathlib import Path


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
