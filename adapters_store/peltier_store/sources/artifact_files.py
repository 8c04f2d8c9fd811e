"""The artifact files of a source: a directory, a prefix of a bucket, a repository or a collection of the hub.

Nothing in them is trusted. Bounds of number and size are checked before the first file is read.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path

from peltier_adapters.errors import AdapterError
from peltier_adapters.hub.address import HubCollection, is_hub, parse_address
from peltier_adapters.hub.bounds import BOUNDS
from peltier_adapters.hub.snapshot import HubSnapshot, repositories_of

from peltier_store.blobs.errors import as_blob_errors
from peltier_store.blobs.location import is_remote, local_path, locate

ENDING = ".safetensors"
# Of artifacts in a repository; a folder may hold checkpoints of something else.
_AT_THE_ROOT = r"[^/]+\.safetensors"


class SourceError(AdapterError):
    """A source that cannot be read."""


@dataclass(frozen=True)
class SourceFile:
    """A file that may be an artifact: its address for messages, what changes with its bytes, its size, and a function
    that reads it."""

    address: str
    version: str
    size_bytes: int
    read: Callable[[], bytes] = field(repr=False)


def find_artifacts(source: str | Path) -> Sequence[SourceFile]:
    """The files NAME.safetensors of a directory, of a bucket's prefix ({s3,gs,az}://BUCKET/PREFIX, see `locate`), or of
    hf://OWNER/NAME@REVISION or hf://collections/OWNER/SLUG; raises AdapterError."""
    if is_hub(source):
        address = parse_address(str(source))
        repositories = repositories_of(address) if isinstance(address, HubCollection) else [address]
        return [file for one in repositories for file in artifacts_of(HubSnapshot.open(one))]
    return _in_bucket(str(source)) if is_remote(source) else _in_directory(local_path(source))


def artifacts_of(snapshot: HubSnapshot) -> Sequence[SourceFile]:
    """The files of a repository of the hub that may be artifacts."""
    return [
        SourceFile(f"{snapshot.where}/{file.path}", snapshot.commit, file.size_bytes, partial(snapshot.read, file))
        for file in snapshot.choose(_AT_THE_ROOT)
    ]


def _in_directory(directory: Path) -> Sequence[SourceFile]:
    if not directory.is_dir():
        raise SourceError(f"the source {str(directory)!r} is not a directory")
    return [
        SourceFile(str(path), str(path.stat().st_mtime_ns), path.stat().st_size, path.read_bytes)
        for path in sorted(directory.glob(f"*{ENDING}"))
    ]


def _in_bucket(url: str) -> Sequence[SourceFile]:
    place = locate(url)
    with as_blob_errors(f"the bucket {place.name!r} cannot be listed"):
        listed = list(islice((entry for page in place.store.list() for entry in page), BOUNDS.listed + 1))
    BOUNDS.check_listed(len(listed), place.name)
    found = {entry["path"]: entry for entry in listed if entry["path"].endswith(ENDING)}
    BOUNDS.check({path: entry["size"] for path, entry in found.items()}, place.name)

    def read(path: str) -> bytes:
        size = found[path]["size"]
        with as_blob_errors(f"{place.name}/{path} cannot be read"):
            # A range, so that an object that has grown since is not read further.
            return bytes(place.store.get_range(path, start=0, end=size)) if size else b""

    return [
        SourceFile(f"{place.name}/{path}", str(entry["e_tag"]), entry["size"], partial(read, path))
        for path, entry in sorted(found.items())
    ]
