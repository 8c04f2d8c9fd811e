"""Routes of OpenAI's API for fine-tuning: the trainings of the caller as jobs."""

from typing import Annotated

from fastapi import Query, Request
from peltier_client.errors import (
    Conflict,
    Draining,
    FileNotFound,
    Forbidden,
    InvalidInput,
    NotReady,
    QuotaExceeded,
    StorageFull,
    TrainingNotFound,
    Unauthorized,
    Unavailable,
)
from peltier_store.registry import StoredEvent

from peltier_server.errors import describe_errors
from peltier_server.http.application import Accepted, Changing, Context
from peltier_server.http.scoped_route import scoped_router
from peltier_server.protocols.openai.errors import OPENAI_ERRORS
from peltier_server.protocols.openai.fine_tuning_messages import (
    FineTuningCheckpoints,
    FineTuningEvents,
    FineTuningJob,
    FineTuningJobs,
    FineTuningRequest,
)
from peltier_server.protocols.openai.jobs import checkpoints_of, event_on_the_wire, job_of, training_request
from peltier_server.service import Service

_SHARED = (Unauthorized, Forbidden, InvalidInput, QuotaExceeded, NotReady, Draining, Unavailable)
_OF_ONE = describe_errors(*_SHARED, TrainingNotFound, shape=OPENAI_ERRORS)
_OF_CHANGES = describe_errors(*_SHARED, TrainingNotFound, Conflict, shape=OPENAI_ERRORS)
_CREATED = describe_errors(*_SHARED, FileNotFound, Conflict, StorageFull, shape=OPENAI_ERRORS)
_EVENT_PAGE = 1000

JobLimit = Annotated[int, Query(ge=1, le=100)]
AfterJob = Annotated[str | None, Query(max_length=64, description="The id of the last job of the page before.")]
AfterCheckpoint = Annotated[
    str | None, Query(max_length=100, description="The id of the last checkpoint of the page before.")
]
AfterEvent = Annotated[str | None, Query(pattern="^[0-9]{1,18}$", description="The id of the last event.")]

router = scoped_router("train", "openai", "/v1/fine_tuning/jobs")


@router.post("", responses=_CREATED)
async def create_job(body: FineTuningRequest, context: Context, service: Changing) -> FineTuningJob:
    """Train an adapter on a file of chats or of rows. The adapter becomes the next version of the task `suffix`."""
    file = await service.store.registry.files.find(context.tenant, body.training_file)
    wanted = training_request(body, file.name, service.backbone)
    return job_of(await service.training_intake.create(context.caller, wanted), service.backbone.name)


@router.get("", responses=_OF_ONE)
async def list_jobs(
    request: Request, context: Context, service: Accepted, limit: JobLimit = 20, after: AfterJob = None
) -> FineTuningJobs:
    """The trainings of the caller as jobs, newest first."""
    if any(name.startswith("metadata") for name in request.query_params):
        raise InvalidInput("metadata: jobs cannot be filtered by it; list all of them")
    found = await service.store.registry.trainings.list(context.tenant, limit=limit + 1, after=after)
    jobs = [job_of(training, service.backbone.name) for training in found[:limit]]
    return FineTuningJobs(data=jobs, has_more=len(found) > limit)


@router.get("/{job_id}", responses=_OF_ONE)
async def get_job(job_id: str, context: Context, service: Accepted) -> FineTuningJob:
    """One job."""
    training = await service.store.registry.trainings.find(context.tenant, job_id)
    return job_of(training, service.backbone.name)


@router.get("/{job_id}/events", responses=_OF_ONE)
async def list_job_events(
    job_id: str, context: Context, service: Accepted, limit: JobLimit = 20, after: AfterEvent = None
) -> FineTuningEvents:
    """What happened to a job, newest first; `after` continues with older events."""
    logged = await _read_log(service, context.tenant, job_id)
    found = [one for one in logged if after is None or one.id < int(after)]
    events = [event_on_the_wire(one) for one in found[::-1][:limit]]
    return FineTuningEvents(data=events, has_more=len(found) > limit)


@router.get("/{job_id}/checkpoints", responses=_OF_ONE)
async def list_job_checkpoints(
    job_id: str, context: Context, service: Accepted, limit: JobLimit = 10, after: AfterCheckpoint = None
) -> FineTuningCheckpoints:
    """The validated steps of a job with their metrics, newest first. Only the best one is published, and has a name."""
    training = await service.store.registry.trainings.find(context.tenant, job_id)
    found = checkpoints_of(training, await _read_log(service, context.tenant, job_id))
    if after is not None:
        found = found[next((place for place, one in enumerate(found, 1) if one.id == after), len(found)) :]
    page = found[:limit]
    first, last = (page[0].id, page[-1].id) if page else (None, None)
    return FineTuningCheckpoints(data=page, has_more=len(found) > limit, first_id=first, last_id=last)


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
    return job_of(training, service.backbone.name)


@router.post("/{job_id}/pause", responses=_OF_CHANGES)
async def pause_job(job_id: str, context: Context, service: Changing) -> FineTuningJob:
    """Pause a job at its last checkpoint, from which it resumes."""
    trainings = service.store.registry.trainings
    training = await trainings.pause(context.tenant, job_id, actor=context.caller.actor)
    return job_of(training, service.backbone.name)


@router.post("/{job_id}/resume", responses=_OF_CHANGES)
async def resume_job(job_id: str, context: Context, service: Changing) -> FineTuningJob:
    """Queue a paused or failed job again."""
    return job_of(await service.training_intake.resume(context.caller, job_id), service.backbone.name)
