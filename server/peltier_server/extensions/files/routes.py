"""Files of examples, and of requests and results of batches, in the shape of OpenAI's API: upload, list, read, download
and delete them."""

from collections.abc import AsyncIterator
from typing import Annotated, Literal

from fastapi import Form, Query, Request, Response, UploadFile
from peltier_client.errors import Conflict, FileNotFound, QueueFull, StorageFull, Unavailable
from peltier_client.protocol.trainings import File, FileDeleted, FileList, FilePurpose
from peltier_store.blobs.blobs import PIECE_BYTES
from peltier_store.registry.extensions.queue_records import StoredFile
from pydantic import BaseModel, ConfigDict
from starlette.responses import StreamingResponse

from peltier_server.context import RequestContext
from peltier_server.errors import scoped_errors
from peltier_server.extensions.files.intake import SCOPES, FileIntake, readable_purposes
from peltier_server.extensions.files.settings import FileSettings
from peltier_server.http.application import Accepted, Changing, Context, Limit, Threads, Uploads, accept
from peltier_server.http.list_pages import ListPage, answer_page, by_ids
from peltier_server.http.scoped_route import ScopedRoute, UploadRoute, scoped_router
from peltier_server.http.uploads import FORM_BYTES
from peltier_server.service import Service

After = Annotated[str | None, Query(max_length=64, description="The id of the last file of the page before.")]
Purpose = Annotated[FilePurpose | Literal["batch_output"] | None, Query(description="Only files of this purpose.")]
Order = Annotated[Literal["desc"], Query(description="The newest first.")]


class FileRoute(ScopedRoute):
    """A route for callers with the scope of some files."""

    needs_one = True


class FileUploadRoute(UploadRoute):
    """Receives files."""

    needs_one = True

    def max_bytes(self, request: Request) -> int:
        """The most bytes of a form with a file."""
        return accept(request).settings.group(FileSettings).max_file_bytes + FORM_BYTES


router = scoped_router(("predict", "train"), "files", "/v1/files", FileRoute)
uploads = scoped_router(("predict", "train"), "files", "/v1/files", FileUploadRoute)


class FileForm(BaseModel):
    """The parts of an upload: the file, and what it is for."""

    model_config = ConfigDict(extra="forbid")

    file: UploadFile
    purpose: FilePurpose


@uploads.post(
    "",
    status_code=201,
    form_limits={"max_files": 1, "max_fields": 4, "max_part_size": 4096},
    responses=scoped_errors(Unavailable, QueueFull, StorageFull),
)
async def upload_file(
    form: Annotated[FileForm, Form(media_type="multipart/form-data")],
    context: Context,
    service: Changing,
    threads: Threads,
    upload_turns: Uploads,
) -> File:
    """Keep a file: JSONL with an object a line, or for trainings CSV with a header. It is checked before it is kept.
    The purpose `fine-tune` needs the scope `train`, `batch` the scope `predict`."""
    context.caller.require(SCOPES[form.purpose])
    intake = FileIntake(service.store, threads, service.settings.group(FileSettings))
    # The bytes that arrived, whatever the caller has declared.
    async with upload_turns.read(form.file.size or 0):
        data = await form.file.read()
        kept = await intake.add(context.caller, form.file.filename or "", data, form.purpose)
    return file_on_the_wire(kept)


@router.get("", response_model=FileList, responses=scoped_errors(Unavailable, FileNotFound))
async def list_files(  # noqa: PLR0913 - each is a query parameter
    context: Context,
    service: Accepted,
    threads: Threads,
    purpose: Purpose = None,
    limit: Limit = 100,
    after: After = None,
    order: Order = "desc",
) -> Response:
    """The caller's files that its scopes allow, newest first, a page at a time, without the rows that were sent with
    trainings."""
    if purpose is not None:
        context.caller.require(SCOPES[purpose])
    wanted = readable_purposes(context.caller) if purpose is None else [purpose]
    found = await service.store.registry.files.list(context.tenant, purposes=wanted, limit=limit + 1, after=after)
    page = ListPage("data", found, limit, file_on_the_wire, by_ids(lambda file: file.id))
    return await answer_page(threads, context, page)


@router.get("/{file_id}", responses=scoped_errors(Unavailable, FileNotFound))
async def get_file(file_id: str, context: Context, service: Accepted) -> File:
    """One file."""
    return file_on_the_wire(await _find(service, context, file_id))


@router.get(
    "/{file_id}/content",
    response_class=Response,
    responses={
        200: {"content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}},
        **scoped_errors(Unavailable, FileNotFound, QueueFull),
    },
)
async def get_content(file_id: str, context: Context, service: Accepted) -> Response:
    """The bytes of a file, as they were uploaded."""
    file = await _find(service, context, file_id)
    context.reserve(min(file.size_bytes, 2 * PIECE_BYTES))
    pieces = service.store.blobs.pieces(file.digest, file.size_bytes)
    # The first piece is read before the answer begins, so that a read error is answered as an ordinary error.
    first = await anext(pieces)
    headers = {"content-length": str(file.size_bytes), "content-disposition": f'attachment; filename="{file.id}"'}
    return StreamingResponse(_joined(first, pieces), headers=headers, media_type="application/octet-stream")


@router.delete("/{file_id}", responses=scoped_errors(Unavailable, FileNotFound, Conflict))
async def delete_file(file_id: str, context: Context, service: Changing) -> FileDeleted:
    """Delete a file that no training and no batch needs any more."""
    await _find(service, context, file_id)
    await service.store.registry.files.remove(context.tenant, file_id, actor=context.caller.actor)
    return FileDeleted(id=file_id)


async def _find(service: Service, context: RequestContext, file_id: str) -> StoredFile:
    """A file of the caller. For a key without the scope of its purpose there is no such file."""
    return await service.store.registry.files.find(context.tenant, file_id, purposes=readable_purposes(context.caller))


def file_on_the_wire(file: StoredFile) -> File:
    """A file as callers see it."""
    return File(
        id=file.id,
        bytes=file.size_bytes,
        created_at=int(file.created_at.timestamp()),
        filename=file.name,
        purpose=file.purpose,
        rows=file.num_rows,
        is_inline=True if file.is_inline else None,
    )


async def _joined(first: bytes, others: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    del first  # otherwise the first piece would stay in memory until the last one has been sent
    async for piece in others:
        yield piece
