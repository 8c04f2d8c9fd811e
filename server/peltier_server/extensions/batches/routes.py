"""Routes of OpenAI's API for batches: requests in a file, whose answers are in a file later."""

from datetime import datetime
from typing import Annotated

from fastapi import Query, Response
from peltier_client.errors import BatchNotFound, Conflict, FileNotFound, InvalidInput, QuotaExceeded, Unavailable
from peltier_client.protocol.batches import Batch, BatchCounts, BatchError, BatchErrors, BatchList, BatchRequest
from peltier_store.registry.errors import QuotaReached
from peltier_store.registry.extensions.queue_records import BatchDraft, StoredBatch, StoredFile

from peltier_server.errors import scoped_errors
from peltier_server.extensions.batches.settings import BatchSettings
from peltier_server.extensions.files.intake import readable_purposes
from peltier_server.http.application import Accepted, Changing, Context, Threads
from peltier_server.http.idempotency import Repeatable
from peltier_server.http.list_pages import ListPage, answer_page, by_ids
from peltier_server.http.scoped_route import scoped_router
from peltier_server.protocols.openai.errors import openai_errors

BATCH_ERRORS = openai_errors(("/v1/batches",), ("/v1/batches/",), BatchRequest)

# A batch of the tenant has to end.
_RETRY_SECONDS = 60.0
_OF_ONE = scoped_errors(Unavailable, BatchNotFound, shape=BATCH_ERRORS)

BatchLimit = Annotated[int, Query(ge=1, le=100)]
AfterBatch = Annotated[str | None, Query(max_length=64, description="The id of the last batch of the page before.")]

router = scoped_router("predict", "openai", "/v1/batches")


@router.post("", responses=scoped_errors(Unavailable, FileNotFound, shape=BATCH_ERRORS))
async def create_batch(body: BatchRequest, context: Context, service: Changing, key: Repeatable) -> Batch:
    """Answer the requests in a file, after live requests. The answers are in `output_file_id` at the end, the errors in
    `error_file_id`. A repeated request with the same `Idempotency-Key` gets the batch of the first one."""
    registry = service.store.registry
    file = await registry.files.find(context.tenant, body.input_file_id, purposes=readable_purposes(context.caller))
    _check(file, service.settings.group(BatchSettings).max_batch_lines)
    draft = BatchDraft(body.endpoint, file.id, body.completion_window, request_metadata=body.metadata)
    try:
        batch = await registry.batches.create(context.tenant, draft, actor=context.caller.actor, key=key)
    except QuotaReached as error:
        raise QuotaExceeded(str(error), retry_after=_RETRY_SECONDS) from None
    return batch_on_the_wire(batch)


def _check(file: StoredFile, max_lines: int) -> None:
    if file.purpose != "batch":
        raise InvalidInput(f"input_file_id: the purpose of the file {file.id!r} is {file.purpose!r}, not 'batch'")
    if file.num_rows > max_lines:
        raise InvalidInput(
            f"input_file_id: the file has {file.num_rows} requests; a batch may have {max_lines} (max_batch_lines)"
        )


@router.get("", response_model=BatchList, responses=_OF_ONE)
async def list_batches(
    context: Context, service: Accepted, threads: Threads, limit: BatchLimit = 20, after: AfterBatch = None
) -> Response:
    """The batches of the caller, newest first."""
    found = await service.store.registry.batches.list(context.tenant, limit=limit + 1, after=after)
    page = ListPage("data", found, limit, batch_on_the_wire, by_ids(lambda batch: batch.id))
    return await answer_page(threads, context, page)


@router.get("/{batch_id}", responses=_OF_ONE)
async def get_batch(batch_id: str, context: Context, service: Accepted) -> Batch:
    """One batch: its status, its counts, and at the end the ids of its files."""
    return batch_on_the_wire(await service.store.registry.batches.find(context.tenant, batch_id))


@router.post("/{batch_id}/cancel", responses=scoped_errors(Unavailable, BatchNotFound, Conflict, shape=BATCH_ERRORS))
async def cancel_batch(batch_id: str, context: Context, service: Changing) -> Batch:
    """Cancel a batch. Its results until then are in its files."""
    batches = service.store.registry.batches
    return batch_on_the_wire(await batches.cancel(context.tenant, batch_id, actor=context.caller.actor))


def batch_on_the_wire(batch: StoredBatch) -> Batch:
    """A batch as callers see it."""
    ended = {f"{batch.state}_at": _seconds(batch.finished_at)} if batch.finished_at is not None else {}
    errors = None if batch.errors is None else [BatchError.model_validate(error) for error in batch.errors]
    return Batch.model_validate(
        {
            "id": batch.id,
            "endpoint": batch.endpoint,
            "errors": None if errors is None else BatchErrors(data=errors),
            "input_file_id": batch.input_file_id,
            "completion_window": batch.completion_window,
            "status": batch.state,
            "output_file_id": batch.output_file_id,
            "error_file_id": batch.error_file_id,
            "created_at": _seconds(batch.created_at),
            "in_progress_at": _seconds(batch.started_at),
            "expires_at": _seconds(batch.expires_at),
            "finalizing_at": _seconds(batch.finalizing_at),
            "cancelling_at": _seconds(batch.cancelling_at),
            **ended,
            "request_counts": BatchCounts(
                total=batch.num_lines, completed=batch.num_completed, failed=batch.num_failed
            ),
            "metadata": batch.request_metadata,
        }
    )


def _seconds(moment: datetime | None) -> int | None:
    return None if moment is None else int(moment.timestamp())
