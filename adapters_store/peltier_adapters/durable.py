"""Writes of files and directories that survive a power loss."""

import os
import secrets
from contextlib import suppress
from pathlib import Path

Identity = tuple[int, int]


def identity_of(path: Path) -> Identity | None:
    """The device and inode of the file or directory at `path`; None if it does not exist."""
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
    """Writes the file atomically. Also after a crash or a power loss, readers find either the old or the new bytes, and
    the new ones once this returns.

    Raises OSError, and then leaves no partial file.
    """
    # A unique name, because two processes may write the same file at the same time.
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
    """Creates the directory and its missing ancestors durably. Raises OSError."""
    missing = [directory for directory in (path, *path.parents) if not directory.exists()]
    path.mkdir(parents=True, exist_ok=True)
    # A directory's name is an entry of its parent, so the parents of new directories must be synced.
    for directory in missing:
        sync(directory.parent)
