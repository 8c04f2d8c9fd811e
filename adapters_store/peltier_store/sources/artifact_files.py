"""The artifact files of a source: a directory, a prefix of a bucket, or a repository of the hub.

Nothing in them is trusted. Bounds of number and size are checked before the first file is read.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path

from peltier_adapters.errors import AdapterError
from peltier_adapters.hub.address import is_hub, parse_repository
from peltier_adapters.hub.download import BOUNDS, Download, download, seconds_for

from peltier_store.blobs.errors import BlobError, as_blob_errors
from peltier_store.blobs.location import is_remote, local_path, locate

ENDING = ".safetensors"


class SourceError(AdapterError):
    """A source that cannot be read."""


@dataclass(frozen=True)
class SourceFile:
    """A file that may be an artifact: its address for messages, its size, and a function that reads it."""

    address: str
    size_bytes: int
    read: Callable[[], bytes] = field(repr=False)


def find_artifacts(source: str | Path) -> Sequence[SourceFile]:
    """The files NAME.safetensors of a directory, of a bucket's prefix ({s3,gs,az}://BUCKET/PREFIX, see `locate`), or of
    hf://OWNER/NAME@REVISION; raises AdapterError."""
    if is_hub(source):
        return artifacts_of(download(parse_repository(str(source))))
    return _in_bucket(str(source)) if is_remote(source) else _in_directory(local_path(source))


def artifacts_of(found: Download) -> Sequence[SourceFile]:
    """The files at the root of a repository; a folder may hold checkpoints of something else."""
    paths = {name: found.directory / name for name in sorted(found.files) if "/" not in name and name.endswith(ENDING)}
    return [SourceFile(f"{found.address}/{name}", path.stat().st_size, path.read_bytes) for name, path in paths.items()]


def _in_directory(directory: Path) -> Sequence[SourceFile]:
    if not directory.is_dir():
        raise SourceError(f"the source {str(directory)!r} is not a directory")
    return [
        SourceFile(str(path), path.stat().st_size, path.read_bytes) for path in sorted(directory.glob(f"*{ENDING}"))
    ]


def _in_bucket(url: str) -> Sequence[SourceFile]:
    place = locate(url)
    with as_blob_errors(f"the bucket {place.name!r} cannot be listed"):
        listed = list(islice((entry for page in place.store.list() for entry in page), BOUNDS.listed + 1))
    BOUNDS.check_listed(len(listed), place.name)
    sizes = {entry["path"]: entry["size"] for entry in listed if entry["path"].endswith(ENDING)}
    BOUNDS.check(sizes, place.name)
    seconds, spent = seconds_for(sum(sizes.values())), 0.0

    def read(path: str) -> bytes:
        nonlocal spent
        began = time.monotonic()
        if spent > seconds:
            raise BlobError(f"{place.name} has not sent its files within {seconds} seconds")
        with as_blob_errors(f"{place.name}/{path} cannot be read"):
            # A range, so that an object that has grown since is not read further.
            data = bytes(place.store.get_range(path, start=0, end=sizes[path])) if sizes[path] else b""
        spent += time.monotonic() - began
        return data

    return [SourceFile(f"{place.name}/{path}", size, partial(read, path)) for path, size in sorted(sizes.items())]
