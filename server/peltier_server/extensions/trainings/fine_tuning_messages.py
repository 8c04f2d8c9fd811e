"""Bodies of requests and answers of OpenAI's API: jobs of fine-tuning."""

from typing import Annotated, Any, Literal

from peltier_client.protocol.trainings import (
    MAX_MULTIPLIER,
    Column,
    FileId,
    Metadata,
    TextColumns,
    TrainedType,
    TrainingSeed,
)
from peltier_client.protocol.wire import RequestModel, ResponseModel
from pydantic import Field, StrictInt

from peltier_server.protocols.openai.errors import openai_errors

Auto = Literal["auto"]
Count = Annotated[StrictInt, Field(ge=1, le=1_000_000)]
Multiplier = Annotated[float, Field(gt=0, le=MAX_MULTIPLIER, allow_inf_nan=False)]


class FineTuningHyperparameters(RequestModel):
    """`auto` is the default of `peltier train`."""

    n_epochs: Auto | Count = "auto"
    batch_size: Auto | Count = "auto"
    learning_rate_multiplier: Auto | Multiplier = "auto"


class SupervisedMethod(RequestModel):
    """Supervised learning and its hyper-parameters."""

    hyperparameters: FineTuningHyperparameters = FineTuningHyperparameters()


class FineTuningMethod(RequestModel):
    """The method of learning. Only the supervised one is served."""

    type: Literal["supervised"] = "supervised"
    supervised: SupervisedMethod = SupervisedMethod()


class FineTuningRequest(RequestModel):
    """A job to begin. `model` is the name of the server's backbone or of a preset. `suffix` becomes the name of the
    task; without it, the name of the file does. The last three are not OpenAI's; its client sends them in
    `extra_body`.
    """

    model: Annotated[str, Field(min_length=1, max_length=256)]
    training_file: FileId
    validation_file: FileId | None = None
    suffix: Annotated[str, Field(min_length=1, max_length=64)] | None = None
    seed: TrainingSeed | None = None
    method: FineTuningMethod | None = None
    hyperparameters: FineTuningHyperparameters | None = None
    metadata: Metadata | None = None
    task_type: TrainedType | None = None
    text_columns: TextColumns | None = None
    label_column: Column | None = None


class FineTuningError(ResponseModel):
    """Why a job failed."""

    code: str
    message: str
    param: str | None = None


class FineTuningJob(ResponseModel):
    """A training in the shape of OpenAI's API. `fine_tuned_model` is the version that was published."""

    id: str
    object: Literal["fine_tuning.job"] = "fine_tuning.job"
    created_at: int
    finished_at: int | None = None
    estimated_finish: int | None = None
    status: Literal["queued", "running", "paused", "succeeded", "failed", "cancelled"]
    model: str
    fine_tuned_model: str | None = None
    organization_id: str
    training_file: str
    validation_file: str | None = None
    result_files: list[str] = Field(default_factory=list)
    trained_tokens: int | None = None
    seed: int
    error: FineTuningError | None = None
    hyperparameters: FineTuningHyperparameters
    method: FineTuningMethod
    metadata: dict[str, str] | None = None
    integrations: list[Any] | None = None


class FineTuningJobs(ResponseModel):
    """A page of jobs, newest first."""

    object: Literal["list"] = "list"
    data: list[FineTuningJob]
    has_more: bool


class FineTuningEvent(ResponseModel):
    """Something that happened to a job."""

    id: str
    object: Literal["fine_tuning.job.event"] = "fine_tuning.job.event"
    created_at: int
    level: Literal["info", "warn", "error"]
    message: str
    type: Literal["message", "metrics"]
    data: dict[str, Any]


class FineTuningEvents(ResponseModel):
    """A page of the events of a job, newest first."""

    object: Literal["list"] = "list"
    data: list[FineTuningEvent]
    has_more: bool


class FineTuningCheckpoint(ResponseModel):
    """A validated step of a job. `fine_tuned_model_checkpoint` is the published version at the best step, and empty at
    the others, whose weights are not kept."""

    id: str
    object: Literal["fine_tuning.job.checkpoint"] = "fine_tuning.job.checkpoint"
    created_at: int
    fine_tuned_model_checkpoint: str
    fine_tuning_job_id: str
    metrics: dict[str, float]
    step_number: int


class FineTuningCheckpoints(ResponseModel):
    """A page of the validated steps of a job, newest first."""

    object: Literal["list"] = "list"
    data: list[FineTuningCheckpoint]
    has_more: bool = False
    first_id: str | None = None
    last_id: str | None = None


FINE_TUNING_ERRORS = openai_errors((), ("/v1/fine_tuning/",), FineTuningRequest)
