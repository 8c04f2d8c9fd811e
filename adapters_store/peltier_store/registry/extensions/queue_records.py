"""Records of files, trainings and batches."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, ClassVar, Protocol

from peltier_store.registry.records import Reservation

# The states of a training. The last three are final.
FINAL_STATES = ("succeeded", "failed", "cancelled")
STATES = ("queued", "running", "paused", "evaluating", "publishing", *FINAL_STATES)
# The states of a batch. The last four are final.
ENDED_BATCHES = ("completed", "failed", "cancelled", "expired")
BATCH_STATES = ("validating", "in_progress", "finalizing", "cancelling", *ENDED_BATCHES)
# The kinds of a training's events.
EVENTS = ("state", "preflight", "progress", "checkpoint", "message")


@dataclass(frozen=True)
class StoredFile:
    """A tenant's uploaded examples or requests, results of a batch, or with `is_inline` examples of a training."""

    id: str
    tenant: str
    name: str
    purpose: str
    digest: str
    size_bytes: int
    num_rows: int
    is_inline: bool
    created_at: datetime
    created_by: str


@dataclass(frozen=True)
class NewFile:
    """Stored, reserved bytes that become a file."""

    reservation: Reservation
    name: str
    size_bytes: int
    num_rows: int


@dataclass(frozen=True)
class IdempotencyKey:
    """A key that a caller has chosen for a request, to repeat it, and the digest of the request."""

    key: str
    digest: str


@dataclass(frozen=True)
class TrainingDraft:
    """A training to be created. `request` is what the caller sent without its examples, which are in the files. With
    `owns_files` they are deleted with the training."""

    task: str
    request: Mapping[str, Any]
    train_file_id: str
    validation_file_id: str | None = None
    keep_examples: bool = False
    owns_files: bool = False


class QueueEntry(Protocol):
    """A training or a batch, which a process may hold: one of the dataclasses below."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def id(self) -> str: ...

    @property
    def holder(self) -> str | None: ...

    @property
    def attempts(self) -> int: ...


@dataclass(frozen=True)
class TrainingSummary:
    """A training with its state, which is one of `STATES`, without what may be as large as all labels of its task.

    While a worker has it, or in the state `publishing` a replica of the server, `holder` is the name of that process
    and `lease_expires_at` the time at which another may take the training. `attempts` counts the workers that began it
    since its newest checkpoint. `seconds` is the time that workers have spent on it. `wish` is what the owner asked
    for and the worker has not done yet: `pause` or `cancel`. The checkpoint and the artifact are blobs. The request has
    `request_bytes` as JSON; three of its names are here too.
    """

    id: str
    tenant: str
    task: str
    state: str
    request_bytes: int
    task_type: str | None
    preset: str | None
    recipe: str | None
    train_file_id: str | None
    validation_file_id: str | None
    keep_examples: bool
    size_bytes: int
    created_at: datetime
    created_by: str
    started_at: datetime | None = None
    finished_at: datetime | None = None
    wish: str | None = None
    reason: str | None = None
    progress: Mapping[str, Any] | None = None
    metrics: Mapping[str, float] | None = None
    adapter: str | None = None
    seconds: float = 0.0
    holder: str | None = None
    lease_expires_at: datetime | None = None
    attempts: int = 0
    checkpoint_digest: str | None = None
    checkpoint_bytes: int = 0
    artifact_digest: str | None = None
    artifact_bytes: int = 0


@dataclass(frozen=True, kw_only=True)
class StoredTraining(TrainingSummary):
    """A training with its request, the report on its rows before the first step, and the report of what was trained,
    until that is published."""

    request: Mapping[str, Any]
    preflight: Mapping[str, Any] | None = None
    report: str | None = None


@dataclass(frozen=True)
class NewEvent:
    """Something that happens to a training: `kind` is one of `EVENTS`, `message` a sentence."""

    kind: str
    message: str
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class StoredEvent:
    """One entry of a training's log. `id` grows with time."""

    id: int
    at: datetime
    kind: str
    message: str
    data: Mapping[str, Any]


@dataclass(frozen=True)
class BatchDraft:
    """A batch to be created: what it is to ask of `endpoint`, with the requests in a file."""

    endpoint: str
    input_file_id: str
    completion_window: str
    request_metadata: Mapping[str, str] | None = None


@dataclass(frozen=True)
class StoredBatch:
    """A batch of requests with its state: one of `BATCH_STATES`.

    While a server works on a part of it, `holder` is the name of that process and `lease_expires_at` the time at which
    another may take the batch. `attempts` counts the servers that began since its newest part, and `served_at` is when
    the last one began. `num_completed` and `num_failed` of its `num_lines` lines, the first ones, have results in
    parts or, at the end, in the two files. `errors` say why it failed.
    """

    id: str
    tenant: str
    endpoint: str
    state: str
    input_file_id: str
    completion_window: str
    request_metadata: Mapping[str, str] | None
    created_at: datetime
    created_by: str
    expires_at: datetime
    started_at: datetime | None = None
    finalizing_at: datetime | None = None
    cancelling_at: datetime | None = None
    finished_at: datetime | None = None
    served_at: datetime | None = None
    num_lines: int = 0
    num_completed: int = 0
    num_failed: int = 0
    errors: Sequence[Mapping[str, Any]] | None = None
    output_file_id: str | None = None
    error_file_id: str | None = None
    holder: str | None = None
    lease_expires_at: datetime | None = None
    attempts: int = 0

    @property
    def num_done(self) -> int:
        """The lines that have results."""
        return self.num_completed + self.num_failed


@dataclass(frozen=True)
class BatchPart:
    """The results of the lines of a batch from `first_line` on, one after the other. The blob has a line of JSON for
    each, the `num_completed` answers before the `num_failed` errors."""

    first_line: int
    digest: str
    size_bytes: int
    num_completed: int
    num_failed: int
