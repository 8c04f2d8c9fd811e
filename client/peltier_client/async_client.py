"""The client for asynchronous code."""

from collections.abc import AsyncIterator, Callable, Iterable, Mapping
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
from peltier_client.streams import AsyncTextStream, Opened
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


class AsyncClient:
    """A connection pool to one Peltier server; use it as an asynchronous context manager, from one event loop.

    The same methods and promises as `Client`, awaited.

        async with AsyncClient("http://127.0.0.1:8000", api_key="plt_…") as client:
            predictions = await client.predict("sst2", ["a gem of a film"])
    """

    def __init__(
        self,
        url: str = DEFAULT_URL,
        api_key: str | None = None,
        *,
        timeout: float = DEFAULT_TIMEOUT_SECONDS,
        max_attempts: int = DEFAULT_ATTEMPTS,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        self._connection = Connection.create(url, api_key, timeout, max_attempts)
        self._http = httpx2.AsyncClient(**self._connection.options, transport=transport)
        self._retrying = stamina.AsyncRetryingCaller(**self._connection.retrying)

    async def predict(
        self, task: str, inputs: str | Iterable[str] | Iterable[TextTuple], **options: Unpack[PredictOptions]
    ) -> Predictions:
        """Predictions for one text, a list of texts, or a list of tuples of two or three texts, in the order given."""
        return await self._send(requests.predict(task, inputs, options))

    def stream(self, task: str, text: str | TextTuple, **options: Unpack[PredictOptions]) -> AsyncTextStream:
        """The text that a task generates from one input, piece by piece as it is written."""
        request = requests.stream(task, text, options)
        return AsyncTextStream(lambda: self._retrying(is_worth_retrying, self._open, request), self._connection)

    async def predict_many(
        self, items: Iterable[tuple[str, str | TextTuple]], **options: Unpack[PredictOptions]
    ) -> list[Predictions | PeltierError]:
        """For each (task, input) its predictions, a list of one, or the error that befell it; in the order given."""
        return await self._send(requests.predict_many(items, options))

    async def upload(
        self, artifact: str | PathLike[str] | bytes, name: str | None = None, alias: str | None = None
    ) -> UploadedVersion:
        """Publish an artifact file, or its bytes; the same bytes again give the version that they already are.

        With `alias` that alias means the version from then on. `.created` says whether it is new, `.live` which
        versions answer the bare name.
        """
        return await self._send(requests.upload(artifact, name, alias))

    async def adapters(self) -> AsyncIterator[AdapterSummary]:
        """Every adapter in order of name, fetched page by page; `adapter` says the rest of one."""
        async for page in self._pages(requests.adapters):
            for adapter in page.adapters:
                yield adapter

    async def adapter(self, name: str) -> Adapter:
        """One adapter, or `AdapterNotFound`."""
        return await self._send(requests.adapter(name))

    async def versions(self, name: str) -> list[VersionSummary]:
        """The live versions of an adapter, newest first, fetched page by page; `version` says the rest of one."""
        pages = self._pages(partial(requests.versions, name))
        return [version async for page in pages for version in page.versions]

    async def version(self, name: str, number: int) -> AdapterVersion:
        """One version of an adapter with its labels and metrics, or `VersionNotFound`."""
        return await self._send(requests.version(name, number))

    async def download(self, name: str, version: int, path: str | PathLike[str]) -> Path:
        """Write the artifact of one version to `path`, bit for bit as uploaded, or leave `path` as it was."""
        return write_whole(Path(path), await self._send(requests.download(name, version)))

    async def delete(self, task: str) -> None:
        """Delete an adapter (`name`) or one version of it (`name@3`)."""
        await self._send(management.delete(task))

    async def undelete(self, task: str) -> AdapterVersion:
        """Bring a deleted version (`name@3`) back as it was."""
        return await self._send(management.undelete(task))

    async def deprecate(self, task: str, reason: str | None) -> AdapterVersion:
        """Advise against a version (`name@3`), which still answers when it is named; no reason takes that back."""
        return await self._send(management.deprecate(task, reason))

    async def set_public(self, name: str, public: bool) -> Adapter:
        """Let other tenants use an adapter as `tenant:name`, or no longer."""
        return await self._send(management.set_public(name, public))

    async def aliases(self, name: str) -> list[Alias]:
        """Every alias of an adapter, in order of name."""
        return await self._send(management.aliases(name))

    async def alias_history(self, name: str, alias: str) -> list[AliasChange]:
        """What an alias has meant, newest first: the last thousand changes."""
        return await self._send(management.alias_history(name, alias))

    async def set_alias(self, name: str, alias: str, version: int | Mapping[int, float]) -> Alias:
        """Make an alias mean a version, or several as `{3: 0.9, 4: 0.1}` with the share of requests that each gets."""
        return await self._send(management.set_alias(name, alias, version))

    async def rollback_alias(self, name: str, alias: str) -> Alias:
        """Make an alias mean what it meant before. Sent once: again would go one more step back."""
        return await self._send(management.rollback_alias(name, alias))

    async def delete_alias(self, name: str, alias: str) -> None:
        """Make an alias mean nothing."""
        await self._send(management.delete_alias(name, alias))

    async def audit(self, tenant: str | None = None) -> AsyncIterator[AuditRecord]:
        """Who did what, newest first, fetched page by page; for keys that may administer the server."""
        async for page in self._pages(partial(management.audit, tenant)):
            for record in page.records:
                yield record

    async def create_key(self, *scopes: str, **options: Unpack[KeyOptions]) -> NewKey:
        """Make a key with these scopes; `.key` is its text, which nobody can ask for again."""
        return await self._send(administration.create_key(scopes, options))

    async def keys(self, tenant: str | None = None) -> list[KeyInfo]:
        """Every key or those of one tenant, oldest first, revoked and expired ones too."""
        return [key async for page in self._pages(partial(administration.keys, tenant)) for key in page.keys]

    async def revoke_key(self, prefix: str) -> None:
        """Take a key's rights for good, everywhere within a second."""
        await self._send(administration.revoke_key(prefix))

    async def create_tenant(self, name: str, **quotas: Unpack[QuotaOptions]) -> TenantInfo:
        """Make a tenant that may use so much; what is not given is not limited."""
        return await self._send(administration.create_tenant(name, quotas))

    async def tenants(self) -> list[TenantInfo]:
        """Every tenant with its quotas, in order of name."""
        return [tenant async for page in self._pages(administration.tenants) for tenant in page.tenants]

    async def tenant(self, name: str) -> TenantInfo:
        """One tenant, or `NotFound`."""
        return await self._send(administration.tenant(name))

    async def set_tenant(self, name: str, **quotas: Unpack[QuotaOptions]) -> TenantInfo:
        """Replace all quotas of a tenant; what is not given is no longer limited."""
        return await self._send(administration.set_tenant(name, quotas))

    async def info(self) -> InfoResponse:
        """What the server runs."""
        return await self._send(requests.info())

    async def ready(self) -> bool:
        """Whether the server answers predictions now; False while it loads or drains. Asked once."""
        return await self._send(requests.ready())

    async def health(self) -> HealthResponse:
        """Proof that the process is alive. Asked once."""
        return await self._send(requests.health())

    async def close(self) -> None:
        """Close every connection."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._connection.url!r})"

    async def _pages(self, ask: Callable[[str | None], Request[P]]) -> AsyncIterator[P]:
        cursor: str | None = None
        while True:
            page = await self._send(ask(cursor))
            yield page
            cursor = page.next_cursor
            if cursor is None:
                return

    async def _send(self, request: Request[T]) -> T:
        if not request.retried:
            return await self._send_once(request)
        return await self._retrying(is_worth_retrying, self._send_once, request)

    async def _send_once(self, request: Request[T]) -> T:
        try:
            response = await self._http.send(http_request(self._http, request))
        except httpx2.RequestError as error:
            raise self._connection.failure(error) from error
        return request.read(response)

    async def _open(self, request: Request[TextReader]) -> Opened:
        try:
            response = await self._http.send(http_request(self._http, request), stream=True)
            if not response.is_success:
                await response.aread()
        except httpx2.RequestError as error:
            raise self._connection.failure(error) from error
        try:
            return response, request.read(response)
        except PeltierError:
            await response.aclose()
            raise
