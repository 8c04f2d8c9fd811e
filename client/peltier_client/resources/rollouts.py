"""Requests about guarded changes of aliases, and feedback to answers."""

from collections.abc import Sequence
from typing import TypedDict, Unpack

import httpx2

from peltier_client.errors import UnexpectedAnswer
from peltier_client.exchange.request import Request, read_body, reader, to_json
from peltier_client.protocol.names import check_alias, check_name
from peltier_client.protocol.rollouts import (
    AtEnd,
    Feedback,
    FeedbackRequest,
    GuardedAlias,
    GuardedAliasRequest,
    Rollout,
)


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


def start_rollout(name: str, alias: str, candidate: int, guard: GuardOptions) -> Request[Rollout]:
    asked = to_json(GuardedAliasRequest, {"candidate": candidate, "guard": guard})
    return Request("PUT", _path(name, alias), _read, json=asked)


def get_rollout(name: str, alias: str) -> Request[Rollout | None]:
    return Request("GET", _path(name, alias), lambda response: read_body(response, GuardedAlias).rollout)


def stop_rollout(name: str, alias: str) -> Request[Rollout]:
    return Request("POST", f"{_path(name, alias)}/stop", _read)


def give_feedback(request_id: str, **known: Unpack[FeedbackOptions]) -> Request[Feedback]:
    label = known.get("label")
    own = {**known, "request_id": request_id} | ({} if label is None or isinstance(label, str) else {"label": [*label]})
    return Request("POST", "/v1/feedback", reader(Feedback), json=to_json(FeedbackRequest, own))


def _read(response: httpx2.Response) -> Rollout:
    rollout = read_body(response, GuardedAlias).rollout
    if rollout is None:
        raise UnexpectedAnswer("the server's answer has no guarded change: is it an older server?")
    return rollout


def _path(name: str, alias: str) -> str:
    return f"/v1/adapters/{check_name(name)}/aliases/{check_alias(alias)}"
