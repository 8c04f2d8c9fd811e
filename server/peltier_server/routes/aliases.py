"""Aliases: names for versions, changed and rolled back in one step."""

from fastapi import Response
from peltier_client.errors import AdapterNotFound, Conflict, Unavailable, VersionNotFound
from peltier_client.protocol.aliases import Alias, AliasHistory, AliasList, AliasRequest
from peltier_client.protocol.names import check_alias
from peltier_store.registry.records import AliasRecord

from peltier_server.errors import scoped_errors
from peltier_server.http.application import Accepted, Changing, Context, Threads
from peltier_server.http.list_pages import ListPage, answer_page
from peltier_server.http.scoped_route import scoped_router

_OF_ONE = scoped_errors(AdapterNotFound, VersionNotFound, Unavailable)
_OF_CHANGES = scoped_errors(AdapterNotFound, VersionNotFound, Unavailable, Conflict)

_PREFIX = "/v1/adapters/{name}/aliases"

# A caller who may predict may read aliases. A caller who may publish may change them.
router = scoped_router("predict", "aliases", _PREFIX)
changes = scoped_router("publish", "aliases", _PREFIX)


@router.get("", responses=scoped_errors(AdapterNotFound))
async def list_aliases(name: str, context: Context, service: Accepted) -> AliasList:
    """Every alias of an adapter, in order of name."""
    published = service.catalog.get(context.tenant, name)
    return AliasList(aliases=[_on_the_wire(alias) for _, alias in sorted(published.aliases.items())])


@router.get("/{alias}/history", response_model=AliasHistory, responses=_OF_ONE)
async def alias_history(name: str, alias: str, context: Context, service: Accepted, threads: Threads) -> Response:
    """What an alias has meant, newest first, and who said so; no versions where it was deleted."""
    service.catalog.get(context.tenant, name)
    changes = await service.store.registry.alias_history(context.tenant, name, check_alias(alias))
    page = ListPage("changes", changes, len(changes), lambda one: one, lambda _: {})
    return await answer_page(threads, context, page)


@router.get("/{alias}", responses=_OF_ONE)
async def get_alias(name: str, alias: str, context: Context, service: Accepted) -> Alias:
    """One alias: the versions that it means, each with its share of requests."""
    published = service.catalog.get(context.tenant, name)
    if check_alias(alias) not in published.aliases:
        raise VersionNotFound(f"adapter {name!r} has no alias {alias!r}")
    return _on_the_wire(published.aliases[alias])


@changes.put("/{alias}", responses=_OF_CHANGES)
async def set_alias(name: str, alias: str, body: AliasRequest, context: Context, service: Changing) -> Alias:
    """Make an alias mean a version, or several with the share of requests that each gets, in one step.

    Every request that arrives after the answer follows it; those under way keep the version that they began with.
    """
    return _on_the_wire(await service.version_admin.set_alias(context.caller, name, check_alias(alias), body.split))


@changes.post("/{alias}/rollback", responses=_OF_CHANGES)
async def rollback_alias(name: str, alias: str, context: Context, service: Changing) -> Alias:
    """Make an alias mean what it meant before; again, and it goes one more step back."""
    return _on_the_wire(await service.version_admin.roll_back(context.caller, name, check_alias(alias)))


@changes.delete("/{alias}", status_code=204, response_class=Response, responses=_OF_ONE)
async def delete_alias(name: str, alias: str, context: Context, service: Changing) -> None:
    """Make an alias mean nothing; a rollback brings it back."""
    await service.version_admin.delete_alias(context.caller, name, check_alias(alias))


def _on_the_wire(alias: AliasRecord) -> Alias:
    return Alias(
        alias=alias.alias, versions=dict(alias.split), created_at=alias.created_at, created_by=alias.created_by
    )
