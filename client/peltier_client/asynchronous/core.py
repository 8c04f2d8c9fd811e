"""The calls that every server answers, for asynchronous code."""

from collections.abc import AsyncIterator, Iterable, Mapping
from os import PathLike
from pathlib import Path
from typing import Self, Unpack
from urllib.parse import quote

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
from peltier_client.exchange.request import Request, page_request, raise_for_error, read_content, reader, to_json
from peltier_client.exchange.results import Predictions
from peltier_client.exchange.transfer import OnProgress, write_whole
from peltier_client.protocol.adapters import (
    Adapter,
    AdapterChange,
    AdapterPage,
    AdapterPin,
    AdapterSummary,
    AdapterVersion,
    DeprecationRequest,
    PinRequest,
    UploadedVersion,
    VersionList,
    VersionManifest,
    VersionSummary,
)
from peltier_client.protocol.administration import (
    AuditPage,
    AuditRecord,
    KeyInfo,
    KeyList,
    KeyRequest,
    NewKey,
    TenantInfo,
    TenantList,
    TenantQuotas,
    TenantRequest,
    TenantUsage,
)
from peltier_client.protocol.aliases import Alias, AliasChange, AliasHistory, AliasList, AliasRequest
from peltier_client.protocol.operations import HealthResponse, InfoResponse
from peltier_client.protocol.predict import TextTuple
from peltier_client.protocol.reports import TrainingReport, VersionReport
from peltier_client.protocol.rerank import RankedDocument
from peltier_client.protocol.session import SESSION_HEADER
from peltier_client.resources import adapters, predict
from peltier_client.resources.adapters import adapter_path, alias_path, named_version_path, version_path
from peltier_client.resources.administration import (
    AuditOptions,
    KeyOptions,
    QuotaOptions,
    audit_query,
    read_unreadiness,
    tenant_path,
    tenant_query,
)
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
        query = {"q": containing} if containing else {}
        pages = self._sender.pages(page_request("/v1/adapters", AdapterPage, **query))
        return (adapter async for page in pages for adapter in page.adapters)

    async def adapter(self, name: str) -> Adapter:
        """One adapter, or `AdapterNotFound`."""
        return await self._sender.send(Request("GET", adapter_path(name), reader(Adapter)))

    async def versions(self, name: str) -> list[VersionSummary]:
        """Summaries of an adapter's live versions, newest first; `version` returns all of one."""
        pages = self._sender.pages(page_request(f"{adapter_path(name)}/versions", VersionList))
        return [version async for page in pages for version in page.versions]

    async def version(self, name: str, number: int) -> AdapterVersion:
        """One version of an adapter with its labels and metrics, or `VersionNotFound`."""
        return await self._sender.send(Request("GET", version_path(name, number), reader(AdapterVersion)))

    async def manifest(self, name: str, number: int) -> VersionManifest:
        """The manifest of one version, and the sizes of its parts."""
        path = f"{version_path(name, number)}/manifest"
        return await self._sender.send(Request("GET", path, reader(VersionManifest)))

    async def report(self, name: str, number: int) -> TrainingReport | None:
        """The report of a version's training; None if none was uploaded with it."""
        path = f"{version_path(name, number)}/report"
        return (await self._sender.send(Request("GET", path, reader(VersionReport)))).report

    async def download(
        self, name: str, version: int, path: str | PathLike[str], on_progress: OnProgress | None = None
    ) -> Path:
        """Write the artifact of one version to `path`, as uploaded; if that fails, `path` stays as it was.

        `on_progress` is called with the bytes received so far, and in all or None.
        """
        source = f"{version_path(name, version)}/artifact"
        request = Request("GET", source, adapters.read_artifact, on_progress=on_progress)
        return write_whole(Path(path), await self._sender.send(request))

    async def delete(self, task: str) -> None:
        """Delete an adapter (`name`) or one version of it (`name@3`)."""
        await self._sender.send(Request("DELETE", adapters.deletable_path(task), raise_for_error))

    async def undelete(self, task: str) -> AdapterVersion:
        """Undelete a version (`name@3`)."""
        return await self._sender.send(Request("POST", f"{named_version_path(task)}/undelete", reader(AdapterVersion)))

    async def deprecate(self, task: str, reason: str | None) -> AdapterVersion:
        """Deprecate a version (`name@3`), which still answers if it is named; None removes the deprecation."""
        path, json = f"{named_version_path(task)}/deprecate", to_json(DeprecationRequest, {"reason": reason})
        return await self._sender.send(Request("POST", path, reader(AdapterVersion), json=json))

    async def set_public(self, name: str, public: bool) -> Adapter:
        """Allow or forbid other tenants to use an adapter as `tenant:name`."""
        json = to_json(AdapterChange, {"public": public})
        return await self._sender.send(Request("PATCH", adapter_path(name), reader(Adapter), json=json))

    async def aliases(self, name: str) -> list[Alias]:
        """Every alias of an adapter, in order of name."""
        return (await self._sender.send(Request("GET", f"{adapter_path(name)}/aliases", reader(AliasList)))).aliases

    async def alias_history(self, name: str, alias: str) -> list[AliasChange]:
        """The last thousand changes of an alias, newest first."""
        path = f"{alias_path(name, alias)}/history"
        return (await self._sender.send(Request("GET", path, reader(AliasHistory)))).changes

    async def set_alias(self, name: str, alias: str, version: int | Mapping[int, float]) -> Alias:
        """Point an alias to a version, or to shares of several: `{3: 0.9, 4: 0.1}`."""
        meant = {"version": version} if isinstance(version, int) else {"versions": version}
        json = to_json(AliasRequest, meant)
        return await self._sender.send(Request("PUT", alias_path(name, alias), reader(Alias), json=json))

    async def rollback_alias(self, name: str, alias: str) -> Alias:
        """Point an alias to what it meant before its last change. Not retried: a second call goes further."""
        path = f"{alias_path(name, alias)}/rollback"
        return await self._sender.send(Request("POST", path, reader(Alias), retried=False))

    async def delete_alias(self, name: str, alias: str) -> None:
        """Delete an alias."""
        await self._sender.send(Request("DELETE", alias_path(name, alias), raise_for_error))

    async def pin(self, name: str) -> AdapterPin:
        """Keep an adapter on the device of every replica; the replica that answers has loaded it."""
        path, json = f"{adapter_path(name)}/pin", to_json(PinRequest, {})
        return await self._sender.send(Request("PUT", path, reader(AdapterPin), json=json))

    async def unpin(self, name: str) -> None:
        """Release the pin of an adapter; it stays in memory until it is evicted."""
        await self._sender.send(Request("DELETE", f"{adapter_path(name)}/pin", raise_for_error))

    def audit(self, tenant: str | None = None, **options: Unpack[AuditOptions]) -> AsyncIterator[AuditRecord]:
        """The wanted records of the audit log, newest first, fetched page by page; requires the scope admin."""
        pages = self._sender.pages(page_request("/v1/audit", AuditPage, **audit_query(tenant, options)))
        return (record async for page in pages for record in page.records)

    async def create_key(self, *scopes: str, **options: Unpack[KeyOptions]) -> NewKey:
        """Create a key with these scopes; `.key` is its text, which is not shown again."""
        json = to_json(KeyRequest, {"scopes": sorted(set(scopes)), **options})
        return await self._sender.send(Request("POST", "/v1/keys", reader(NewKey), json=json))

    async def keys(self, tenant: str | None = None) -> list[KeyInfo]:
        """Every key or those of one tenant, oldest first, including revoked and expired keys."""
        pages = self._sender.pages(page_request("/v1/keys", KeyList, **tenant_query(tenant)))
        return [key async for page in pages for key in page.keys]

    async def revoke_key(self, prefix: str) -> None:
        """Revoke a key for good; every replica refuses it within a second."""
        await self._sender.send(Request("DELETE", f"/v1/keys/{quote(prefix, safe='')}", raise_for_error))

    async def create_tenant(self, name: str, **quotas: Unpack[QuotaOptions]) -> TenantInfo:
        """Create a tenant. Quotas that are not given are unlimited."""
        json = to_json(TenantRequest, {"name": name, "quotas": quotas})
        return await self._sender.send(Request("POST", "/v1/tenants", reader(TenantInfo), json=json))

    async def tenants(self) -> list[TenantInfo]:
        """Every tenant with its quotas, in order of name."""
        pages = self._sender.pages(page_request("/v1/tenants", TenantList))
        return [tenant async for page in pages for tenant in page.tenants]

    async def tenant(self, name: str) -> TenantInfo:
        """One tenant, or `NotFound`."""
        return await self._sender.send(Request("GET", tenant_path(name), reader(TenantInfo)))

    async def tenant_usage(self, name: str) -> TenantUsage:
        """What a tenant uses of its quotas now."""
        return await self._sender.send(Request("GET", f"{tenant_path(name)}/usage", reader(TenantUsage)))

    async def set_tenant(self, name: str, **quotas: Unpack[QuotaOptions]) -> TenantInfo:
        """Replace all quotas of a tenant. Those that are not given become unlimited."""
        json = to_json(TenantQuotas, quotas)
        return await self._sender.send(Request("PUT", tenant_path(name), reader(TenantInfo), json=json))

    async def info(self) -> InfoResponse:
        """The server's release, backbone and limits."""
        return await self._sender.send(Request("GET", "/info", reader(InfoResponse)))

    async def metrics(self) -> str:
        """The page of `GET /metrics` in Prometheus' text format; requires the scope metrics. Not retried."""
        # One session for all callers, so that a balancer that knows sessions shows them the same replica each time.
        session = {SESSION_HEADER: "peltier/metrics"}
        page = await self._sender.send(Request("GET", "/metrics", read_content, headers=session, retried=False))
        return page.decode(errors="replace")

    async def ready(self) -> bool:
        """Whether the server accepts predictions; False while it loads or drains. Not retried."""
        return await self.why_not_ready() is None

    async def why_not_ready(self) -> str | None:
        """Why the server accepts no predictions, in one sentence; None if it does. Not retried."""
        return await self._sender.send(Request("GET", "/ready", read_unreadiness, retried=False))

    async def health(self) -> HealthResponse:
        """Whether the process is alive; raises if it is not. Not retried."""
        return await self._sender.send(Request("GET", "/health", reader(HealthResponse), retried=False))

    async def close(self) -> None:
        """Close all connections."""
        await self._sender.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._sender.connection.url!r})"
