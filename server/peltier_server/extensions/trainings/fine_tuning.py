"""Routes of OpenAI's API for fine-tuning: the trainings of the caller as jobs."""

from collections.abc import Sequence
from itertools import accumulate
from typing import Annotated

from fastapi import Query, Request, Response
from peltier_client.errors import Conflict, FileNotFound, InvalidInput, StorageFull, TrainingNotFound, Unavailable
from peltier_store.registry.extensions.queue_records import StoredEvent, StoredTraining

from peltier_server.errors import scoped_errors
from peltier_server.extensions.files.intake import FINE_TUNE
from peltier_server.extensions.trainings.fine_tuning_messages import (
    FINE_TUNING_ERRORS,
    FineTuningCheckpoints,
    FineTuningEvents,
    FineTuningJob,
    FineTuningJobs,
    FineTuningRequest,
)
from peltier_server.extensions.trainings.jobs import checkpoints_of, event_on_the_wire, job_of, training_request
from peltier_server.extensions.trainings.trainings import Trainings
from peltier_server.http.application import Accepted, Changing, Context, Threads, started
from peltier_server.http.idempotency import Repeatable
from peltier_server.http.list_pages import MAX_PAGE_BYTES, ListPage, answer_page, by_ids, has_more
from peltier_server.http.scoped_route import scoped_router
from peltier_server.service import Service

_OF_ONE = scoped_errors(Unavailable, TrainingNotFound, shape=FINE_TUNING_ERRORS)
_OF_CHANGES = scoped_errors(Unavailable, TrainingNotFound, Conflict, shape=FINE_TUNING_ERRORS)
_CREATED = scoped_errors(Unavailable, FileNotFound, Conflict, StorageFull, shape=FINE_TUNING_ERRORS)
_EVENT_PAGE = 1000
# Characters that are tokenised in the time in which an event becomes a checkpoint.
_COST_OF_AN_EVENT = 8

JobLimit = Annotated[int, Query(ge=1, le=100)]
AfterJob = Annotated[str | None, Query(max_length=64, description="The id of the last job of the page before.")]
AfterCheckpoint = Annotated[
    str | None, Query(max_length=100, description="The id of the last checkpoint of the page before.")
]
AfterEvent = Annotated[str | None, Query(pattern="^[0-9]{1,18}$", description="The id of the last event.")]

router = scoped_router("train", "openai", "/v1/fine_tuning/jobs")


@router.post("", responses=_CREATED)
async def create_job(
    body: FineTuningRequest, request: Request, context: Context, service: Changing, key: Repeatable
) -> FineTuningJob:
    """Train an adapter on a file of chats or of rows. The adapter becomes the next version of the task `suffix`. A
    repeated request with the same `Idempotency-Key` gets the job of the first one."""
    intake = started(request, Trainings).intake
    training = await intake.find_repeated(context.caller, key)
    if training is None:
        file = await service.store.registry.files.find(context.tenant, body.training_file, purposes=[FINE_TUNE])
        wanted = training_request(body, file.name, service.backbone)
        training = await intake.create(context.caller, wanted, key)
    return _job(training, service)


@router.get("", response_model=FineTuningJobs, responses=_OF_ONE)
async def list_jobs(  # noqa: PLR0913 - each is a query parameter
    request: Request,
    context: Context,
    service: Accepted,
    threads: Threads,
    limit: JobLimit = 20,
    after: AfterJob = None,
) -> Response:
    """The trainings of the caller as jobs, newest first."""
    if any(name.startswith("metadata") for name in request.query_params):
        raise InvalidInput("metadata: jobs cannot be filtered by it; list all of them")
    trainings = service.store.registry.trainings
    found = await trainings.list(context.tenant, limit=limit + 1, after=after)
    num_shown = _num_readable(found[:limit])
    requests = await trainings.requests(context.tenant, [one.id for one in found[:num_shown]])
    name = service.backbone.name
    page = ListPage("data", found, num_shown, lambda one: job_of(one, requests.get(one.id, {}), name), has_more)
    return await answer_page(threads, context, page)


def _num_readable(trainings: Sequence[StoredTraining]) -> int:
    """How many of the first trainings have requests of at most `MAX_PAGE_BYTES` together; at least one."""
    sizes = accumulate(training.request_bytes for training in trainings)
    return max(1, sum(size <= MAX_PAGE_BYTES for size in sizes))


@router.get("/{job_id}", responses=_OF_ONE)
async def get_job(job_id: str, context: Context, service: Accepted) -> FineTuningJob:
    """One job."""
    return _job(await service.store.registry.trainings.find(context.tenant, job_id), service)


def _job(training: StoredTraining, service: Service) -> FineTuningJob:
    return job_of(training, training.request, service.backbone.name)


@router.get("/{job_id}/events", response_model=FineTuningEvents, responses=_OF_ONE)
async def list_job_events(  # noqa: PLR0913 - each is a query parameter
    job_id: str,
    context: Context,
    service: Accepted,
    threads: Threads,
    limit: JobLimit = 20,
    after: AfterEvent = None,
) -> Response:
    """What happened to a job, newest first; `after` continues with older events."""
    before = None if after is None else int(after)
    trainings = service.store.registry.trainings
    found = await trainings.last_events(context.tenant, job_id, before=before, limit=limit + 1)
    return await answer_page(threads, context, ListPage("data", found, limit, event_on_the_wire, has_more))


@router.get("/{job_id}/checkpoints", response_model=FineTuningCheckpoints, responses=_OF_ONE)
async def list_job_checkpoints(  # noqa: PLR0913 - each is a query parameter
    job_id: str,
    context: Context,
    service: Accepted,
    threads: Threads,
    limit: JobLimit = 10,
    after: AfterCheckpoint = None,
) -> Response:
    """The validated steps of a job with their metrics, newest first. Only the best one is published, and has a name."""
    training = await service.store.registry.trainings.find(context.tenant, job_id)
    events = await _read_log(service, context.tenant, job_id)
    cost = _COST_OF_AN_EVENT * len(events)
    found = await threads.run(context.tenant, cost, lambda: checkpoints_of(training, events))
    if after is not None:
        found = found[next((place for place, one in enumerate(found, 1) if one.id == after), len(found)) :]
    page = ListPage("data", found, limit, lambda one: one, by_ids(lambda one: one.id))
    return await answer_page(threads, context, page)


async def _read_log(service: Service, tenant: str, job_id: str) -> list[StoredEvent]:
    """All events of a job, oldest first."""
    last, found = 0, list[StoredEvent]()
    while page := await service.store.registry.trainings.events(tenant, job_id, after=last, limit=_EVENT_PAGE):
        found += page
        last = page[-1].id
    return found


@router.post("/{job_id}/cancel", responses=_OF_CHANGES)
async def cancel_job(job_id: str, context: Context, service: Changing) -> FineTuningJob:
    """Cancel a job. Nothing is published."""
    trainings = service.store.registry.trainings
    training = await trainings.cancel(context.tenant, job_id, actor=context.caller.actor)
    return _job(training, service)


@router.post("/{job_id}/pause", responses=_OF_CHANGES)
async def pause_job(job_id: str, context: Context, service: Changing) -> FineTuningJob:
    """Pause a job at its last checkpoint, from which it resumes."""
    trainings = service.store.registry.trainings
    training = await trainings.pause(context.tenant, job_id, actor=context.caller.actor)
    return _job(training, service)


@router.post("/{job_id}/resume", responses=_OF_CHANGES)
async def resume_job(job_id: str, request: Request, context: Context, service: Changing) -> FineTuningJob:
    """Queue a paused or failed job again."""
    return _job(await started(request, Trainings).intake.resume(context.caller, job_id), service)
