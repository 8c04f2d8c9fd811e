"""The client for asynchronous code."""

from collections.abc import AsyncIterator, Iterable, Mapping
from functools import partial
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import Self, Unpack

import httpx2

from peltier_client.asynchronous.sender import AsyncSender
from peltier_client.asynchronous.streams import AsyncTextStream
from peltier_client.errors import PeltierError
from peltier_client.exchange.connection import DEFAULT_ATTEMPTS, DEFAULT_TIMEOUT_SECONDS, DEFAULT_URL, Connection
from peltier_client.exchange.results import Predictions
from peltier_client.exchange.whole_file import write_whole
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
from peltier_client.resources import adapters, aliases, audit, keys, operations, predict, tenants
from peltier_client.resources.keys import KeyOptions
from peltier_client.resources.predict import PredictOptions
from peltier_client.resources.tenants import QuotaOptions


class AsyncClient:
    """A connection pool to one Peltier server; use it as an asynchronous context manager, from one event loop.

    Every method raises a `PeltierError`, and tries again (`max_attempts` in all) after failed connections, 429 and
    503, pausing as long as the server asks. `timeout` is in seconds, for each of connecting, sending and the answer.
    `transport` replaces the network, for tests.

        async with AsyncClient("http://127.0.0.1:8000", api_key="plt_…") as client:
            predictions = await client.predict("sst2", ["a gem of a film"])
            predictions[0].label
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
        self._sender = AsyncSender(Connection.create(url, api_key, timeout, max_attempts), transport)

    async def predict(
        self, task: str, inputs: str | Iterable[str] | Iterable[TextTuple], **options: Unpack[PredictOptions]
    ) -> Predictions:
        """Predictions for one text, a list of texts, or a list of tuples of two or three texts, in the order given."""
        return await self._sender.send(predict.predict(task, inputs, options))

    def stream(self, task: str, text: str | TextTuple, **options: Unpack[PredictOptions]) -> AsyncTextStream:
        """The text that a task generates from one input, piece by piece as it is written."""
        return AsyncTextStream(self._sender, predict.stream(task, text, options))

    async def predict_many(
        self, items: Iterable[tuple[str, str | TextTuple]], **options: Unpack[PredictOptions]
    ) -> list[Predictions | PeltierError]:
        """For each (task, input) its predictions, a list of one, or the error that befell it; in the order given."""
        return await self._sender.send(predict.predict_mixed(items, options))

    async def upload(
        self, artifact: str | PathLike[str] | bytes, name: str | None = None, alias: str | None = None
    ) -> UploadedVersion:
        """Publish an artifact file, or its bytes; the same bytes again give the version that they already are.

        With `alias` that alias means the version from then on. `.created` says whether it is new, `.live` which
        versions answer the bare name.
        """
        return await self._sender.send(adapters.upload(artifact, name, alias))

    def adapters(self) -> AsyncIterator[AdapterSummary]:
        """Every adapter in order of name, fetched page by page; `adapter` says the rest of one."""
        pages = self._sender.pages(adapters.list_adapters)
        return (adapter async for page in pages for adapter in page.adapters)

    async def adapter(self, name: str) -> Adapter:
        """One adapter, or `AdapterNotFound`."""
        return await self._sender.send(adapters.get_adapter(name))

    async def versions(self, name: str) -> list[VersionSummary]:
        """The live versions of an adapter, newest first, fetched page by page; `version` says the rest of one."""
        pages = self._sender.pages(partial(adapters.list_versions, name))
        return [version async for page in pages for version in page.versions]

    async def version(self, name: str, number: int) -> AdapterVersion:
        """One version of an adapter with its labels and metrics, or `VersionNotFound`."""
        return await self._sender.send(adapters.get_version(name, number))

    async def download(self, name: str, version: int, path: str | PathLike[str]) -> Path:
        """Write the artifact of one version to `path`, bit for bit as uploaded, or leave `path` as it was."""
        return write_whole(Path(path), await self._sender.send(adapters.download(name, version)))

    async def delete(self, task: str) -> None:
        """Delete an adapter (`name`) or one version of it (`name@3`)."""
        await self._sender.send(adapters.delete(task))

    async def undelete(self, task: str) -> AdapterVersion:
        """Bring a deleted version (`name@3`) back as it was."""
        return await self._sender.send(adapters.undelete_version(task))

    async def deprecate(self, task: str, reason: str | None) -> AdapterVersion:
        """Deprecate a version (`name@3`), which still answers when it is named; no reason removes the deprecation."""
        return await self._sender.send(adapters.deprecate_version(task, reason))

    async def set_public(self, name: str, public: bool) -> Adapter:
        """Let other tenants use an adapter as `tenant:name`, or no longer."""
        return await self._sender.send(adapters.change_adapter(name, public))

    async def aliases(self, name: str) -> list[Alias]:
        """Every alias of an adapter, in order of name."""
        return await self._sender.send(aliases.list_aliases(name))

    async def alias_history(self, name: str, alias: str) -> list[AliasChange]:
        """What an alias has meant, newest first: the last thousand changes."""
        return await self._sender.send(aliases.alias_history(name, alias))

    async def set_alias(self, name: str, alias: str, version: int | Mapping[int, float]) -> Alias:
        """Make an alias mean a version, or several as `{3: 0.9, 4: 0.1}` with the share of requests that each gets."""
        return await self._sender.send(aliases.set_alias(name, alias, version))

    async def rollback_alias(self, name: str, alias: str) -> Alias:
        """Make an alias mean what it meant before. Sent once: again would go one more step back."""
        return await self._sender.send(aliases.rollback_alias(name, alias))

    async def delete_alias(self, name: str, alias: str) -> None:
        """Make an alias mean nothing."""
        await self._sender.send(aliases.delete_alias(name, alias))

    def audit(self, tenant: str | None = None) -> AsyncIterator[AuditRecord]:
        """Who did what, newest first, fetched page by page; for keys that may administer the server."""
        pages = self._sender.pages(partial(audit.read_audit, tenant))
        return (record async for page in pages for record in page.records)

    async def create_key(self, *scopes: str, **options: Unpack[KeyOptions]) -> NewKey:
        """Create a key with these scopes; `.key` is its text, which is not shown again."""
        return await self._sender.send(keys.create_key(scopes, options))

    async def keys(self, tenant: str | None = None) -> list[KeyInfo]:
        """Every key or those of one tenant, oldest first, revoked and expired ones too."""
        return [key async for page in self._sender.pages(partial(keys.list_keys, tenant)) for key in page.keys]

    async def revoke_key(self, prefix: str) -> None:
        """Take a key's rights for good, everywhere within a second."""
        await self._sender.send(keys.revoke_key(prefix))

    async def create_tenant(self, name: str, **quotas: Unpack[QuotaOptions]) -> TenantInfo:
        """Make a tenant that may use so much; what is not given is not limited."""
        return await self._sender.send(tenants.create_tenant(name, quotas))

    async def tenants(self) -> list[TenantInfo]:
        """Every tenant with its quotas, in order of name."""
        return [tenant async for page in self._sender.pages(tenants.list_tenants) for tenant in page.tenants]

    async def tenant(self, name: str) -> TenantInfo:
        """One tenant, or `NotFound`."""
        return await self._sender.send(tenants.get_tenant(name))

    async def set_tenant(self, name: str, **quotas: Unpack[QuotaOptions]) -> TenantInfo:
        """Replace all quotas of a tenant; what is not given is no longer limited."""
        return await self._sender.send(tenants.set_tenant(name, quotas))

    async def info(self) -> InfoResponse:
        """What the server runs."""
        return await self._sender.send(operations.info())

    async def ready(self) -> bool:
        """Whether the server answers predictions now; False while it loads or drains. Asked once."""
        return await self._sender.send(operations.ready())

    async def health(self) -> HealthResponse:
        """Proof that the process is alive. Asked once."""
        return await self._sender.send(operations.health())

    async def close(self) -> None:
        """Close every connection."""
        await self._sender.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._sender.connection.url!r})"
