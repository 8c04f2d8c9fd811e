"""Aliases: names for versions, changed and rolled back in one step; and feedback for their guarded changes."""

from fastapi import Response
from peltier_client.errors import (
    AdapterNotFound,
    AnswerNotFound,
    Conflict,
    Unavailable,
    VersionNotFound,
)
from peltier_client.protocol import (
    Alias,
    AliasChange,
    AliasHistory,
    AliasList,
    AliasRequest,
    Feedback,
    FeedbackRequest,
    check_alias,
)
from peltier_store.registry import AliasHistoryEntry, AliasRecord, StoredRollout

from peltier_server.errors import scoped_errors
from peltier_server.http.application import Accepted, Changing, Context, Threads
from peltier_server.http.list_pages import ListPage, answer_page
from peltier_server.http.scoped_route import scoped_router
from peltier_server.rollouts.rollouts import rollout_on_the_wire

_SHARED = (AdapterNotFound,)
_OF_CHANGES = (*_SHARED, VersionNotFound, Unavailable)
_OF_FEEDBACK = (Unavailable, AnswerNotFound, AdapterNotFound, Conflict)

_PREFIX = "/v1/adapters/{name}/aliases"

# A caller who may predict may read aliases. A caller who may publish may change them.
router = scoped_router("predict", "aliases", _PREFIX)
changes = scoped_router("publish", "aliases", _PREFIX)
# A caller who may predict may also tell the right answers.
feedback = scoped_router("predict", "feedback", "/v1/feedback")


@router.get("", responses=scoped_errors(*_SHARED))
async def list_aliases(name: str, context: Context, service: Accepted) -> AliasList:
    """Every alias of an adapter, in order of name."""
    published = service.catalog.get(context.tenant, name)
    return AliasList(aliases=[_on_the_wire(alias) for _, alias in sorted(published.aliases.items())])


@router.get(
    "/{alias}/history",
    response_model=AliasHistory,
    responses=scoped_errors(*_SHARED, VersionNotFound, Unavailable),
)
async def alias_history(name: str, alias: str, context: Context, service: Accepted, threads: Threads) -> Response:
    """What an alias has meant, newest first, and who said so; no versions where it was deleted."""
    service.catalog.get(context.tenant, name)
    changes = await service.store.registry.alias_history(context.tenant, name, check_alias(alias))
    page = ListPage("changes", changes, len(changes), _change_on_the_wire, lambda _: {})
    return await answer_page(threads, context, page)


def _change_on_the_wire(change: AliasHistoryEntry) -> AliasChange:
    return AliasChange(versions=dict(change.split or {}), created_at=change.created_at, created_by=change.created_by)


@router.get("/{alias}", responses=scoped_errors(*_SHARED, VersionNotFound, Unavailable))
async def get_alias(name: str, alias: str, context: Context, service: Accepted) -> Alias:
    """One alias, with its newest guarded change: what is counted, the evidence, and the decision."""
    published = service.catalog.get(context.tenant, name)
    if check_alias(alias) not in published.aliases:
        raise VersionNotFound(f"adapter {name!r} has no alias {alias!r}")
    rollout = await service.rollouts.find(context.tenant, name, alias)
    # A decision may have changed the alias meanwhile.
    current = service.catalog.get(context.tenant, name).aliases.get(alias, published.aliases[alias])
    return _on_the_wire(current, rollout)


@changes.put("/{alias}", responses=scoped_errors(*_OF_CHANGES, Conflict))
async def set_alias(name: str, alias: str, body: AliasRequest, context: Context, service: Changing) -> Alias:
    """Make an alias mean a version, or several with the share of requests that each gets, in one step; or begin a
    guarded change to a candidate, which the server promotes or rolls back.

    Every request that arrives after the answer follows it; those under way keep the version that they began with.
    """
    if body.candidate is not None and body.guard is not None:
        started = await service.rollouts.start(context.caller, name, check_alias(alias), body.candidate, body.guard)
        return _on_the_wire(started, started.rollout)
    return _on_the_wire(await service.version_admin.set_alias(context.caller, name, check_alias(alias), body.split))


@changes.post("/{alias}/rollback", responses=scoped_errors(*_OF_CHANGES, Conflict))
async def rollback_alias(name: str, alias: str, context: Context, service: Changing) -> Alias:
    """Make an alias mean what it meant before; again, and it goes one more step back."""
    return _on_the_wire(await service.version_admin.roll_back(context.caller, name, check_alias(alias)))


@changes.post("/{alias}/stop", responses=scoped_errors(*_OF_CHANGES, Conflict))
async def stop_rollout(name: str, alias: str, context: Context, service: Changing) -> Alias:
    """End the guarded change of an alias; the version that the alias meant before answers every request."""
    stopped = await service.rollouts.stop(context.caller, name, check_alias(alias))
    return _on_the_wire(stopped, stopped.rollout)


@changes.delete("/{alias}", status_code=204, response_class=Response, responses=scoped_errors(*_OF_CHANGES))
async def delete_alias(name: str, alias: str, context: Context, service: Changing) -> None:
    """Make an alias mean nothing; a rollback brings it back."""
    await service.version_admin.delete_alias(context.caller, name, check_alias(alias))


@feedback.post("", responses=scoped_errors(*_OF_FEEDBACK))
async def give_feedback(body: FeedbackRequest, context: Context, service: Changing) -> Feedback:
    """Tell the right answer to a row of a request that an alias with a guarded change has answered. Any replica takes
    it, once for each row."""
    return await service.rollouts.judge(context.tenant, body)


def _on_the_wire(alias: AliasRecord, rollout: StoredRollout | None = None) -> Alias:
    return Alias(
        alias=alias.alias,
        versions=dict(alias.split),
        created_at=alias.created_at,
        created_by=alias.created_by,
        rollout=None if rollout is None else rollout_on_the_wire(rollout),
    )
