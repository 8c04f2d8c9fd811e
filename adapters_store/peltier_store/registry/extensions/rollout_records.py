"""Records of guarded changes, and of the answers that wait for feedback."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from peltier_store.registry.errors import NotRegistered
from peltier_store.registry.records import AliasRecord

# Only the first is not final.
ROLLOUT_STATES = ("running", "promoted", "rolled_back", "stopped")


class AnswerUnknown(NotRegistered):
    """No answer to the tenant is recorded for this request and row."""


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


class GuardedAlias(NamedTuple):
    """An alias with its newest guarded change."""

    alias: AliasRecord
    rollout: StoredRollout


@dataclass(frozen=True)
class StoredAnswer:
    """What a version of the adapter `name` answered to a row of a request, in a rollout if one was in progress.
    `answer` is a label, or a digest of a text, and `shadow` that of a candidate which shadows. `text_hash` is a digest
    of the input. `was_right` is its feedback."""

    tenant: str
    request_id: str
    row: int
    name: str
    rollout_id: str | None
    version: int
    answer: str
    shadow: str | None
    text_hash: str
    answered_at: datetime
    was_right: bool | None = None


@dataclass(frozen=True)
class Report:
    """What a replica has counted of each rollout, by id, and answers that it gave. `number` grows with each report of
    the replica."""

    replica: str
    number: int
    counts: Mapping[str, Mapping[str, Any]]
    answers: Sequence[StoredAnswer]


class Retention(NamedTuple):
    """How long answers are kept, and how many of a tenant."""

    duration: timedelta
    max_answers: int


class Judgement(NamedTuple):
    """What the caller knows about a row: the right answer, or only whether the given one is right."""

    right_answer: str | None
    is_right: bool | None
