"""Translates between jobs of fine-tuning in OpenAI's API and trainings."""

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal, cast

from peltier_adapters.presets.presets import PRESETS
from peltier_backbone.backbone import Backbone
from peltier_client.errors import InvalidInput
from peltier_client.protocol.names import NAME_PATTERN
from peltier_client.protocol.trainings import TrainingRequest
from peltier_store.registry.extensions.queue_records import StoredEvent, StoredTraining

from peltier_server.extensions.trainings.fine_tuning_messages import (
    FineTuningCheckpoint,
    FineTuningError,
    FineTuningEvent,
    FineTuningHyperparameters,
    FineTuningJob,
    FineTuningMethod,
    FineTuningRequest,
    SupervisedMethod,
)

_NAME_LEN = 63
_SETTINGS = {"n_epochs": "epochs", "batch_size": "batch_size"}
_STATUS = {"evaluating": "running", "publishing": "running"}


def training_request(body: FineTuningRequest, file_name: str, backbone: Backbone) -> TrainingRequest:
    """The training that a job asks for. Raises `InvalidInput` for a model that the server does not train."""
    if body.model != backbone.name and body.model not in PRESETS:
        known = ", ".join(PRESETS)
        raise InvalidInput(
            f"model {body.model!r} is neither this server's backbone {backbone.name!r} nor one of its presets: {known}"
        )
    numbers = _hyperparameters(body)
    settings = {_SETTINGS[name]: value for name, value in numbers.items() if name in _SETTINGS}
    multiplier = numbers.get("learning_rate_multiplier")
    wanted = {
        "task": _task(body.suffix, file_name),
        "task_type": body.task_type or ("text2text" if backbone.config.generates else "classification"),
        "format": "chat",
        "file_id": body.training_file,
        "validation_file_id": body.validation_file,
        "text_columns": body.text_columns,
        "label_column": body.label_column,
        "preset": None if body.model == backbone.name else body.model,
        "settings": settings,
        "learning_rate_multiplier": multiplier,
        "seed": body.seed,
        "metadata": body.metadata,
    }
    return TrainingRequest.model_validate({name: value for name, value in wanted.items() if value is not None})


def _hyperparameters(body: FineTuningRequest) -> dict[str, Any]:
    """Those of the method, or those beside it, which older clients send; without those that are automatic."""
    given = body.hyperparameters or FineTuningHyperparameters()
    if body.method is not None:
        given = body.method.supervised.hyperparameters
    return {name: value for name, value in given.model_dump().items() if value != "auto"}


def _task(suffix: str | None, file_name: str) -> str:
    """The name of the task: the suffix, or the name of the file with what a name may have."""
    if suffix is not None:
        if not re.fullmatch(NAME_PATTERN, suffix):
            raise InvalidInput(
                f"suffix {suffix!r} is not allowed: it becomes the task's name, which matches {NAME_PATTERN}"
            )
        return suffix
    return re.sub(r"[^a-z0-9._-]+|^[._-]+", "-", Path(file_name).stem.lower()).strip("-")[:_NAME_LEN] or "job"


def job_of(training: StoredTraining, request: Mapping[str, Any], backbone_name: str) -> FineTuningJob:
    """A training with this request as a job."""
    numbers = FineTuningHyperparameters.model_construct(**_numbers(request))
    seconds_left = (training.progress or {}).get("seconds_left") if training.state == "running" else None
    finish = None if seconds_left is None else datetime.now(UTC) + timedelta(seconds=seconds_left)
    error = None
    if training.state == "failed":
        error = FineTuningError(code="training_failed", message=training.reason or "the training failed")
    return FineTuningJob(
        id=training.id,
        created_at=int(training.created_at.timestamp()),
        finished_at=_seconds(training.finished_at),
        estimated_finish=_seconds(finish),
        status=cast(Any, _STATUS.get(training.state, training.state)),
        model=request.get("preset") or backbone_name,
        fine_tuned_model=training.adapter,
        organization_id=training.tenant,
        training_file=training.train_file_id or request.get("file_id") or "",
        validation_file=training.validation_file_id or request.get("validation_file_id"),
        seed=request.get("seed") or 0,
        error=error,
        hyperparameters=numbers,
        method=FineTuningMethod.model_construct(supervised=SupervisedMethod.model_construct(hyperparameters=numbers)),
        metadata=request.get("metadata"),
    )


def _numbers(request: Mapping[str, Any]) -> dict[str, Any]:
    settings = request.get("settings") or {}
    numbers = {name: settings.get(own, "auto") for name, own in _SETTINGS.items()}
    return {**numbers, "learning_rate_multiplier": request.get("learning_rate_multiplier") or "auto"}


def _seconds(moment: datetime | None) -> int | None:
    return None if moment is None else int(moment.timestamp())


def event_on_the_wire(event: StoredEvent) -> FineTuningEvent:
    """An event of a training as that of a job."""
    level: Literal["info", "error"] = "error" if event.data.get("state") == "failed" else "info"
    return FineTuningEvent(
        id=str(event.id),
        created_at=int(event.at.timestamp()),
        level=level,
        message=event.message,
        type="metrics" if event.kind == "progress" else "message",
        data=dict(event.data),
    )


def checkpoints_of(training: StoredTraining, events: Iterable[StoredEvent]) -> list[FineTuningCheckpoint]:
    """The validated steps of a job, newest first; the published version has the name of the best one, and its final
    metrics. The others cannot be asked for, so the names of their models are empty."""
    # A step that was lost with its worker was validated again.
    steps = {event.data["step"]: event for event in events if event.kind == "progress"}
    found = {step: _checkpoint(training, step, event.at, _metrics(event.data)) for step, event in steps.items()}
    if training.adapter is not None and training.finished_at is not None:
        best, metrics = _best_step(list(steps.values())), training.metrics or {}
        found[best] = _checkpoint(training, best, training.finished_at, metrics, training.adapter)
    return [found[step] for step in sorted(found, reverse=True)]


def _metrics(progress: Mapping[str, Any]) -> dict[str, float]:
    metrics = {"train_loss": progress.get("loss"), progress["metric"]: progress.get("value")}
    return {name: value for name, value in metrics.items() if value is not None}


def _checkpoint(
    training: StoredTraining, step: int, at: datetime, metrics: Mapping[str, float], model: str = ""
) -> FineTuningCheckpoint:
    return FineTuningCheckpoint(
        id=f"{training.id}-{step}",
        created_at=int(at.timestamp()),
        fine_tuned_model_checkpoint=model,
        fine_tuning_job_id=training.id,
        metrics={"step": step, **metrics},
        step_number=step,
    )


def _best_step(validated: Sequence[StoredEvent]) -> int:
    """The step that the last event names as the best one, or its own; 0 without events."""
    if not validated:
        return 0
    last = validated[-1].data
    return int(last.get("best_step") or last["step"])
