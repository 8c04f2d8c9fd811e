"""Trainings: begin, list, watch, pause, resume, cancel and delete them."""

from collections.abc import AsyncIterator, Iterable
from contextlib import ExitStack
from dataclasses import fields
from typing import Annotated, Any

from fastapi import Header, Query, Request, Response
from peltier_client.errors import (
    Conflict,
    FileNotFound,
    PeltierError,
    QueueFull,
    StorageFull,
    TrainingNotFound,
    Unavailable,
)
from peltier_client.protocol.trainings import (
    ENDED,
    Training,
    TrainingCost,
    TrainingEvent,
    TrainingList,
    TrainingProgress,
    TrainingRequest,
    TrainingStatus,
    TrainingSummary,
)
from peltier_store.registry.extensions import queue_records

from peltier_server.errors import scoped_errors
from peltier_server.extensions.trainings.trainings import Trainings
from peltier_server.http.application import Accepted, Changing, Context, Limit, NameCursor, Threads, started, state_of
from peltier_server.http.events import HEARTBEAT, MEDIA_TYPE, EventResponse, event, until_error
from peltier_server.http.idempotency import Repeatable
from peltier_server.http.list_pages import ListPage, answer_page, by_cursor
from peltier_server.http.scoped_route import scoped_router

_OF_ONE = scoped_errors(Unavailable, TrainingNotFound)
_OF_CHANGES = scoped_errors(Unavailable, TrainingNotFound, Conflict)
_STREAMED: dict[int | str, dict[str, Any]] = {
    200: {"description": "The events, until the training has ended.", "content": {MEDIA_TYPE: {}}},
    204: {"description": "The training has ended, and the caller has its last event."},
}

# What a training has by the same name in the registry.
_SAME = Training.model_fields.keys() & {field.name for field in fields(queue_records.StoredTraining)} - {"progress"}
_SAME_IN_LISTS = _SAME & TrainingSummary.model_fields.keys()

Statuses = Annotated[list[TrainingStatus] | None, Query(max_length=8, description="Only those in one of these.")]
LastEvent = Annotated[str, Header(alias="Last-Event-ID", pattern="^[0-9]{0,18}$")]

router = scoped_router("train", "trainings", "/v1/trainings")


@router.post("", status_code=202, responses=scoped_errors(Unavailable, FileNotFound, Conflict, QueueFull, StorageFull))
async def create_training(
    body: TrainingRequest, request: Request, context: Context, _: Changing, key: Repeatable
) -> Training:
    """Train an adapter on examples. The training waits for a worker; its adapter then becomes the task's next
    version. A repeated request with the same `Idempotency-Key` gets the training of the first one."""
    intake = started(request, Trainings).intake
    training = await intake.find_repeated(context.caller, key) or await intake.create(context.caller, body, key)
    return training_on_the_wire(training)


@router.get("", response_model=TrainingList, responses=_OF_ONE)
async def list_trainings(  # noqa: PLR0913 - each is a query parameter
    context: Context,
    service: Accepted,
    threads: Threads,
    status: Statuses = None,
    limit: Limit = 100,
    cursor: NameCursor = "",
) -> Response:
    """The caller's trainings, newest first, a page at a time, without their requests."""
    found = await service.store.registry.trainings.list(
        context.tenant, states=status or (), limit=limit + 1, after=cursor or None
    )
    page = ListPage("trainings", found, limit, _in_a_list, by_cursor(lambda one: one.id))
    return await answer_page(threads, context, page)


@router.get("/{training_id}", responses=_OF_ONE)
async def get_training(training_id: str, context: Context, service: Accepted) -> Training:
    """One training: its status, progress, metrics and cost."""
    return training_on_the_wire(await service.store.registry.trainings.find(context.tenant, training_id))


@router.get(
    "/{training_id}/events",
    response_class=Response,
    responses={**_STREAMED, **scoped_errors(Unavailable, TrainingNotFound, QueueFull)},
)
async def stream_events(
    training_id: str, request: Request, context: Context, service: Accepted, last_event_id: LastEvent = ""
) -> Response:
    """What happens to a training, as server-sent events: earlier ones first, then new ones until it has ended. A
    caller that comes back with `Last-Event-ID` gets those that it has missed."""
    after, lifecycle, tenant = int(last_event_id or 0), state_of(request).lifecycle, context.tenant
    trainings = service.store.registry.trainings
    state = await trainings.state(tenant, training_id)
    if state in ENDED and not await trainings.events(tenant, training_id, after=after, limit=1):
        # Browsers connect again after any end of a stream but this one.
        return Response(status_code=204)
    feed = started(request, Trainings).event_feed
    with ExitStack() as opened:
        opened.enter_context(feed.place(tenant))
        events = feed.events(tenant, training_id, after, lambda: lifecycle.draining)
        return EventResponse(until_error(_as_bytes(events), _error_event), {}, opened.pop_all().close)


@router.post("/{training_id}/pause", responses=_OF_CHANGES)
async def pause_training(training_id: str, context: Context, service: Changing) -> Training:
    """Pause a training: at its last checkpoint, from which it resumes."""
    trainings = service.store.registry.trainings
    return training_on_the_wire(await trainings.pause(context.tenant, training_id, actor=context.caller.actor))


@router.post("/{training_id}/resume", responses=_OF_CHANGES)
async def resume_training(training_id: str, request: Request, context: Context, _: Changing) -> Training:
    """Queue a paused or failed training again, from its last checkpoint."""
    return training_on_the_wire(await started(request, Trainings).intake.resume(context.caller, training_id))


@router.post("/{training_id}/cancel", responses=_OF_CHANGES)
async def cancel_training(training_id: str, context: Context, service: Changing) -> Training:
    """Cancel a training. Nothing is published."""
    trainings = service.store.registry.trainings
    return training_on_the_wire(await trainings.cancel(context.tenant, training_id, actor=context.caller.actor))


@router.delete("/{training_id}", status_code=204, response_class=Response, responses=_OF_CHANGES)
async def delete_training(training_id: str, context: Context, service: Changing) -> None:
    """Delete a training that has ended, with its events and the rows that were sent with it. Its adapter stays."""
    await service.store.registry.trainings.remove(context.tenant, training_id, actor=context.caller.actor)


async def _as_bytes(events: AsyncIterator[queue_records.StoredEvent | None]) -> AsyncIterator[bytes]:
    async for one in events:
        yield HEARTBEAT if one is None else _event(one)


def _event(one: queue_records.StoredEvent) -> bytes:
    body = TrainingEvent(id=one.id, at=one.at, kind=one.kind, message=one.message, data=dict(one.data))  # type: ignore[arg-type]
    return event(body, one.kind, one.id)


def _error_event(error: PeltierError) -> bytes:
    return event(error.body(), "error")


def training_on_the_wire(training: queue_records.StoredTraining) -> Training:
    """A training as callers see it."""
    return Training.model_validate(_values(training, _SAME))


def _in_a_list(training: queue_records.StoredTraining) -> TrainingSummary:
    return TrainingSummary.model_validate(_values(training, _SAME_IN_LISTS))


def _values(training: queue_records.StoredTraining, same: Iterable[str]) -> dict[str, Any]:
    progress = None if training.progress is None else TrainingProgress.model_validate(training.progress)
    is_busy = training.state in ("running", "evaluating")
    return {
        **{name: getattr(training, name) for name in same},
        "status": training.state,
        "progress": progress,
        "cost": TrainingCost(seconds=round(training.seconds, 3)),
        "seconds_left": progress.seconds_left if progress is not None and is_busy else None,
        "file_id": training.train_file_id,
    }
