"""The client for ordinary code."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar, Unpack

import httpx2
import stamina

from peltier_client import administration, management, requests
from peltier_client.administration import KeyOptions, QuotaOptions
from peltier_client.errors import PeltierError
from peltier_client.exchange import Page, Request
from peltier_client.files import write_whole
from peltier_client.protocol import (
    Adapter,
    AdapterSummary,
    AdapterVersion,
    Alias,
    AliasChange,
    AuditRecord,
    HealthResponse,
    InfoResponse,
    KeyInfo,
    NewKey,
    TenantInfo,
    TextTuple,
    UploadedVersion,
    VersionSummary,
)
from peltier_client.requests import PredictOptions
from peltier_client.results import Predictions
from peltier_client.streams import Opened, TextStream
from peltier_client.text_reader import TextReader
from peltier_client.transport import (
    DEFAULT_ATTEMPTS,
    DEFAULT_TIMEOUT_SECONDS,
    DEFAULT_URL,
    Connection,
    http_request,
    is_worth_retrying,
)

T = TypeVar("T")
P = TypeVar("P", bound=Page)


class Client:
    """A connection pool to one Peltier server; use it as a context manager, from any number of threads.

    Every method raises a `PeltierError`, and tries again (`max_attempts` in all) after failed connections, 429 and
    503, pausing as long as the server asks. `timeout` is in seconds, for each of connecting, sending and the answer.
    `transport` replaces the network, for tests.

        with Client("http://127.0.0.1:8000", api_key="plt_…") as client:
            client.predict("sst2", ["a gem of a film"])[0].label
    """

    def __init__(
        self,
        url: str = DEFAULT_URL,
        api_key: str | None = None,
        *,
        timeout: float = DEFAULT_TIMEOUT_SECONDS,
        max_attempts: int = DEFAULT_ATTEMPTS,
        transport: httpx2.BaseTransport | None = None,
    ) -> None:
        self._connection = Connection.create(url, api_key, timeout, max_attempts)
        self._http = httpx2.Client(**self._connection.options, transport=transport)
        self._retrying = stamina.RetryingCaller(**self._connection.retrying)

    def predict(
        self, task: str, inputs: str | Iterable[str] | Iterable[TextTuple], **options: Unpack[PredictOptions]
    ) -> Predictions:
        """Predictions for one text, a list of texts, or a list of tuples of two or three texts, in the order given."""
        return self._send(requests.predict(task, inputs, options))

    def stream(self, task: str, text: str | TextTuple, **options: Unpack[PredictOptions]) -> TextStream:
        """The text that a task generates from one input, piece by piece as it is written."""
        request = requests.stream(task, text, options)
        return TextStream(lambda: self._retrying(is_worth_retrying, self._open, request), self._connection)

    def predict_many(
        self, items: Iterable[tuple[str, str | TextTuple]], **options: Unpack[PredictOptions]
    ) -> list[Predictions | PeltierError]:
        """For each (task, input) its predictions, a list of one, or the error that befell it; in the order given."""
        return self._send(requests.predict_many(items, options))

    def upload(
        self, artifact: str | PathLike[str] | bytes, name: str | None = None, alias: str | None = None
    ) -> UploadedVersion:
        """Publish an artifact file, or its bytes; the same bytes again give the version that they already are.

        With `alias` that alias means the version from then on. `.created` says whether it is new, `.live` which
        versions answer the bare name.
        """
        return self._send(requests.upload(artifact, name, alias))

    def adapters(self) -> Iterator[AdapterSummary]:
        """Every adapter in order of name, fetched page by page; `adapter` says the rest of one."""
        for page in self._pages(requests.adapters):
            yield from page.adapters

    def adapter(self, name: str) -> Adapter:
        """One adapter, or `AdapterNotFound`."""
        return self._send(requests.adapter(name))

    def versions(self, name: str) -> list[VersionSummary]:
        """The live versions of an adapter, newest first, fetched page by page; `version` says the rest of one."""
        pages = self._pages(partial(requests.versions, name))
        return [version for page in pages for version in page.versions]

    def version(self, name: str, number: int) -> AdapterVersion:
        """One version of an adapter with its labels and metrics, or `VersionNotFound`."""
        return self._send(requests.version(name, number))

    def download(self, name: str, version: int, path: str | PathLike[str]) -> Path:
        """Write the artifact of one version to `path`, bit for bit as uploaded, or leave `path` as it was."""
        return write_whole(Path(path), self._send(requests.download(name, version)))

    def delete(self, task: str) -> None:
        """Delete an adapter (`name`) or one version of it (`name@3`)."""
        self._send(management.delete(task))

    def undelete(self, task: str) -> AdapterVersion:
        """Bring a deleted version (`name@3`) back as it was."""
        return self._send(management.undelete(task))

    def deprecate(self, task: str, reason: str | None) -> AdapterVersion:
        """Advise against a version (`name@3`), which still answers when it is named; no reason takes that back."""
        return self._send(management.deprecate(task, reason))

    def set_public(self, name: str, public: bool) -> Adapter:
        """Let other tenants use an adapter as `tenant:name`, or no longer."""
        return self._send(management.set_public(name, public))

    def aliases(self, name: str) -> list[Alias]:
        """Every alias of an adapter, in order of name."""
        return self._send(management.aliases(name))

    def alias_history(self, name: str, alias: str) -> list[AliasChange]:
        """What an alias has meant, newest first: the last thousand changes."""
        return self._send(management.alias_history(name, alias))

    def set_alias(self, name: str, alias: str, version: int | Mapping[int, float]) -> Alias:
        """Make an alias mean a version, or several as `{3: 0.9, 4: 0.1}` with the share of requests that each gets."""
        return self._send(management.set_alias(name, alias, version))

    def rollback_alias(self, name: str, alias: str) -> Alias:
        """Make an alias mean what it meant before. Sent once: again would go one more step back."""
        return self._send(management.rollback_alias(name, alias))

    def delete_alias(self, name: str, alias: str) -> None:
        """Make an alias mean nothing."""
        self._send(management.delete_alias(name, alias))

    def audit(self, tenant: str | None = None) -> Iterator[AuditRecord]:
        """Who did what, newest first, fetched page by page; for keys that may administer the server."""
        for page in self._pages(partial(management.audit, tenant)):
            yield from page.records

    def create_key(self, *scopes: str, **options: Unpack[KeyOptions]) -> NewKey:
        """Make a key with these scopes; `.key` is its text, which nobody can ask for again."""
        return self._send(administration.create_key(scopes, options))

    def keys(self, tenant: str | None = None) -> list[KeyInfo]:
        """Every key or those of one tenant, oldest first, revoked and expired ones too."""
        return [key for page in self._pages(partial(administration.keys, tenant)) for key in page.keys]

    def revoke_key(self, prefix: str) -> None:
        """Take a key's rights for good, everywhere within a second."""
        self._send(administration.revoke_key(prefix))

    def create_tenant(self, name: str, **quotas: Unpack[QuotaOptions]) -> TenantInfo:
        """Make a tenant that may use so much; what is not given is not limited."""
        return self._send(administration.create_tenant(name, quotas))

    def tenants(self) -> list[TenantInfo]:
        """Every tenant with its quotas, in order of name."""
        return [tenant for page in self._pages(administration.tenants) for tenant in page.tenants]

    def tenant(self, name: str) -> TenantInfo:
        """One tenant, or `NotFound`."""
        return self._send(administration.tenant(name))

    def set_tenant(self, name: str, **quotas: Unpack[QuotaOptions]) -> TenantInfo:
        """Replace all quotas of a tenant; what is not given is no longer limited."""
        return self._send(administration.set_tenant(name, quotas))

    def info(self) -> InfoResponse:
        """What the server runs."""
        return self._send(requests.info())

    def ready(self) -> bool:
        """Whether the server answers predictions now; False while it loads or drains. Asked once."""
        return self._send(requests.ready())

    def health(self) -> HealthResponse:
        """Proof that the process is alive. Asked once."""
        return self._send(requests.health())

    def close(self) -> None:
        """Close every connection."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._connection.url!r})"

    def _pages(self, ask: Callable[[str | None], Request[P]]) -> Iterator[P]:
        cursor: str | None = None
        while True:
            page = self._send(ask(cursor))
            yield page
            cursor = page.next_cursor
            if cursor is None:
                return

    def _send(self, request: Request[T]) -> T:
        if not request.retried:
            return self._send_once(request)
        return self._retrying(is_worth_retrying, self._send_once, request)

    def _send_once(self, request: Request[T]) -> T:
        try:
            response = self._http.send(http_request(self._http, request))
        except httpx2.RequestError as error:
            raise self._connection.failure(error) from error
        return request.read(response)

    def _open(self, request: Request[TextReader]) -> Opened:
        try:
            response = self._http.send(http_request(self._http, request), stream=True)
            if not response.is_success:
                response.read()
        except httpx2.RequestError as error:
            raise self._connection.failure(error) from error
        try:
            return response, request.read(response)
        except PeltierError:
            response.close()
            raise
