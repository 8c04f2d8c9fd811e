"""The files that a power loss would leave, computed from the real calls of fsync."""

import os
from pathlib import Path

import pytest


class PowerLoss:
    """Records each fsync: a file keeps the bytes of that moment, a directory its names."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.synced: set[Path] = set()
        self._bytes: dict[int, bytes] = {}
        self._names: dict[Path, dict[str, int]] = {}
        self._fsync = os.fsync
        patch.setattr(os, "fsync", self._follow)

    def left(self, path: Path) -> bytes | None:
        """The bytes that are sure to be under this name; None where the name itself is not."""
        inode = self._names.get(path.parent, {}).get(path.name)
        return None if inode is None else self._bytes.get(inode, b"")

    def written(self, path: Path) -> bytes | None:
        """The bytes that are sure to be in this file, under whichever name."""
        return self._bytes.get(path.stat().st_ino)

    def _follow(self, descriptor: int) -> None:
        self._fsync(descriptor)
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        self.synced.add(path)
        if path.is_dir():
            self._names[path] = {entry.name: entry.inode() for entry in os.scandir(path)}
        else:
            self._bytes[path.stat().st_ino] = path.read_bytes()
