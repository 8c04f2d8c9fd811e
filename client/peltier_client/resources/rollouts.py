"""The options of guarded changes of aliases and of feedback to answers."""

from collections.abc import Sequence
from typing import TypedDict

import httpx2

from peltier_client.errors import UnexpectedAnswer
from peltier_client.exchange.request import read_body, to_json
from peltier_client.protocol.rollouts import AtEnd, FeedbackRequest, GuardedAlias, Rollout


class GuardOptions(TypedDict, total=False):
    """How a candidate is tried and decided, as keyword arguments; either `share` or `shadow`. See
    `peltier_client.protocol.rollouts.RolloutGuard`."""

    share: float | None
    shadow: bool
    alpha: float
    margin: float
    max_hours: float
    at_end: AtEnd


class FeedbackOptions(TypedDict, total=False):
    """What is known of a row: the right label, or whether the answer was right; exactly one of them."""

    row: int
    label: str | Sequence[str]
    right: bool


def feedback_body(request_id: str, known: FeedbackOptions) -> bytes:
    """The body of a feedback."""
    label = known.get("label")
    own = {**known, "request_id": request_id} | ({} if label is None or isinstance(label, str) else {"label": [*label]})
    return to_json(FeedbackRequest, own)


def read_rollout(response: httpx2.Response) -> Rollout:
    """The guarded change that a server has begun or ended."""
    rollout = read_body(response, GuardedAlias).rollout
    if rollout is None:
        raise UnexpectedAnswer("the server's answer has no guarded change: is it an older server?")
    return rollout
