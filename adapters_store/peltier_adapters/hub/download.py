"""Downloads of repositories of the hub by huggingface_hub, in a process with limits of bytes, memory and time.

Tokens are huggingface_hub's (`hf auth login`, HF_TOKEN), and so are the address of the hub (HF_ENDPOINT) and the folder
that keeps what was downloaded (HF_HOME).
"""

import glob
import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from httpx2 import HTTPError
from huggingface_hub import HfApi, constants, snapshot_download
from huggingface_hub.file_download import repo_folder_name
from huggingface_hub.hf_api import RepoFile

from peltier_adapters.errors import AdapterError
from peltier_adapters.hub.address import HubRepository
from peltier_adapters.limited_process import Limits, answer, run

_MODULE = "peltier_adapters.hub.download"
# xet keeps chunks of its own, which no bound counts.
_ENVIRONMENT = {"HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
_COMMIT = re.compile(r"[0-9a-f]{40}")
# Artifacts, and what the importers read, except pickles: `.bin` files are never downloaded.
_READ = re.compile(
    r"[^/]+\.safetensors|(adapter_config|head_config|config|modules)\.json"
    r"|[0-9]_(Pooling|Dense|Normalize)/(config\.json|model\.safetensors)"
)
_MEMORY_BYTES = 2 * 1024**3
# Of huggingface_hub's own files, such as its lists.
_OTHER_BYTES = 16 * 1024**2
# Between two looks at what is written.
_LOOK_SECONDS = 0.5
_MIB = 1024 * 1024
_BASE_SECONDS = 60
_MIN_BYTES_PER_SECOND = 256 * 1024
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
    except (HTTPError, OSError, ValueError, KeyError, TypeError, RuntimeError, MemoryError) as error:
        # `HfHubHTTPError` is an OSError; a malformed answer raises the others.
        cause = error.__cause__ if type(error) is RuntimeError and error.__cause__ else error
        # The lines after the second are advice.
        lines = [line.strip() for line in str(cause).splitlines() if line.strip()][:2]
        reason = _QUERY.sub("", " ".join(lines)) or type(cause).__name__
        raise HubError(f"{failure}: {reason}") from error


@dataclass(frozen=True)
class DownloadBounds:
    """How many files a place may list, and how many and which bytes of it are downloaded."""

    listed: int = 10_000
    files: int = 1_000
    file_bytes: int = 256 * _MIB
    bytes: int = 4096 * _MIB

    def check_listed(self, count: int, where: str) -> None:
        """Raises AdapterError if a listing is too long; callers read at most one entry more than `listed`."""
        if count > self.listed:
            raise AdapterError(f"{where} lists more than {self.listed:,} files, the most that are read")

    def check(self, sizes: Mapping[str, int], where: str) -> None:
        """Raises AdapterError if the files of these sizes, by their paths, are too many or too large."""
        if len(sizes) > self.files:
            raise AdapterError(f"{where} has {len(sizes):,} files to download; at most {self.files:,} are allowed")
        for path, size in sizes.items():
            if not 0 <= size <= self.file_bytes:
                raise AdapterError(
                    f"{where}: the file {path!r} has {size:,} bytes; at most {self.file_bytes:,} are allowed"
                )
        if sum(sizes.values()) > self.bytes:
            raise AdapterError(
                f"{where} has {sum(sizes.values()):,} bytes to download; at most {self.bytes:,} are allowed"
            )


BOUNDS = DownloadBounds()


def seconds_for(num_bytes: int) -> int:
    """How long the other side may take to send or receive so many bytes, at the least 256 KiB a second."""
    return _BASE_SECONDS + num_bytes // _MIN_BYTES_PER_SECOND


@dataclass(frozen=True)
class Download:
    """Files of a repository at one commit, in `directory`. `address` is that of the commit."""

    address: str
    directory: Path
    files: frozenset[str]


def download(repository: HubRepository) -> Download:
    """The files that Peltier reads, from the hub or from what was downloaded before.

    Raises HubError if they are not those that the hub lists, have more bytes than `BOUNDS`, or do not come in time.
    """
    job = {"name": repository.name, "revision": repository.revision}
    found = run(_MODULE, job, str(repository), {**os.environ, **_ENVIRONMENT})
    return Download(found["address"], Path(found["directory"]), frozenset(found["files"]))


def fetch(job: Mapping[str, Any], apply: Callable[[Limits], None] = Limits.apply) -> dict[str, Any]:
    """The fields of a `Download`. `apply` limits the process, first for the list and then for the listed bytes."""
    apply(Limits(seconds_for(0), _MEMORY_BYTES, _OTHER_BYTES))
    asked = HubRepository(job["name"], job["revision"])
    with as_hub_errors(f"{asked} cannot be read"):
        commit = HfApi().model_info(asked.name, revision=asked.revision).sha or ""
    if not _COMMIT.fullmatch(commit):
        raise HubError(f"{asked}: the hub names the commit {commit!r}, which is not a git hash")
    found = HubRepository(asked.name, commit)
    sizes = _sizes(found)
    apply(Limits(seconds_for(sum(sizes.values())), _MEMORY_BYTES, _OTHER_BYTES + max(sizes.values())))
    with as_hub_errors(f"{found} cannot be downloaded"):
        directory = _download(found, sizes)
        _verify(found, Path(directory))
    return {"address": str(found), "directory": directory, "files": sorted(sizes)}


def _sizes(repository: HubRepository) -> dict[str, int]:
    """The sizes of the files that Peltier reads, which are in bounds."""
    with as_hub_errors(f"the files of {repository} cannot be listed"):
        tree = HfApi().list_repo_tree(repository.name, recursive=True, revision=repository.revision)
        entries = list(islice(tree, BOUNDS.listed + 1))
    BOUNDS.check_listed(len(entries), str(repository))
    sizes = {one.path: one.size for one in entries if isinstance(one, RepoFile) and _READ.fullmatch(one.path)}
    if not sizes:
        raise HubError(f"{repository} has neither an artifact, NAME.safetensors of Peltier, nor an adapter_config.json")
    BOUNDS.check(sizes, str(repository))
    return sizes


def _download(repository: HubRepository, sizes: Mapping[str, int]) -> str:
    """The directory of the files. The limit of the process is of each file; here all together have no more bytes than
    are listed."""
    folder = Path(constants.HF_HUB_CACHE) / repo_folder_name(repo_id=repository.name, repo_type="model")
    before, listed = _files(folder), sum(sizes.values())
    pool, patterns = ThreadPoolExecutor(1), [glob.escape(path) for path in sizes]
    work = pool.submit(snapshot_download, repository.name, revision=repository.revision, allow_patterns=patterns)
    pool.shutdown(wait=False)
    while True:
        done = wait([work], _LOOK_SECONDS).done
        new = [found for number, found in _files(folder).items() if number not in before]
        if sum(size for _, size in new) > listed + _OTHER_BYTES:
            for path, _ in new:
                path.unlink(missing_ok=True)
            raise HubError(f"{repository} has more bytes than the {listed:,} that the hub lists for its files")
        if done:
            return work.result()


def _files(folder: Path) -> dict[int, tuple[Path, int]]:
    """Each file and its size by its number on the disk, which stays when it is renamed."""
    found = {}
    for path in folder.rglob("*"):
        with suppress(FileNotFoundError):
            status = path.lstat()
            if not stat.S_ISDIR(status.st_mode):
                found[status.st_ino] = path, status.st_size
    return found


def _verify(repository: HubRepository, directory: Path) -> None:
    """Compares the hashes of the files with those that the hub lists for the commit."""
    wrong = HfApi().verify_repo_checksums(repository.name, revision=repository.revision).mismatches
    for one in wrong:
        # The next download asks for it again.
        (directory / one["path"]).resolve().unlink()
    if wrong:
        raise HubError(f"{repository}: the file {wrong[0]['path']!r} has another content than the hub lists")


if __name__ == "__main__":
    answer(fetch)
