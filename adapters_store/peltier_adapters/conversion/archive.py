"""Zips of checkpoints, unpacked within bounds. Imports no torch."""

import os
import shutil
import stat
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from peltier_backbone.errors import BackboneError

_PIECE_BYTES = 1024 * 1024
_LINK_BYTES = 4096


@dataclass(frozen=True)
class ArchiveBounds:
    """How many entries a zip may have, and how many bytes they may have when they are unpacked."""

    files: int = 10_000
    bytes: int = 64 * 1024**3


BOUNDS = ArchiveBounds()


def unpack(path: Path, folder: Path, bounds: ArchiveBounds = BOUNDS) -> None:
    """Write the files of the zip at `path` to the new `folder`. Raises a `BackboneError` for more than `bounds`, for a
    path outside, and for a link to anything but a file of the zip."""
    with _reading(path), zipfile.ZipFile(path) as archive:
        entries = [one for one in archive.infolist() if not one.is_dir()]
        _check_bounds(path, entries, folder.parent, bounds)
        folder.mkdir()
        for entry in entries:
            if not _is_link(entry):
                _write(archive, entry, folder)
        for entry in filter(_is_link, entries):
            _link(path, archive, entry, folder)


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        # The last two are of compressions that Python has not, and of passwords.
        raise BackboneError(f"{path} cannot be unpacked: {error}") from None
    except (FileExistsError, NotADirectoryError, IsADirectoryError) as error:
        raise BackboneError(f"{path} cannot be unpacked: two entries have the path {error.filename}") from None


def _check_bounds(path: Path, entries: list[zipfile.ZipInfo], disk: Path, bounds: ArchiveBounds) -> None:
    if len(entries) > bounds.files:
        raise BackboneError(f"{path} has {len(entries):,} files; at most {bounds.files:,} are unpacked")
    total = sum(entry.file_size for entry in entries)
    if total > bounds.bytes:
        raise BackboneError(f"{path} has {total:,} bytes when unpacked; at most {bounds.bytes:,} are unpacked")
    check_room(disk, total)
    for entry in entries:
        parts = PurePosixPath(entry.filename).parts
        if entry.filename.startswith("/") or ".." in parts or "\\" in entry.filename:
            raise BackboneError(f"{path}: the entry {entry.filename!r} is a path outside of the zip")


def check_room(disk: Path, num_bytes: int) -> None:
    """Raises a `BackboneError` if so many bytes do not fit on the disk of the directory `disk`."""
    free = shutil.disk_usage(disk).free
    if num_bytes > free:
        raise BackboneError(f"{disk} has no room: {num_bytes:,} bytes are needed, and {free:,} are free")


def _is_link(entry: zipfile.ZipInfo) -> bool:
    return stat.S_ISLNK(entry.external_attr >> 16)


def _write(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, folder: Path) -> None:
    target = folder / entry.filename
    target.parent.mkdir(parents=True, exist_ok=True)
    with archive.open(entry) as source, target.open("xb") as file:
        shutil.copyfileobj(source, file, _PIECE_BYTES)


def _link(path: Path, archive: zipfile.ZipFile, entry: zipfile.ZipInfo, folder: Path) -> None:
    """Links only files that were written, so that no path leads through another link."""
    link = folder / entry.filename
    with archive.open(entry) as file:
        text = os.fsdecode(file.read(_LINK_BYTES))
    target = Path(os.path.normpath(link.parent / text))
    if os.path.isabs(text) or not target.is_relative_to(folder) or target.is_symlink() or not target.is_file():
        raise BackboneError(f"{path}: the link {entry.filename!r} leads to {text!r}, which is no file of the zip")
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(text)
