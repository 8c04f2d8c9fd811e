"""Keys and files of a blob store: how they are named, read, made durable, and removed if a write was interrupted."""

import os
import re
from datetime import timedelta
from pathlib import Path

from obstore.store import ObjectStore
from peltier_adapters.durable import sync

from peltier_store.blobs.errors import BlobError

FOLDER = "sha256"
_DIGEST = re.compile(r"sha256:([0-9a-f]{64})")
# obstore's name of a file that it is writing.
_PARTIAL = re.compile(r"[0-9a-f]{64}#[0-9]+")


def blob_key(digest: str) -> str:
    """The key of the blob with this digest; raises BlobError for a malformed digest."""
    match = _DIGEST.fullmatch(digest)
    if match is None:
        raise BlobError(f"the digest {digest!r} is not 'sha256:' and 64 lower-case hexadecimal digits")
    return f"{FOLDER}/{match[1]}"


def digest_in(key: str) -> str | None:
    """The digest of the blob with this key; None if the key is not a blob's."""
    digest = key.replace("/", ":")
    return digest if _DIGEST.fullmatch(digest) else None


def read_object(store: ObjectStore, key: str) -> bytes | None:
    """The object's bytes; None if it does not exist."""
    try:
        return bytes(store.get(key).bytes())
    except FileNotFoundError:
        return None


def read_file(path: Path) -> bytes | None:
    """The file's bytes; None if it does not exist."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def sync_file(path: Path) -> None:
    """Makes a new file durable. obstore links or renames a finished file into place, but syncs nothing."""
    sync(path)
    sync(path.parent)


def remove_partial_files(directory: Path, age: timedelta) -> int:
    """Removes the partial files that were last written so long ago; returns how many."""
    partial = [path for path in directory.iterdir() if _PARTIAL.fullmatch(path.name)]
    before = _time_in(directory) - age.total_seconds() if partial else 0.0
    return sum(_remove_older(path, before) for path in partial)


def _time_in(directory: Path) -> float:
    """The Unix time of the file system, which may be on another machine, as those of the files."""
    path = directory / f"{'0' * 64}#{os.getpid()}"
    path.write_bytes(b"")
    try:
        return path.stat().st_mtime
    finally:
        path.unlink(missing_ok=True)


def _remove_older(path: Path, before: float) -> bool:
    """Whether this call removed the file; its writer or another process may have removed it first."""
    try:
        if path.stat().st_mtime >= before:
            return False
        path.unlink()
    except FileNotFoundError:
        return False
    return True
