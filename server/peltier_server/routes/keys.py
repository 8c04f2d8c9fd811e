"""API keys: create, list and revoke them. Only the operator of the whole server may use these routes."""

from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import Query, Response
from peltier_client.errors import Conflict, Draining, Forbidden, InvalidInput, NotFound, NotReady, Unauthorized
from peltier_client.protocol import KeyInfo, KeyList, KeyRequest, NewKey
from peltier_store.registry import Key

from peltier_server.auth.keyring import LOCAL, metrics_problem
from peltier_server.errors import describe_errors
from peltier_server.http.application import Accepted, Changing, Context, Keys, Limit, NameCursor
from peltier_server.http.scoped_route import scoped_router

_SHARED = (Unauthorized, Forbidden, InvalidInput, NotReady, Draining)

OfTenant = Annotated[str | None, Query(max_length=64, description="Only keys of this tenant.")]

router = scoped_router("admin", "keys", "/v1/keys")


@router.get("", responses=describe_errors(*_SHARED, NotFound))
async def list_keys(
    keyring: Keys, service: Accepted, tenant: OfTenant = None, limit: Limit = 100, cursor: NameCursor = ""
) -> KeyList:
    """The keys without their secrets, oldest first, a page at a time."""
    found = keyring.list_keys(tenant, after=cursor, limit=limit + 1)
    page = [KeyInfo(**_fields(key)) for key in found[:limit]]
    return KeyList(keys=page, next_cursor=page[-1].prefix if len(found) > limit else None)


@router.post("", status_code=201, responses=describe_errors(*_SHARED, NotFound, Conflict))
async def create_key(
    body: KeyRequest, response: Response, context: Context, keyring: Keys, service: Changing
) -> NewKey:
    """Make a key and show it, this once. With the first key of all, every call begins to need one."""
    if body.expires_at is not None and body.expires_at <= datetime.now(UTC):
        raise InvalidInput(f"expires_at is {body.expires_at.isoformat()}: a key must have some time left")
    if context.caller == LOCAL and "admin" not in body.scopes:
        raise Conflict("the first key must have the scope admin: it shuts the server, and nobody could make another")
    if problem := metrics_problem(body.tenant, body.scopes):
        raise InvalidInput(problem)
    issued = keyring.credentials.issue()
    key = await service.store.registry.create_key(
        body.tenant,
        prefix=issued.prefix,
        digest=issued.digest,
        scopes=body.scopes,
        note=body.note,
        expires_at=body.expires_at,
        actor=context.caller.actor,
    )
    await service.store.sync.sync_after_write()
    response.headers["cache-control"] = "no-store"
    return NewKey(**_fields(key), key=issued.text)


@router.delete(
    "/{prefix}", status_code=204, response_class=Response, responses=describe_errors(*_SHARED, NotFound, Conflict)
)
async def revoke_key(prefix: str, context: Context, keyring: Keys, service: Changing) -> None:
    """Take a key's rights for good: here at once, within a second on every replica."""
    settings = service.settings
    if settings.auth.admin_key is None and settings.auth.oidc_issuer is None and keyring.is_last_admin(prefix):
        raise Conflict(f"key {prefix!r} is the last with the scope admin: make another before it is revoked")
    await service.store.registry.revoke_key(prefix, actor=context.caller.actor)
    await service.store.sync.sync_after_write()


def _fields(key: Key) -> dict[str, Any]:
    shown = {name: getattr(key, name) for name in KeyInfo.model_fields}
    return {**shown, "scopes": sorted(key.scopes)}
