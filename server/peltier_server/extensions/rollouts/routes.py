"""The routes of aliases that may have guarded changes, in place of the core's; and feedback for these."""

from typing import Annotated

from peltier_client.errors import AdapterNotFound, AnswerNotFound, Conflict, Unavailable, VersionNotFound
from peltier_client.protocol.names import check_alias
from peltier_client.protocol.rollouts import Feedback, FeedbackRequest, GuardedAlias, GuardedAliasRequest
from peltier_store.registry.extensions.rollout_records import StoredRollout
from peltier_store.registry.records import AliasRecord

from peltier_server.errors import scoped_errors
from peltier_server.extensions.rollouts.rollouts import Rollouts, rollout_on_the_wire
from peltier_server.http.application import Accepted, Changing, Context, at_once, started
from peltier_server.http.scoped_route import scoped_router

_SHARED = (AdapterNotFound, VersionNotFound, Unavailable)
_PREFIX = "/v1/adapters/{name}/aliases"

router = scoped_router("predict", "aliases", _PREFIX)
changes = scoped_router("publish", "aliases", _PREFIX)
# A caller who may predict may also tell the right answers.
feedback = scoped_router("predict", "feedback", "/v1/feedback")

# After the service, which the server may not have yet.
Guarding = Annotated[Rollouts, at_once(lambda request: started(request, Rollouts))]


@router.get("/{alias}", responses=scoped_errors(*_SHARED))
async def get_alias(name: str, alias: str, context: Context, service: Accepted, rollouts: Guarding) -> GuardedAlias:
    """One alias, with its newest guarded change: what is counted, the evidence, and the decision."""
    published = service.catalog.get(context.tenant, name)
    if check_alias(alias) not in published.aliases:
        raise VersionNotFound(f"adapter {name!r} has no alias {alias!r}")
    rollout = await rollouts.find(context.tenant, name, alias)
    # A decision may have changed the alias meanwhile.
    current = service.catalog.get(context.tenant, name).aliases.get(alias, published.aliases[alias])
    return _on_the_wire(current, rollout)


@changes.put("/{alias}", responses=scoped_errors(*_SHARED, Conflict))
async def set_alias(  # noqa: PLR0913 - each is a part of the request or of the server
    name: str, alias: str, body: GuardedAliasRequest, context: Context, service: Changing, rollouts: Guarding
) -> GuardedAlias:
    """Make an alias mean a version, or several with the share of requests that each gets, in one step; or begin a
    guarded change to a candidate, which the server promotes or rolls back.

    Every request that arrives after the answer follows it; those under way keep the version that they began with.
    """
    if body.candidate is not None and body.guard is not None:
        return _on_the_wire(*await rollouts.start(context.caller, name, check_alias(alias), body.candidate, body.guard))
    return _on_the_wire(await service.version_admin.set_alias(context.caller, name, check_alias(alias), body.split))


@changes.post("/{alias}/stop", responses=scoped_errors(*_SHARED, Conflict))
async def stop_rollout(name: str, alias: str, context: Context, _: Changing, rollouts: Guarding) -> GuardedAlias:
    """End the guarded change of an alias; the version that the alias meant before answers every request."""
    return _on_the_wire(*await rollouts.stop(context.caller, name, check_alias(alias)))


@feedback.post("", responses=scoped_errors(Unavailable, AnswerNotFound, AdapterNotFound, Conflict))
async def give_feedback(body: FeedbackRequest, context: Context, _: Changing, rollouts: Guarding) -> Feedback:
    """Tell the right answer to a row of a request that an alias with a guarded change has answered. Any replica takes
    it, once for each row."""
    return await rollouts.judge(context.tenant, body)


def _on_the_wire(alias: AliasRecord, rollout: StoredRollout | None = None) -> GuardedAlias:
    return GuardedAlias(
        alias=alias.alias,
        versions=dict(alias.split),
        created_at=alias.created_at,
        created_by=alias.created_by,
        rollout=None if rollout is None else rollout_on_the_wire(rollout),
    )
