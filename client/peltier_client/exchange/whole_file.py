"""Writing a file so that it is there whole or not at all."""

import os
import secrets
from contextlib import suppress
from pathlib import Path


def write_whole(path: Path, data: bytes) -> Path:
    """Put `data` at `path` in one step and on the disk. A write that fails leaves what was there; raises OSError."""
    # A name of its own, so that two who write the same file at once do not write into each other's.
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
    """A name is an entry of its folder; Windows cannot open one."""
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
