"""Directories and files that are still there after a power loss."""

import os
from pathlib import Path


def sync(path: Path) -> None:
    """Returns once the file's bytes, or the directory's entries, are on the disk; raises OSError."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_directory(path: Path) -> None:
    """Makes the directory and its missing ancestors durably; one that exists is left alone. Raises OSError."""
    missing = [directory for directory in (path, *path.parents) if not directory.exists()]
    path.mkdir(parents=True, exist_ok=True)
    # A directory's name is an entry of its parent, so each parent of a new directory is what must reach the disk.
    for directory in missing:
        sync(directory.parent)
