"""Locations of blob stores, a local directory or a bucket of S3, Google Cloud Storage or Azure, and their owners: the
registries that their blobs belong to."""

import asyncio
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import AzureStore, GCSStore, LocalStore, ObjectStore, S3Store
from peltier_adapters.durable import make_directory

from peltier_store.blobs.errors import BlobError, BlobStoreGone, as_blob_errors
from peltier_store.blobs.files import FOLDER, read_file, read_object, sync_file
from peltier_store.blobs.threads import in_daemon_thread

_DEFAULT_TIMEOUT_SECONDS = 30
_MAX_CONNECT_SECONDS = 5
_MAX_RETRIES = 4
# obstore's names of options, where they differ.
_OBSTORE_NAMES = {("gs", "endpoint"): "base_url"}
# The pattern of an option's value, and its description in messages.
_RULES = {
    "account_name": (re.compile(".+"), "given"),
    "allow_http": (re.compile("true|false"), "true or false"),
    "endpoint": (re.compile(r"https?://[^/?#\s]+[^?#\s]*"), "an http:// or https:// URL"),
    "region": (re.compile(".+"), "given"),
    "timeout": (re.compile("[1-9][0-9]?|[1-5][0-9]{2}"), "a whole number of seconds from 1 to 599"),
    "virtual_hosted_style_request": (re.compile("true|false"), "true or false"),
}
_KEY = "owner"


@dataclass(frozen=True)
class BlobLocation:
    """A location: its name in messages, its store in obstore, and its directory if it is local."""

    name: str
    store: ObjectStore
    directory: Path | None = None


@dataclass(frozen=True)
class _Service:
    """A kind of bucket: obstore's class, and the options that its URLs may have."""

    create: Callable[..., ObjectStore]
    options: tuple[str, ...]


_SERVICES = {
    "s3": _Service(S3Store, ("endpoint", "region", "virtual_hosted_style_request")),
    "gs": _Service(GCSStore, ("endpoint",)),
    "az": _Service(AzureStore, ("endpoint", "account_name")),
}


def is_remote(location: str | Path) -> bool:
    """Whether the location names a bucket, not a directory; the URL need not be valid."""
    return "://" in str(location) and not str(location).startswith("file://")


def locate(location: str | Path, *, make: bool = True) -> BlobLocation:
    """Reads a path, file:///DIRECTORY, or {s3,gs,az}://BUCKET[/PREFIX][?OPTION=VALUE&…], without network requests.

    With `make`, creates a missing directory. Options are `endpoint`, `allow_http` (true or false) and
    `timeout` (seconds per request; with retries at most three times that), on S3 `region` and
    `virtual_hosted_style_request`, on Azure `account_name`. Credentials, and options that are not given, come from the
    AWS_*, GOOGLE_* and AZURE_* variables. Raises BlobError of one sentence.
    """
    return _bucket(str(location)) if is_remote(location) else _directory(location, make)


def local_path(location: str | Path) -> Path:
    """The directory that a path or a file:///DIRECTORY URL names; raises BlobError for another URL."""
    if "://" not in str(location):
        return Path(location)
    url = urlsplit(str(location))
    if url.scheme != "file" or url.netloc not in ("", "localhost") or not url.path:
        raise BlobError(f"the blob store {str(location)!r} is neither a directory nor a file:///DIRECTORY URL")
    return Path(unquote(url.path))


def _directory(location: str | Path, make: bool) -> BlobLocation:
    path = local_path(location).absolute()
    try:
        if make:
            make_directory(path)
        elif not path.is_dir():
            raise FileNotFoundError("the directory does not exist")
        return BlobLocation(str(path), LocalStore(path), path)
    except (BaseError, OSError, ValueError) as error:
        raise BlobError(f"the blob store {str(path)!r} cannot be opened: {error}") from error


def _bucket(text: str) -> BlobLocation:
    url = _split(text)
    service = _SERVICES[url.scheme]
    name = f"{url.scheme}://{url.netloc}{url.path}".rstrip("/")
    options = _options(name, url)
    given = {_OBSTORE_NAMES.get((url.scheme, key), key): options[key] for key in service.options if key in options}
    prefix = unquote(url.path).strip("/")
    try:
        store = service.create(url.netloc, prefix=prefix or None, **given, **_timeouts(options))
    except (BaseError, ValueError) as error:
        reason = str(error).partition("\n")[0]
        raise BlobError(f"the blob store {name!r} cannot be opened: {reason}") from error
    return BlobLocation(name, store)


def _split(text: str) -> SplitResult:
    scheme, shown = text.partition("://")[0], text.partition("?")[0]
    # Not shown if it contains an @, because a password may precede it.
    if "@" in shown:
        raise BlobError(f"the blob store's {scheme}:// URL contains credentials; put them into the environment")
    if scheme not in _SERVICES:
        kinds = ", ".join(f"{known}://BUCKET/PREFIX" for known in _SERVICES)
        raise BlobError(f"the blob store {shown!r} is neither a directory nor one of {kinds}")
    rule = f"the blob store {shown!r} is not of the form {scheme}://BUCKET/PREFIX?OPTION=VALUE"
    try:
        url = urlsplit(text)
    except ValueError as error:
        raise BlobError(rule) from error
    if not url.netloc or ":" in url.netloc or url.fragment:
        raise BlobError(rule)
    return url


def _options(name: str, url: SplitResult) -> dict[str, str]:
    """The options of a URL; raises BlobError for an unknown name or an invalid value."""
    known = {*_SERVICES[url.scheme].options, "allow_http", "timeout"}
    options: dict[str, str] = {}
    for key, value in parse_qsl(url.query, keep_blank_values=True):
        # The value of an unknown option is not shown, because it may be a secret.
        if key not in known:
            raise BlobError(f"the blob store {name!r} has no option {key!r}; known options: {', '.join(sorted(known))}")
        if key in options:
            raise BlobError(f"the blob store {name!r} has the option {key!r} twice")
        pattern, rule = _RULES[key]
        if not pattern.fullmatch(value):
            raise BlobError(f"the blob store {name!r} has the option {key}={value!r}, which must be {rule}")
        options[key] = value
    if options.get("endpoint", "").startswith("http://") and options.get("allow_http") != "true":
        raise BlobError(f"the blob store {name!r} has an unencrypted endpoint; allow_http=true allows it")
    return options


def _timeouts(options: Mapping[str, str]) -> dict[str, Any]:
    """Time-outs and retries for a store that does not answer."""
    seconds = int(options.get("timeout", _DEFAULT_TIMEOUT_SECONDS))
    client: dict[str, Any] = {
        "timeout": timedelta(seconds=seconds),
        "connect_timeout": timedelta(seconds=min(seconds, _MAX_CONNECT_SECONDS)),
    }
    if "allow_http" in options:
        client["allow_http"] = options["allow_http"] == "true"
    backoff = {"init_backoff": timedelta(seconds=0.1), "max_backoff": timedelta(seconds=2), "base": 2}
    # The last attempt begins before `retry_timeout` is over.
    retry = {"max_retries": _MAX_RETRIES, "retry_timeout": timedelta(seconds=2 * seconds), "backoff": backoff}
    return {"client_options": client, "retry_config": retry}


class BlobStoreOwner:
    """The file of a blob store that names its owner. Once the owner is known, a store without it is not the same."""

    def __init__(self, location: BlobLocation) -> None:
        self._name = location.name
        self._store = location.store
        self._root = location.directory
        self._known: str | None = None

    async def read(self) -> str | None:
        """The owner; None if nobody has claimed this store."""
        with as_blob_errors(f"the owner of the blob store {self._name!r} cannot be read"):
            return _decode(await in_daemon_thread(partial(read_object, self._store, _KEY)))

    async def claim(self, owner: str) -> str:
        """Records the owner of a store without one; returns its owner, the same one to all claimants."""
        # Before the read, because another claimant of this process may record it meanwhile.
        is_known = self._known is not None
        found = await self.read()
        if found is None and is_known:
            # A process that has used the store never claims it again.
            self._require(found)
        if found is None:
            found = await self._create(owner)
        self._known = found
        return found

    async def hand_over(self, owner: str) -> str:
        """Records another owner, whatever the owner was; returns the new one."""
        with as_blob_errors(f"the owner of the blob store {self._name!r} cannot be stored"):
            await in_daemon_thread(partial(self._store.put, _KEY, owner.encode(), mode="overwrite"))
            await self._sync()
        self._known = owner
        return owner

    async def require_present(self) -> None:
        """Raises BlobStoreGone if the store is missing or was replaced, and BlobError if it does not answer.

        Checks nothing before the owner is known. Takes microseconds for a directory, and a request for a bucket.
        """
        if self._root is not None:
            self.require_directory()
        elif self._known is not None:
            self._require(await self.read())

    def require_directory(self) -> None:
        """Raises BlobStoreGone if the store is in a directory that is missing or was replaced."""
        if self._root is None or self._known is None:
            return
        if not (self._root / FOLDER).is_dir():
            raise BlobStoreGone(f"the blob store {self._name!r} is gone: it has no directory {FOLDER!r}")
        # Its contents decide, because a new directory may get the inode of a removed one.
        with as_blob_errors(f"the owner of the blob store {self._name!r} cannot be read"):
            data = read_file(self._root / _KEY)
        self._require(_decode(data))

    def _require(self, found: str | None) -> None:
        if found is None or found != self._known:
            state = "has no owner" if found is None else f"belongs to the registry {found}"
            raise BlobStoreGone(
                f"the blob store {self._name!r} was replaced: it {state}, and belonged to the registry {self._known}"
            )

    async def _create(self, owner: str) -> str:
        with as_blob_errors(f"the owner of the blob store {self._name!r} cannot be stored"):
            try:
                await in_daemon_thread(partial(self._store.put, _KEY, owner.encode(), mode="create"))
            except AlreadyExistsError:
                return await self.read() or await self.hand_over(owner)
            await self._sync()
        return owner

    async def _sync(self) -> None:
        if self._root is not None:
            await asyncio.to_thread(sync_file, self._root / _KEY)


def _decode(data: bytes | None) -> str | None:
    # After a power loss, a file that was being created may be empty.
    return data.decode(errors="replace") if data else None
