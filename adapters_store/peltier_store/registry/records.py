"""The registry's records, which are frozen values read in one transaction, and the rules for their names and texts."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from peltier_adapters.artifact.manifest import NAME_PATTERN

from peltier_store.registry.errors import InvalidRecord

# Scopes are independent of each other: a key has one or more.
SCOPES = frozenset({"predict", "publish", "train", "admin", "metrics"})
# The states of a training. The last three are final.
FINAL_STATES = ("succeeded", "failed", "cancelled")
STATES = ("queued", "running", "paused", "evaluating", "publishing", *FINAL_STATES)
# The states of a batch. The last four are final.
ENDED_BATCHES = ("completed", "failed", "cancelled", "expired")
BATCH_STATES = ("validating", "in_progress", "finalizing", "cancelling", *ENDED_BATCHES)
# The states of a rollout; only the first is not final.
ROLLOUT_STATES = ("running", "promoted", "rolled_back", "stopped")
# The kinds of a training's events.
EVENTS = ("state", "preflight", "progress", "checkpoint", "message")
# Bounds of a tenant's weight.
MIN_WEIGHT, MAX_WEIGHT = 0.01, 100.0


@dataclass(frozen=True)
class VersionRecord:
    """One published version of a tenant's adapter. Its number, bytes and manifest never change; its marks may.

    A version with `deleted_at` cannot be used, but it can be undeleted. A snapshot may leave `manifest` empty.
    """

    tenant: str
    name: str
    number: int
    digest: str
    size_bytes: int
    preset: str
    manifest: str
    created_at: datetime
    created_by: str = ""
    deprecated_at: datetime | None = None
    deprecation: str | None = None
    deleted_at: datetime | None = None


@dataclass(frozen=True)
class StoredRollout:
    """A guarded change of an alias from the version `incumbent` to the version `candidate`.

    The candidate answers `share` of the alias's requests; without a share it shadows. `guard` has the bounds of the
    decision, `counts` what all replicas have counted. `state` is one of `ROLLOUT_STATES`; `reason`
    says why it ended, and `numbers` has what the decision was made by.
    """

    id: str
    tenant: str
    name: str
    alias: str
    incumbent: int
    candidate: int
    share: float | None
    guard: Mapping[str, Any]
    counts: Mapping[str, Any]
    state: str
    started_at: datetime
    started_by: str
    ends_at: datetime
    ended_at: datetime | None = None
    reason: str | None = None
    numbers: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class StoredAnswer:
    """What a version of the adapter `name` answered to a row of a request, in a rollout if one was in progress. The
    name is None for a rollout's answer of an earlier release. `answer` is a label, or a digest of a text, and
    `shadow` that of a candidate which shadows. `text_hash` is a digest of the input. `was_right` is its feedback."""

    tenant: str
    request_id: str
    row: int
    name: str | None
    rollout_id: str | None
    version: int
    answer: str
    shadow: str | None
    text_hash: str
    answered_at: datetime
    was_right: bool | None = None


@dataclass(frozen=True)
class AliasRecord:
    """A name for one version, or for several with the share of requests that each gets; the shares sum to 1. `rollout`
    is the guarded change in progress."""

    alias: str
    split: Mapping[int, float]
    created_at: datetime
    created_by: str
    rollout: StoredRollout | None = None


@dataclass(frozen=True)
class AliasHistoryEntry:
    """One entry of an alias's history. A split of None is a deletion. `id` grows with time."""

    id: int
    split: Mapping[int, float] | None
    created_at: datetime
    created_by: str


@dataclass(frozen=True)
class Pin:
    """Every replica keeps the versions that answer the adapter's bare name on its device."""

    pinned_at: datetime
    pinned_by: str


@dataclass(frozen=True)
class AdapterRecord:
    """One adapter with its aliases and every version that is not purged, by number."""

    tenant: str
    name: str
    is_public: bool
    versions: tuple[VersionRecord, ...]
    aliases: tuple[AliasRecord, ...]
    pin: Pin | None = None


@dataclass(frozen=True)
class Quotas:
    """A tenant's limits; None is no limit. `weight` is its share of a busy server, relative to other tenants.

    `max_trainings` counts those that have not ended, and `max_training_rows` the examples of one training.
    """

    requests_per_second: float | None = None
    tokens_per_second: float | None = None
    max_concurrent_requests: int | None = None
    max_stored_bytes: int | None = None
    max_adapters: int | None = None
    max_trainings: int | None = None
    max_training_rows: int | None = None
    max_training_minutes_per_day: float | None = None
    weight: float = 1.0


@dataclass(frozen=True)
class Key:
    """An API key without its secret. `digest` is the HMAC of the whole key."""

    prefix: str
    tenant: str
    digest: str = field(repr=False)
    scopes: frozenset[str]
    note: str
    created_at: datetime
    created_by: str
    expires_at: datetime | None
    revoked_at: datetime | None


@dataclass(frozen=True)
class TenantRecord:
    """An owner of adapters and keys, with quotas."""

    name: str
    created_at: datetime
    quotas: Quotas


@dataclass(frozen=True)
class AuditEntry:
    """One action of an `actor`. `subject` names its object (`sst2@3`). `id` grows with time."""

    id: int
    at: datetime
    tenant: str
    actor: str
    action: str
    subject: str
    detail: Mapping[str, object]


@dataclass(frozen=True)
class AuditFilter:
    """The wanted entries of the audit log; None is every value. `since` is included, `until` is not."""

    tenant: str | None = None
    actor: str | None = None
    action: str | None = None
    since: datetime | None = None
    until: datetime | None = None


@dataclass(frozen=True)
class QuotaUsage:
    """What counts for a tenant's quotas in the registry: adapters with a live version, and bytes of versions that are
    not purged and of their reports, of files, and of what trainings keep; trainings that have not ended, and the
    minutes of workers in the last 24 hours, in whole hours."""

    num_adapters: int
    stored_bytes: int
    num_trainings: int
    training_minutes: float


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
class TrainingDraft:
    """A training to be created. `request` is what the caller sent without its examples, which are in the files. With
    `owns_files` they are deleted with the training."""

    task: str
    request: Mapping[str, Any]
    train_file_id: str
    validation_file_id: str | None = None
    keep_examples: bool = False
    owns_files: bool = False


@dataclass(frozen=True)
class IdempotencyKey:
    """A key that a caller has chosen for a request, to repeat it, and the digest of the request."""

    key: str
    digest: str


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


@dataclass(frozen=True)
class Reservation:
    """A claim on bytes that an upload will publish: collectors keep them until `expires_at`."""

    token: str
    digest: str
    expires_at: datetime


@dataclass(frozen=True)
class NewFile:
    """Stored, reserved bytes that become a file."""

    reservation: Reservation
    name: str
    size_bytes: int
    num_rows: int


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
class Position:
    """A state of the registry: the number of its last change, and the random id of the last change up to it that has
    one. Only changes by servers of a release without ids have none.

    After a crash, a failover or a restore the database may reach the same number by another change. So it still has
    everything that was read at a position only if it is at that number or later, and has that id there.
    """

    revision: int
    change_id: str


@dataclass(frozen=True)
class RegistrySnapshot:
    """Every adapter, tenant and key that changed since an earlier position, complete, as of `position`.

    With `is_whole` there are no others.
    """

    position: Position
    adapters: tuple[AdapterRecord, ...]
    tenants: tuple[TenantRecord, ...]
    keys: tuple[Key, ...] = ()
    is_whole: bool = False


def check_name(kind: str, name: str) -> None:
    """Raises InvalidRecord unless `name` is a valid name of a tenant or an alias; `kind` says which."""
    if re.fullmatch(NAME_PATTERN, name) is None:
        raise InvalidRecord(
            f"the {kind} {name!r} is invalid: it must have at most 63 lower-case letters, digits, '.', '_' or '-', and "
            "begin with a letter or digit"
        )


def check_text(kind: str, text: str) -> None:
    """Raises InvalidRecord for text that one of the databases cannot store."""
    if re.search("[\0\ud800-\udfff]", text) is not None:
        raise InvalidRecord(f"the {kind} {text!r} contains a zero byte or a lone surrogate")
