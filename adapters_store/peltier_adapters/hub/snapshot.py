"""A repository of the hub at one commit: its files, each read within bounds and checked against the hub's own hash.

Tokens are huggingface_hub's (`hf auth login`, HF_TOKEN), and so is the address of the hub (HF_ENDPOINT).
"""

import hashlib
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import Self

from httpx2 import HTTPError
from huggingface_hub import HfApi, hf_hub_url
from huggingface_hub.hf_api import RepoFile

# Public, but not exported for type checkers.
from huggingface_hub.utils import (  # type: ignore[attr-defined]
    build_hf_headers,
    hf_raise_for_status,
    http_stream_backoff,
)

from peltier_adapters.errors import AdapterError
from peltier_adapters.hub.address import SCHEME, HubCollection, HubRepository, parse_repository
from peltier_adapters.hub.bounds import BOUNDS

_COMMIT = re.compile(r"[0-9a-f]{40}")
_TIMEOUT_SECONDS = 30.0
# Redirects of the hub have signatures in their query.
_QUERY = re.compile(r"\?[^\s'\"]*")


class HubError(AdapterError):
    """The hub refused a request, or what it sent cannot be used."""


@contextmanager
def as_hub_errors(failure: str) -> Iterator[None]:
    """Raises errors of the hub and of the connection in the block as a HubError that begins with `failure`."""
    try:
        yield
    except AdapterError:
        raise
    except (HTTPError, OSError, ValueError, KeyError, TypeError, RuntimeError) as error:
        # `HfHubHTTPError` is an OSError; a malformed answer raises the others.
        cause = error.__cause__ if type(error) is RuntimeError and error.__cause__ else error
        # The lines after the second are advice.
        lines = [line.strip() for line in str(cause).splitlines() if line.strip()][:2]
        reason = _QUERY.sub("", " ".join(lines)) or type(cause).__name__
        raise HubError(f"{failure}: {reason}") from error


@dataclass(frozen=True)
class HubFile:
    """A file of a commit; `hash_` is the hub's: the sha256 of a large file, or git's sha1 of a small one."""

    path: str
    size_bytes: int
    hash_: str


@dataclass(frozen=True)
class HubSnapshot:
    """The files of a repository at `commit`, whose bytes never change."""

    repository: str
    commit: str
    files: dict[str, HubFile] = field(repr=False)

    @classmethod
    def open(cls, address: HubRepository) -> Self:
        """Resolves the revision to its commit and lists the files of that commit; downloads none of them."""
        return cls.at(address, resolve(address))

    @classmethod
    def at(cls, address: HubRepository, commit: str) -> Self:
        """The files of a commit."""
        api = HfApi()
        with as_hub_errors(f"the files of {address} cannot be listed"):
            tree = api.list_repo_tree(address.name, recursive=True, revision=commit)
            entries = list(islice(tree, BOUNDS.listed + 1))
        BOUNDS.check_listed(len(entries), str(address))
        files = [_file(entry) for entry in entries if isinstance(entry, RepoFile)]
        return cls(address.name, commit, {file.path: file for file in files})

    @property
    def where(self) -> str:
        """The repository and the commit, for messages and records."""
        return str(HubRepository(self.repository, self.commit))

    def choose(self, *patterns: str) -> list[HubFile]:
        """The files whose whole path matches one of the patterns, after a check of their number and sizes."""
        chosen = [file for path, file in sorted(self.files.items()) if any(re.fullmatch(one, path) for one in patterns)]
        BOUNDS.check({file.path: file.size_bytes for file in chosen}, self.where)
        return chosen

    def read(self, file: HubFile) -> bytes:
        """The bytes of a file. Reads not one byte more than were listed, and raises HubError for others than those."""
        with as_hub_errors(f"{self.where}: the file {file.path!r} cannot be downloaded"):
            data = self._download(file)
        if len(data) != file.size_bytes or _hash(data, file.hash_) != file.hash_:
            raise HubError(
                f"{self.where}: the file {file.path!r} has {len(data):,} bytes of another content than the hub lists"
            )
        return data

    def _download(self, file: HubFile) -> bytes:
        api, data = HfApi(), bytearray()
        url = hf_hub_url(self.repository, file.path, revision=self.commit, endpoint=api.endpoint)
        # Compressed answers have another length than the file, and might expand to any.
        headers = {**build_hf_headers(), "accept-encoding": "identity"}
        with http_stream_backoff("GET", url, headers=headers, timeout=_TIMEOUT_SECONDS) as response:
            hf_raise_for_status(response)
            for piece in response.iter_raw():
                data += piece
                if len(data) > file.size_bytes:
                    raise HubError(f"{self.where}: the file {file.path!r} has more bytes than the {file.size_bytes:,}"
                                   " that the hub lists")  # fmt: skip
        return bytes(data)


def resolve(address: HubRepository) -> str:
    """The commit that a revision names now."""
    with as_hub_errors(f"{address} cannot be read"):
        commit = HfApi().model_info(address.name, revision=address.revision, timeout=_TIMEOUT_SECONDS).sha or ""
    if not _COMMIT.fullmatch(commit):
        raise HubError(f"{address}: the hub names the commit {commit!r}, which is not a git hash")
    return commit


def repositories_of(collection: HubCollection) -> Sequence[HubRepository]:
    """The model repositories of a collection, in its order. Data sets, spaces and papers are left out."""
    with as_hub_errors(f"{collection} cannot be read"):
        items = HfApi().get_collection(collection.slug).items
        names = [item.item_id for item in items if item.item_type == "model"]
    BOUNDS.check_listed(len(names), str(collection))
    return [parse_repository(f"{SCHEME}{name}") for name in names]


def _file(entry: RepoFile) -> HubFile:
    if entry.lfs is not None:
        return HubFile(entry.path, entry.lfs.size, f"sha256:{entry.lfs.sha256}")
    return HubFile(entry.path, entry.size, f"git:{entry.blob_id}")


def _hash(data: bytes, like: str) -> str:
    if like.startswith("sha256:"):
        return f"sha256:{hashlib.sha256(data).hexdigest()}"
    # Git's name of a blob.
    found = hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False)
    return f"git:{found.hexdigest()}"
