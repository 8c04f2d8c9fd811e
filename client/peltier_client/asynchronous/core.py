"""The calls that every server answers, for asynchronous code."""

from collections.abc import AsyncIterator, Iterable, Mapping
from functools import partial
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import Self, Unpack

import httpx2

from peltier_client.asynchronous.sender import AsyncSender
from peltier_client.asynchronous.text_stream import AsyncTextStream
from peltier_client.errors import PeltierError
from peltier_client.exchange.connection import (
    DEFAULT_ATTEMPTS,
    DEFAULT_TIMEOUT_SECONDS,
    DEFAULT_URL,
    ServerConnection,
)
from peltier_client.exchange.results import Predictions
from peltier_client.exchange.transfer import OnProgress, write_whole
from peltier_client.protocol.adapters import (
    Adapter,
    AdapterPin,
    AdapterSummary,
    AdapterVersion,
    UploadedVersion,
    VersionManifest,
    VersionSummary,
)
from peltier_client.protocol.administration import AuditRecord, KeyInfo, NewKey, TenantInfo, TenantUsage
from peltier_client.protocol.aliases import Alias, AliasChange
from peltier_client.protocol.operations import HealthResponse, InfoResponse
from peltier_client.protocol.predict import TextTuple
from peltier_client.protocol.reports import TrainingReport
from peltier_client.protocol.rerank import RankedDocument
from peltier_client.resources import adapters, administration, predict
from peltier_client.resources.administration import AuditOptions, KeyOptions, QuotaOptions
from peltier_client.resources.predict import PredictOptions


class AsyncCoreClient:
    """The calls of the core: predictions, adapters, aliases, keys and tenants."""

    def __init__(
        self,
        url: str = DEFAULT_URL,
        api_key: str | None = None,
        *,
        timeout: float = DEFAULT_TIMEOUT_SECONDS,
        max_attempts: int = DEFAULT_ATTEMPTS,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        self._sender = AsyncSender(ServerConnection.create(url, api_key, timeout, max_attempts), transport)

    async def predict(
        self, task: str, inputs: str | Iterable[str] | Iterable[TextTuple], **options: Unpack[PredictOptions]
    ) -> Predictions:
        """Predictions for one text, a list of texts, or a list of tuples of two or three texts, in their order."""
        return await self._sender.send(predict.predict(task, inputs, options))

    async def embed(
        self, task: str, texts: str | Iterable[str], **options: Unpack[PredictOptions]
    ) -> list[list[float]]:
        """The embedding of each text, its first `dimensions` values; integers with a `precision` such as `int8`. The
        task `_backbone` is the server's backbone without an adapter."""
        return await self._sender.send(predict.embed(task, texts, options))

    def stream(self, task: str, text: str | TextTuple, **options: Unpack[PredictOptions]) -> AsyncTextStream:
        """The text that a task generates from one input, piece by piece."""
        return AsyncTextStream(self._sender, predict.stream(task, text, options))

    async def predict_many(
        self, items: Iterable[tuple[str, str | TextTuple]], **options: Unpack[PredictOptions]
    ) -> list[Predictions | PeltierError]:
        """For each (task, input) its predictions, a list of one, or its error, in the order of the items."""
        return await self._sender.send(predict.predict_mixed(items, options))

    async def rerank(
        self, task: str, query: str, documents: Iterable[str], top_n: int | None = None
    ) -> list[RankedDocument]:
        """The documents by descending relevance for a query, by their index in `documents`; only the best `top_n`."""
        return await self._sender.send(predict.rerank(task, query, documents, top_n))

    async def predict_tasks(
        self, tasks: str | Iterable[str], text: str | TextTuple, **options: Unpack[PredictOptions]
    ) -> dict[str, Predictions | PeltierError]:
        """For each task its prediction for one input, a list of one, or its error, in the order of the tasks.

        `prefix*` stands for all own adapters whose names begin with the prefix.
        """
        return await self._sender.send(predict.predict_tasks(tasks, text, options))

    async def upload(
        self,
        artifact: str | PathLike[str] | bytes,
        name: str | None = None,
        alias: str | None = None,
        on_progress: OnProgress | None = None,
        report: str | PathLike[str] | bytes | None = None,
    ) -> UploadedVersion:
        """Publish an artifact file or its bytes; if a version has the same bytes, return that version.

        `alias` is pointed to the version. `.created` tells whether the version is new, and `.live` which versions
        answer the bare name. `on_progress` is called with the bytes sent so far and in all. `report` is the
        NAME.report.json of the training, which is stored with the version.
        """
        return await self._sender.send(adapters.upload(artifact, name, alias, on_progress, report))

    def adapters(self, containing: str = "") -> AsyncIterator[AdapterSummary]:
        """A summary of every adapter in order of name, fetched page by page; `adapter` returns all of one.

        With `containing`, only adapters whose names contain this text.
        """
        pages = self._sender.pages(partial(adapters.list_adapters, containing))
        return (adapter async for page in pages for adapter in page.adapters)

    async def adapter(self, name: str) -> Adapter:
        """One adapter, or `AdapterNotFound`."""
        return await self._sender.send(adapters.get_adapter(name))

    async def versions(self, name: str) -> list[VersionSummary]:
        """Summaries of an adapter's live versions, newest first; `version` returns all of one."""
        pages = self._sender.pages(partial(adapters.list_versions, name))
        return [version async for page in pages for version in page.versions]

    async def version(self, name: str, number: int) -> AdapterVersion:
        """One version of an adapter with its labels and metrics, or `VersionNotFound`."""
        return await self._sender.send(adapters.get_version(name, number))

    async def manifest(self, name: str, number: int) -> VersionManifest:
        """The manifest of one version, and the sizes of its parts."""
        return await self._sender.send(adapters.get_manifest(name, number))

    async def report(self, name: str, number: int) -> TrainingReport | None:
        """The report of a version's training; None if none was uploaded with it."""
        return await self._sender.send(adapters.get_report(name, number))

    async def download(
        self, name: str, version: int, path: str | PathLike[str], on_progress: OnProgress | None = None
    ) -> Path:
        """Write the artifact of one version to `path`, as uploaded; if that fails, `path` stays as it was.

        `on_progress` is called with the bytes received so far, and in all or None.
        """
        return write_whole(Path(path), await self._sender.send(adapters.download(name, version, on_progress)))

    async def delete(self, task: str) -> None:
        """Delete an adapter (`name`) or one version of it (`name@3`)."""
        await self._sender.send(adapters.delete(task))

    async def undelete(self, task: str) -> AdapterVersion:
        """Undelete a version (`name@3`)."""
        return await self._sender.send(adapters.undelete_version(task))

    async def deprecate(self, task: str, reason: str | None) -> AdapterVersion:
        """Deprecate a version (`name@3`), which still answers if it is named; None removes the deprecation."""
        return await self._sender.send(adapters.deprecate_version(task, reason))

    async def set_public(self, name: str, public: bool) -> Adapter:
        """Allow or forbid other tenants to use an adapter as `tenant:name`."""
        return await self._sender.send(adapters.change_adapter(name, public))

    async def aliases(self, name: str) -> list[Alias]:
        """Every alias of an adapter, in order of name."""
        return await self._sender.send(adapters.list_aliases(name))

    async def alias_history(self, name: str, alias: str) -> list[AliasChange]:
        """The last thousand changes of an alias, newest first."""
        return await self._sender.send(adapters.alias_history(name, alias))

    async def set_alias(self, name: str, alias: str, version: int | Mapping[int, float]) -> Alias:
        """Point an alias to a version, or to shares of several: `{3: 0.9, 4: 0.1}`."""
        return await self._sender.send(adapters.set_alias(name, alias, version))

    async def rollback_alias(self, name: str, alias: str) -> Alias:
        """Point an alias to what it meant before its last change. Not retried: a second call goes further."""
        return await self._sender.send(adapters.rollback_alias(name, alias))

    async def delete_alias(self, name: str, alias: str) -> None:
        """Delete an alias."""
        await self._sender.send(adapters.delete_alias(name, alias))

    async def pin(self, name: str) -> AdapterPin:
        """Keep an adapter on the device of every replica; the replica that answers has loaded it."""
        return await self._sender.send(adapters.pin_adapter(name))

    async def unpin(self, name: str) -> None:
        """Release the pin of an adapter; it stays in memory until it is evicted."""
        await self._sender.send(adapters.unpin_adapter(name))

    def audit(self, tenant: str | None = None, **options: Unpack[AuditOptions]) -> AsyncIterator[AuditRecord]:
        """The wanted records of the audit log, newest first, fetched page by page; requires the scope admin."""
        pages = self._sender.pages(partial(administration.read_audit, tenant, options))
        return (record async for page in pages for record in page.records)

    async def create_key(self, *scopes: str, **options: Unpack[KeyOptions]) -> NewKey:
        """Create a key with these scopes; `.key` is its text, which is not shown again."""
        return await self._sender.send(administration.create_key(scopes, options))

    async def keys(self, tenant: str | None = None) -> list[KeyInfo]:
        """Every key or those of one tenant, oldest first, including revoked and expired keys."""
        return [
            key async for page in self._sender.pages(partial(administration.list_keys, tenant)) for key in page.keys
        ]

    async def revoke_key(self, prefix: str) -> None:
        """Revoke a key for good; every replica refuses it within a second."""
        await self._sender.send(administration.revoke_key(prefix))

    async def create_tenant(self, name: str, **quotas: Unpack[QuotaOptions]) -> TenantInfo:
        """Create a tenant. Quotas that are not given are unlimited."""
        return await self._sender.send(administration.create_tenant(name, quotas))

    async def tenants(self) -> list[TenantInfo]:
        """Every tenant with its quotas, in order of name."""
        return [tenant async for page in self._sender.pages(administration.list_tenants) for tenant in page.tenants]

    async def tenant(self, name: str) -> TenantInfo:
        """One tenant, or `NotFound`."""
        return await self._sender.send(administration.get_tenant(name))

    async def tenant_usage(self, name: str) -> TenantUsage:
        """What a tenant uses of its quotas now."""
        return await self._sender.send(administration.get_usage(name))

    async def set_tenant(self, name: str, **quotas: Unpack[QuotaOptions]) -> TenantInfo:
        """Replace all quotas of a tenant. Those that are not given become unlimited."""
        return await self._sender.send(administration.set_tenant(name, quotas))

    async def info(self) -> InfoResponse:
        """The server's release, backbone and limits."""
        return await self._sender.send(administration.info())

    async def metrics(self) -> str:
        """The page of `GET /metrics` in Prometheus' text format; requires the scope metrics. Not retried."""
        return await self._sender.send(administration.metrics())

    async def ready(self) -> bool:
        """Whether the server accepts predictions; False while it loads or drains. Not retried."""
        return await self._sender.send(administration.ready())

    async def why_not_ready(self) -> str | None:
        """Why the server accepts no predictions, in one sentence; None if it does. Not retried."""
        return await self._sender.send(administration.why_not_ready())

    async def health(self) -> HealthResponse:
        """Whether the process is alive; raises if it is not. Not retried."""
        return await self._sender.send(administration.health())

    async def close(self) -> None:
        """Close all connections."""
        await self._sender.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._sender.connection.url!r})"
