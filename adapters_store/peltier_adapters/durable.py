"""Directories and files that are still there after a power loss."""

import os
import secrets
from contextlib import suppress
from pathlib import Path

Identity = tuple[int, int]


def identity_of(path: Path) -> Identity | None:
    """What tells the file or directory at `path` from any other one: its device and inode. None where there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def sync(path: Path) -> None:
    """Returns once the file's bytes, or the directory's entries, are on the disk; raises OSError."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_file(path: Path, data: bytes) -> None:
    """Puts the bytes there in one step: whoever reads, a crash and a power loss find what was there before, or all of
    them, and once it returns they find all of them.

    Raises OSError, and then leaves nothing half-written.
    """
    # A name of its own, so that two who write the same file at once do not write into each other's.
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial")
    try:
        with partial.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
        sync(path.parent)
    finally:
        with suppress(OSError):
            partial.unlink()


def make_directory(path: Path) -> None:
    """Makes the directory and its missing ancestors durably; one that exists is left alone. Raises OSError."""
    missing = [directory for directory in (path, *path.parents) if not directory.exists()]
    path.mkdir(parents=True, exist_ok=True)
    # A directory's name is an entry of its parent, so each parent of a new directory is what must reach the disk.
    for directory in missing:
        sync(directory.parent)
