"""Adapters: upload, look, download, delete."""

from typing import Annotated

from fastapi import APIRouter, Form, Header, Path, Query, Response, UploadFile
from peltier_client.errors import (
    AdapterNotFound,
    ArtifactRefused,
    Draining,
    Forbidden,
    InvalidInput,
    NotReady,
    QueueFull,
    QuotaExceeded,
    TooLarge,
    Unauthorized,
    VersionNotFound,
)
from peltier_client.protocol import Adapter, AdapterPage, AdapterVersion, VersionList
from pydantic import BaseModel, ConfigDict

from peltier_server.errors import describe_errors
from peltier_server.routes.closed import Closed, needs
from peltier_server.routes.dependencies import Accepted

_SHARED = (Unauthorized, Forbidden, InvalidInput, QuotaExceeded, NotReady, Draining)
_MAX_PAGE = 1000
# The largest integer that SQLite and JavaScript both hold would do; versions stay far below.
_MAX_VERSION = 999_999_999

Limit = Annotated[int, Query(ge=1, le=_MAX_PAGE, description="How many adapters at most.")]
Cursor = Annotated[str, Query(max_length=64, description="`next_cursor` of the page before.")]
Containing = Annotated[str, Query(alias="q", max_length=64, description="Only names that contain this.")]
VersionNumber = Annotated[int, Path(ge=1, le=_MAX_VERSION)]

# Who predicts may look, who publishes may change.
router = APIRouter(prefix="/v1/adapters", tags=["adapters"], route_class=Closed, dependencies=[needs("predict")])
changes = APIRouter(prefix="/v1/adapters", tags=["adapters"], route_class=Closed, dependencies=[needs("publish")])
# Its bodies are artifacts, so it has a limit of its own.
uploads = APIRouter(prefix="/v1/adapters", tags=["adapters"], route_class=Closed, dependencies=[needs("publish")])


class UploadForm(BaseModel):
    """The parts of an upload: the artifact, and a name in place of its manifest's."""

    model_config = ConfigDict(extra="forbid")

    file: UploadFile
    name: str | None = None


@uploads.post(
    "",
    status_code=201,
    responses={
        200: {"model": AdapterVersion, "description": "These bytes already are a version of this adapter."},
        **describe_errors(*_SHARED, TooLarge, ArtifactRefused, QueueFull),
    },
)
async def upload(
    form: Annotated[UploadForm, Form(media_type="multipart/form-data")], response: Response, service: Accepted
) -> AdapterVersion:
    """Publish an artifact as the next version; it goes live only if this server reproduces its golden examples."""
    entry, created = await service.publisher.publish(await form.file.read(), form.name)
    if not created:
        response.status_code = 200
    return entry.on_the_wire()


@router.get("", responses=describe_errors(*_SHARED))
async def list_adapters(
    service: Accepted, limit: Limit = 100, cursor: Cursor = "", containing: Containing = ""
) -> AdapterPage:
    """Adapters in order of name, a page at a time."""
    names = service.catalog.names(after=cursor, containing=containing, limit=limit + 1)
    page = [service.catalog.adapter(name) for name in names[:limit]]
    return AdapterPage(adapters=page, next_cursor=page[-1].name if len(names) > limit else None)


@router.get("/{name}", responses=describe_errors(*_SHARED, AdapterNotFound))
async def get_adapter(name: str, service: Accepted) -> Adapter:
    """One adapter with its newest version."""
    return service.catalog.adapter(name)


@router.get("/{name}/versions", responses=describe_errors(*_SHARED, AdapterNotFound))
async def list_versions(name: str, service: Accepted) -> VersionList:
    """Every live version, newest first."""
    return VersionList(versions=[entry.on_the_wire() for entry in service.catalog.versions(name)])


@router.get(
    "/{name}/versions/{version}/artifact",
    response_class=Response,
    responses={
        200: {"content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}},
        304: {"description": "The caller has these bytes."},
        **describe_errors(*_SHARED, AdapterNotFound, VersionNotFound),
    },
)
async def download(
    name: str, version: VersionNumber, service: Accepted, if_none_match: Annotated[str | None, Header()] = None
) -> Response:
    """The artifact, bit by bit as it was uploaded."""
    digest = service.catalog.version(name, version).digest
    headers = {"etag": f'"{digest}"', "x-adapter-version": str(version), "x-adapter-digest": digest}
    if if_none_match is not None and (if_none_match.strip() == "*" or headers["etag"] in if_none_match):
        return Response(status_code=304, headers=headers)
    headers["content-disposition"] = f'attachment; filename="{name}-{version}.safetensors"'
    data = await service.store.blobs.get(digest)
    return Response(data, headers=headers, media_type="application/octet-stream")


@changes.delete(
    "/{name}", status_code=204, response_class=Response, responses=describe_errors(*_SHARED, AdapterNotFound)
)
async def delete_adapter(name: str, service: Accepted) -> None:
    """Delete every version; requests in flight still get their answers."""
    await service.publisher.withdraw(name)


@changes.delete(
    "/{name}/versions/{version}",
    status_code=204,
    response_class=Response,
    responses=describe_errors(*_SHARED, AdapterNotFound, VersionNotFound),
)
async def delete_version(name: str, version: VersionNumber, service: Accepted) -> None:
    """Delete one version; its number is never given out again."""
    await service.publisher.withdraw(name, version)
