"""Guarded changes of aliases and feedback, for asynchronous code."""

from typing import Unpack

from peltier_client.asynchronous.sender import AsyncSender
from peltier_client.exchange.request import Request, reader, to_json
from peltier_client.protocol.rollouts import Feedback, GuardedAlias, GuardedAliasRequest, Rollout
from peltier_client.resources.adapters import alias_path
from peltier_client.resources.rollouts import FeedbackOptions, GuardOptions, feedback_body, read_rollout


class AsyncRollouts:
    """What a client says about guarded changes, and to them."""

    _sender: AsyncSender

    async def start_rollout(self, name: str, alias: str, candidate: int, **guard: Unpack[GuardOptions]) -> Rollout:
        """Try a version beside the one that an alias means, with a `share` of its requests or as `shadow=True`; the
        server promotes it or rolls it back."""
        asked = to_json(GuardedAliasRequest, {"candidate": candidate, "guard": guard})
        return await self._sender.send(Request("PUT", alias_path(name, alias), read_rollout, json=asked))

    async def rollout(self, name: str, alias: str) -> Rollout | None:
        """The newest guarded change of an alias: its state, what was counted, and the evidence; None if it had none."""
        return (await self._sender.send(Request("GET", alias_path(name, alias), reader(GuardedAlias)))).rollout

    async def stop_rollout(self, name: str, alias: str) -> Rollout:
        """End the guarded change of an alias; the version that it meant before answers every request."""
        return await self._sender.send(Request("POST", f"{alias_path(name, alias)}/stop", read_rollout))

    async def feedback(self, request_id: str, **known: Unpack[FeedbackOptions]) -> Feedback:
        """Tell the right `label` of an answer's `row`, or whether it was `right`; `request_id` is that of the
        predictions. Raises `AnswerNotFound` for what no guarded change has answered, `Conflict` for a second time."""
        body = feedback_body(request_id, known)
        return await self._sender.send(Request("POST", "/v1/feedback", reader(Feedback), json=body))
