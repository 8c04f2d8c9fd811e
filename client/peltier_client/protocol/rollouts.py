"""Guarded changes of aliases on the wire, and the feedback that they are decided by."""

from datetime import datetime
from typing import Annotated, Any, Literal, Self

from pydantic import Field, StrictBool, StrictInt, model_validator

from peltier_client.protocol.aliases import Alias, AliasRequest
from peltier_client.protocol.names import MAX_VERSION
from peltier_client.protocol.predict import is_none, state_rule
from peltier_client.protocol.wire import RequestModel, ResponseModel

RolloutState = Literal["running", "promoted", "rolled_back", "stopped"]
AtEnd = Literal["promote", "roll_back"]
# The types of tasks whose answers are right or wrong. Guarded changes of others compare errors alone.
JUDGED_TYPES = ("classification", "multilabel", "text2text")
MAX_ROLLOUT_HOURS = 90 * 24
MAX_FEEDBACK_LABELS = 4096
MAX_FEEDBACK_CHARS = 65_536

Fraction = Annotated[float, Field(gt=0, lt=1, allow_inf_nan=False)]
_Label = Annotated[str, Field(max_length=MAX_FEEDBACK_CHARS)]
RightLabel = Annotated[
    _Label | Annotated[list[_Label], Field(max_length=MAX_FEEDBACK_LABELS)],
    state_rule(
        f"must be a label or a list of at most {MAX_FEEDBACK_LABELS} labels, each of at most {MAX_FEEDBACK_CHARS} "
        "characters"
    ),
]


class RolloutGuard(RequestModel):
    """How a candidate is tried, and what decides about it.

    It answers `share` of the alias's requests, or with `shadow` it answers none and is computed beside the incumbent. A
    candidate that is not worse is rolled back with probability `alpha` at most, and one whose accuracy is lower by
    `margin` or more is promoted with probability `alpha` at most. What is undecided after `max_hours` is decided by
    `at_end`.
    """

    share: Fraction | None = None
    shadow: StrictBool = False
    alpha: Annotated[float, Field(gt=0, le=0.5, allow_inf_nan=False)] = 0.05
    margin: Fraction = 0.02
    max_hours: Annotated[float, Field(gt=0, le=MAX_ROLLOUT_HOURS, allow_inf_nan=False)] = 72.0
    at_end: AtEnd = "roll_back"

    @model_validator(mode="after")
    def _check_mode(self) -> Self:
        if (self.share is None) != self.shadow:
            raise ValueError("a guard has either a share between 0 and 1, or shadow: true")
        return self


class Rollout(ResponseModel):
    """A guarded change of an alias. `evidence` grows with the data; a decision is made when one value reaches the one
    of the same name in `needed`. `reason` says why it ended. `counts` has what all replicas have counted."""

    id: str
    alias: str
    incumbent: int
    candidate: int
    share: float | None
    guard: dict[str, Any]
    state: RolloutState
    started_at: datetime
    started_by: str
    ends_at: datetime
    ended_at: datetime | None = None
    reason: str | None = None
    counts: dict[str, dict[str, int]] = Field(default_factory=dict)
    evidence: dict[str, float] = Field(default_factory=dict)
    needed: dict[str, float] = Field(default_factory=dict)


class GuardedAliasRequest(AliasRequest):
    """One version for an alias, or several with the share of requests that each gets; or a `candidate` that the server
    compares with the version that the alias means, and then promotes or rolls back, as its `guard` says.

    The shares are above 0 and sum to 1. The request's `x-request-id` decides which version answers.
    """

    candidate: Annotated[StrictInt, Field(ge=1, le=MAX_VERSION)] | None = None
    guard: RolloutGuard | None = None

    @model_validator(mode="after")
    def _one_of_all(self) -> Self:
        if sum(one is not None for one in (self.version, self.versions, self.candidate)) != 1:
            raise ValueError(
                'give one of {"version": 3}, {"versions": {"3": 0.9, "4": 0.1}} or {"candidate": 4, "guard": {…}}'
            )
        if (self.candidate is None) != (self.guard is None):
            raise ValueError("a candidate needs a guard, and a guard a candidate")
        return self


class GuardedAlias(Alias):
    """An alias, and its newest guarded change."""

    rollout: Annotated[Rollout | None, Field(exclude_if=is_none)] = None


class FeedbackRequest(RequestModel):
    """What is known about the answer to a row of an earlier request: the right `label` (of a multilabel task the list
    of labels, of one that generates texts the text), or whether the answer was `right`. `request_id` is the
    `x-request-id` of the answer, `row` the place of the input in the request."""

    request_id: Annotated[str, Field(min_length=1, max_length=128)]
    row: Annotated[StrictInt, Field(ge=0, lt=2**31)] = 0
    label: RightLabel | None = None
    right: StrictBool | None = None

    @model_validator(mode="after")
    def _check_one(self) -> Self:
        if (self.label is None) == (self.right is None):
            raise ValueError("feedback has the right label, or right: true or false; exactly one of them")
        return self


class Feedback(ResponseModel):
    """The version that answered the row, whether its answer was right, and the SHA-256 of the row's input as JSON, its
    first 32 digits. `counted` says whether a guarded change was still in progress, `state` how it is now; there is no
    state for an answer outside of guarded changes."""

    request_id: str
    row: int
    adapter: str
    version: int
    right: bool
    counted: bool
    state: Annotated[RolloutState | None, Field(exclude_if=is_none)] = None
    input_hash: str
