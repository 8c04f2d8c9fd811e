"""Adapters: upload, read, download, open to other tenants, deprecate, delete, undelete and pin."""

from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import Form, Header, Path, Query, Response, UploadFile
from peltier_adapters.artifact.manifest import parse_manifest
from peltier_adapters.spec.parts import PartSpec, count_by_block, count_parameters
from peltier_backbone.checkpoint.config import BackboneConfig
from peltier_client.errors import (
    AdapterNotFound,
    ArtifactRefused,
    Conflict,
    InferenceFailed,
    QueueFull,
    StorageFull,
    TooLarge,
    Unavailable,
    VersionNotFound,
)
from peltier_client.protocol.adapters import (
    Adapter,
    AdapterChange,
    AdapterPage,
    AdapterPin,
    AdapterVersion,
    DeprecationRequest,
    PartCounts,
    PinRequest,
    UploadedVersion,
    VersionList,
    VersionManifest,
)
from peltier_client.protocol.names import MAX_VERSION
from peltier_client.protocol.reports import MAX_REPORT_BYTES, VersionReport
from peltier_store.blobs.blobs import PIECE_BYTES
from pydantic import BaseModel, ConfigDict
from starlette.responses import StreamingResponse

from peltier_server.catalog.publisher import UploadTarget
from peltier_server.errors import scoped_errors
from peltier_server.http.application import (
    Accepted,
    Changing,
    Context,
    Limit,
    NameCursor,
    NumberCursor,
    Threads,
    Uploads,
)
from peltier_server.http.list_pages import ListPage, answer_page, by_cursor
from peltier_server.http.scoped_route import UploadRoute, scoped_router

_OF_CHANGES = (AdapterNotFound, Unavailable)

# To parse and write a character of a manifest takes as long as to tokenise a fiftieth of one.
_CHARS_PER_COST = 50

Containing = Annotated[str, Query(alias="q", max_length=64, description="Only names that contain this.")]
VersionNumber = Annotated[int, Path(ge=1, le=MAX_VERSION)]

# A caller who may predict may read adapters. A caller who may publish may change them.
router = scoped_router("predict", "adapters", "/v1/adapters")
changes = scoped_router("publish", "adapters", "/v1/adapters")


# The bodies are artifacts, so this route has its own limit of bytes.
uploads = scoped_router("publish", "adapters", "/v1/adapters", UploadRoute)
pins = scoped_router("publish", "pins", "/v1/adapters/{name}")


class UploadForm(BaseModel):
    """The parts of an upload: the artifact, a name in place of its manifest's, an alias that is to mean it at once, and
    the report of its training, NAME.report.json."""

    model_config = ConfigDict(extra="forbid")

    file: UploadFile
    name: str | None = None
    alias: str | None = None
    report: UploadFile | None = None


@uploads.post(
    "",
    status_code=201,
    # The other parts are names. A caller may choose their charset, and with some charsets sixty kilobytes take a second
    # to decode.
    form_limits={"max_files": 2, "max_fields": 8, "max_part_size": 4096},
    responses={
        200: {"model": UploadedVersion, "description": "These bytes already are a version of this adapter."},
        **scoped_errors(ArtifactRefused, QueueFull, Unavailable, StorageFull),
    },
)
async def upload(
    form: Annotated[UploadForm, Form(media_type="multipart/form-data")],
    response: Response,
    context: Context,
    service: Changing,
    upload_turns: Uploads,
) -> UploadedVersion:
    """Publish an artifact as the next version; it goes live only if this server reproduces its golden examples.

    The answer says which version the bare name means then.
    """
    place = UploadTarget(context.caller, form.name, form.alias)
    size_bytes = form.file.size or 0
    upload_turns.check_size(size_bytes)
    async with upload_turns.read(size_bytes):
        report = None if form.report is None else await form.report.read(MAX_REPORT_BYTES + 1)
        entry, created = await service.publisher.publish(await form.file.read(), place, report)
    if not created:
        response.status_code = 200
    # None if the adapter has been deleted in the meantime.
    published = service.catalog.find(context.tenant, entry.version.name)
    live, aliases = ({}, {}) if published is None else (dict(published.live), published.splits_by_alias)
    return UploadedVersion(**entry.on_the_wire.model_dump(), created=created, live=live, aliases=aliases)


@router.get("", response_model=AdapterPage, responses=scoped_errors())
async def list_adapters(  # noqa: PLR0913 - each is a query parameter
    context: Context,
    service: Accepted,
    threads: Threads,
    limit: Limit = 100,
    cursor: NameCursor = "",
    containing: Containing = "",
) -> Response:
    """The caller's adapters in order of name, a page at a time."""
    found = service.catalog.page(context.tenant, after=cursor, containing=containing, limit=limit + 1)
    page = ListPage("adapters", found, limit, lambda one: one.summary, by_cursor(lambda one: one.name))
    return await answer_page(threads, context, page)


def _as_it_is(body: BaseModel) -> Response:
    """The response without the framework's validation, which takes longer than everything else for a body of a
    thousand labels.
    """
    return Response(body.model_dump_json(by_alias=True), media_type="application/json")


@router.get("/{name}", response_model=Adapter, responses=scoped_errors(AdapterNotFound))
async def get_adapter(name: str, context: Context, service: Accepted) -> Response:
    """One adapter with its newest version and its aliases."""
    return _as_it_is(service.catalog.get(context.tenant, name).on_the_wire)


@changes.patch("/{name}", responses=scoped_errors(*_OF_CHANGES))
async def change_adapter(name: str, body: AdapterChange, context: Context, service: Changing) -> Adapter:
    """Open an adapter to other tenants, which then call it `tenant:name`, or close it."""
    await service.version_admin.set_public(context.caller, name, public=body.public)
    return service.catalog.get(context.tenant, name).on_the_wire


@router.get("/{name}/versions", response_model=VersionList, responses=scoped_errors(AdapterNotFound))
async def list_versions(  # noqa: PLR0913 - each is a parameter of the address
    name: str,
    context: Context,
    service: Accepted,
    threads: Threads,
    limit: Limit = 100,
    cursor: NumberCursor = "",
) -> Response:
    """The live versions, newest first, a page at a time."""
    published = service.catalog.get(context.tenant, name)
    found = published.versions(before=int(cursor) if cursor else None, limit=limit + 1)
    page = ListPage("versions", found, limit, lambda one: one.summary, by_cursor(lambda one: one.number))
    return await answer_page(threads, context, page)


@router.get(
    "/{name}/versions/{version}",
    response_model=AdapterVersion,
    responses=scoped_errors(AdapterNotFound, VersionNotFound),
)
async def get_version(name: str, version: VersionNumber, context: Context, service: Accepted) -> Response:
    """One version with its labels and the metrics of its training."""
    return _as_it_is(service.catalog.get(context.tenant, name).version(version).on_the_wire)


@router.get(
    "/{name}/versions/{version}/manifest",
    response_model=VersionManifest,
    responses=scoped_errors(AdapterNotFound, VersionNotFound, QueueFull, Unavailable),
)
async def get_manifest(
    name: str, version: VersionNumber, context: Context, service: Accepted, threads: Threads
) -> Response:
    """The manifest of one version with its golden examples, and the parameters of each part by block."""
    entry = service.catalog.get(context.tenant, name).version(version)
    recorded = await service.store.registry.find(context.tenant, name, version)
    if recorded is None:
        raise VersionNotFound(f"adapter {name!r} has no version {version}")
    text, fits = recorded.manifest, entry.fingerprint == service.backbone.fingerprint
    # The manifest, the same as values, and the answer.
    context.reserve(3 * len(text))
    cost = len(text) // _CHARS_PER_COST
    body = await threads.run(context.tenant, cost, lambda: _describe(text, service.backbone.config if fits else None))
    return Response(body, media_type="application/json")


def _describe(text: str, config: BackboneConfig | None) -> str:
    manifest = parse_manifest(text)
    parts = [] if config is None else [_count(part, config) for part in manifest.parts]
    return VersionManifest(manifest=manifest.model_dump(mode="json"), parts=parts).model_dump_json()


def _count(part: PartSpec, config: BackboneConfig) -> PartCounts:
    total = count_parameters((part,), config, head=True)
    return PartCounts(kind=part.kind, parameters=total, blocks=list(count_by_block(part, config)))


@router.get(
    "/{name}/versions/{version}/report",
    response_model=VersionReport,
    responses=scoped_errors(AdapterNotFound, VersionNotFound, QueueFull, Unavailable),
)
async def get_report(name: str, version: VersionNumber, context: Context, service: Accepted) -> Response:
    """The report of a version's training; null if none was uploaded with it."""
    service.catalog.get(context.tenant, name).version(version)
    report = await service.store.registry.report(context.tenant, name, version) or "null"
    # The text, and the answer.
    context.reserve(2 * len(report))
    # The stored text was checked at the upload.
    return Response(f'{{"report":{report}}}', media_type="application/json")


@router.get(
    "/{name}/versions/{version}/artifact",
    response_class=Response,
    responses={
        200: {"content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}},
        304: {"description": "The caller has these bytes."},
        **scoped_errors(AdapterNotFound, VersionNotFound, QueueFull),
    },
)
async def download(
    name: str,
    version: VersionNumber,
    context: Context,
    service: Accepted,
    if_none_match: Annotated[str | None, Header()] = None,
) -> Response:
    """The artifact, bit by bit as it was uploaded."""
    entry = service.catalog.get(context.tenant, name).version(version)
    digest, size_bytes = entry.digest, entry.version.size_bytes
    headers = {"etag": f'"{digest}"', "x-adapter-version": str(version), "x-adapter-digest": digest}
    if if_none_match is not None and (if_none_match.strip() == "*" or headers["etag"] in if_none_match):
        return Response(status_code=304, headers=headers)
    headers["content-disposition"] = f'attachment; filename="{name}-{version}.safetensors"'
    headers["content-length"] = str(size_bytes)
    # One piece is sent while the next one is read.
    context.reserve(min(size_bytes, 2 * PIECE_BYTES))
    pieces = service.store.blobs.pieces(digest, size_bytes)
    # The first piece is read before the answer begins, so that a read error is answered as an ordinary error.
    first = await anext(pieces)
    return StreamingResponse(_joined(first, pieces), headers=headers, media_type="application/octet-stream")


@changes.delete("/{name}", status_code=204, response_class=Response, responses=scoped_errors(*_OF_CHANGES))
async def delete_adapter(name: str, context: Context, service: Changing) -> None:
    """Delete every version and alias; requests in flight still get their answers, and each version can be undeleted."""
    await service.version_admin.delete(context.caller, name)


@changes.delete(
    "/{name}/versions/{version}",
    status_code=204,
    response_class=Response,
    responses=scoped_errors(*_OF_CHANGES, VersionNotFound, Conflict),
)
async def delete_version(name: str, version: VersionNumber, context: Context, service: Changing) -> None:
    """Delete one version that no alias names. It can be undeleted; its number is never given out again."""
    await service.version_admin.delete(context.caller, name, version)


@changes.post(
    "/{name}/versions/{version}/undelete",
    responses=scoped_errors(*_OF_CHANGES, VersionNotFound, Conflict, StorageFull),
)
async def undelete_version(name: str, version: VersionNumber, context: Context, service: Changing) -> AdapterVersion:
    """Bring a deleted version back as it was, within its grace period."""
    return (await service.version_admin.undelete(context.caller, name, version)).on_the_wire


@changes.post("/{name}/versions/{version}/deprecate", responses=scoped_errors(*_OF_CHANGES, VersionNotFound))
async def deprecate_version(
    name: str, version: VersionNumber, body: DeprecationRequest, context: Context, service: Changing
) -> AdapterVersion:
    """Advise against a version. It still answers when it is named; a bare name means another one where there is one."""
    return (await service.version_admin.deprecate(context.caller, name, version, body.reason)).on_the_wire


@pins.put("/pin", responses=scoped_errors(AdapterNotFound, StorageFull, TooLarge, InferenceFailed, Unavailable))
async def pin_adapter(name: str, body: PinRequest, context: Context, service: Changing) -> AdapterPin:
    """Keep the versions that answer the bare name on the device of every replica. This replica has loaded them when it
    answers."""
    return await service.version_admin.pin(context.caller, name)


@pins.delete("/pin", status_code=204, response_class=Response, responses=scoped_errors(*_OF_CHANGES))
async def unpin_adapter(name: str, context: Context, service: Changing) -> None:
    """Release the pin of an adapter, if it has one: it stays in memory until it is evicted."""
    await service.version_admin.unpin(context.caller, name)


async def _joined(first: bytes, others: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    del first  # otherwise the first piece would stay in memory until the last one has been sent
    async for piece in others:
        yield piece
