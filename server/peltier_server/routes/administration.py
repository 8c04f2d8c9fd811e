"""Tenants with their quotas, API keys, and the audit log: who changed what. For the operator of the whole server."""

from typing import Annotated, Any

from fastapi import Query, Request, Response
from peltier_client.errors import Conflict, InvalidInput, NotFound, Unavailable
from peltier_client.protocol.administration import (
    AuditPage,
    KeyInfo,
    KeyList,
    KeyRequest,
    NewKey,
    RateUsage,
    TenantInfo,
    TenantList,
    TenantQuotas,
    TenantRequest,
    TenantUsage,
)
from peltier_client.protocol.names import NAME_PATTERN
from peltier_store.registry.records import AuditFilter, Key
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from peltier_server.auth.keyring import LOCAL, metrics_problem
from peltier_server.errors import operator_errors
from peltier_server.http.application import (
    MAX_PAGE,
    Accepted,
    Changing,
    Context,
    Keys,
    Limit,
    NameCursor,
    Threads,
    state_of,
)
from peltier_server.http.list_pages import ListPage, answer_page, by_cursor
from peltier_server.http.scoped_route import scoped_router
from peltier_server.quotas.rates import Left

# Of an actor, `key:` and the prefix of a key or the subject of a token; no action is longer.
_MAX_WORD_LEN = 320
_PLAIN = r"^[^\x00]+$"

OfTenant = Annotated[str | None, Query(max_length=64, description="Only keys of this tenant.")]
Word = Annotated[str, Field(pattern=_PLAIN, max_length=_MAX_WORD_LEN)]

tenants = scoped_router("admin", "tenants", "/v1/tenants")
keys = scoped_router("admin", "keys", "/v1/keys")
audit = scoped_router("admin", "operations", "/v1/audit")


@tenants.get("", response_model=TenantList, responses=operator_errors())
async def list_tenants(  # noqa: PLR0913 - each is a query parameter
    context: Context,
    keyring: Keys,
    service: Accepted,
    threads: Threads,
    limit: Limit = 100,
    cursor: NameCursor = "",
) -> Response:
    """The tenants in order of name, with their quotas, a page at a time."""
    found = keyring.tenants(after=cursor, limit=limit + 1)
    page = ListPage("tenants", found, limit, lambda one: one, by_cursor(lambda one: one.name))
    return await answer_page(threads, context, page)


@tenants.post("", status_code=201, responses=operator_errors(Conflict))
async def create_tenant(body: TenantRequest, context: Context, service: Changing) -> TenantInfo:
    """Make a tenant, whose keys and adapters are its own."""
    tenant = await service.store.registry.create_tenant(body.name, body.quotas, actor=context.caller.actor)
    await service.store.sync.sync_after_write()
    return tenant


@tenants.get("/{tenant}", responses=operator_errors(NotFound))
async def get_tenant(tenant: str, keyring: Keys, service: Accepted) -> TenantInfo:
    """One tenant with its quotas."""
    return keyring.tenant(tenant)


@tenants.get("/{tenant}/usage", responses=operator_errors(NotFound, Unavailable))
async def get_usage(tenant: str, request: Request, keyring: Keys, service: Accepted) -> TenantUsage:
    """What a tenant uses of its quotas now. The rates are those of this replica, or of all if they count together."""
    keyring.tenant(tenant)
    enforcer = state_of(request).enforcer
    found, left = await service.store.registry.usage(tenant), await enforcer.left(tenant)
    return TenantUsage(
        requests=_usage(left.get("requests")),
        tokens=_usage(left.get("tokens")),
        concurrent_requests=enforcer.in_flight.get(tenant, 0),
        stored_bytes=found.stored_bytes,
        adapters=found.num_adapters,
        trainings=found.num_trainings,
        training_minutes=found.training_minutes,
    )


@tenants.put("/{tenant}", responses=operator_errors(NotFound))
async def set_tenant(tenant: str, body: TenantQuotas, context: Context, keyring: Keys, service: Changing) -> TenantInfo:
    """Replace all quotas of a tenant; what is left out is no longer limited. They hold within a second."""
    await service.store.registry.update_tenant(tenant, body, actor=context.caller.actor)
    await service.store.sync.sync_after_write()
    return keyring.tenant(tenant)


def _usage(left: Left | None) -> RateUsage | None:
    if left is None:
        return None
    return RateUsage(used=left.rate.amount - left.amount, limit=left.rate.amount, seconds=left.rate.seconds)


@keys.get("", response_model=KeyList, responses=operator_errors(NotFound))
async def list_keys(  # noqa: PLR0913 - each is a query parameter
    context: Context,
    keyring: Keys,
    service: Accepted,
    threads: Threads,
    tenant: OfTenant = None,
    limit: Limit = 100,
    cursor: NameCursor = "",
) -> Response:
    """The keys without their secrets, oldest first, a page at a time."""
    found = keyring.list_keys(tenant, after=cursor, limit=limit + 1)
    page = ListPage("keys", found, limit, lambda key: KeyInfo(**_key_fields(key)), by_cursor(lambda key: key.prefix))
    return await answer_page(threads, context, page)


@keys.post("", status_code=201, responses=operator_errors(NotFound, Conflict))
async def create_key(
    body: KeyRequest, response: Response, context: Context, keyring: Keys, service: Changing
) -> NewKey:
    """Make a key and show it, this once. With the first key of all, every call begins to need one."""
    if body.expires_at is not None and body.expires_at <= service.store.registry.now():
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
    return NewKey(**_key_fields(key), key=issued.text)


@keys.delete("/{prefix}", status_code=204, response_class=Response, responses=operator_errors(NotFound, Conflict))
async def revoke_key(prefix: str, request: Request, context: Context, keyring: Keys, service: Changing) -> None:
    """Take a key's rights for good: here at once, within a second on every replica."""
    if not state_of(request).authenticator.has_other_admins and keyring.is_last_admin(prefix):
        raise Conflict(f"key {prefix!r} is the last with the scope admin: make another before it is revoked")
    await service.store.registry.revoke_key(prefix, actor=context.caller.actor)
    await service.store.sync.sync_after_write()


def _key_fields(key: Key) -> dict[str, Any]:
    shown = {name: getattr(key, name) for name in KeyInfo.model_fields}
    return {**shown, "scopes": sorted(key.scopes)}


class AuditQuery(BaseModel):
    """The wanted page of the wanted records."""

    model_config = ConfigDict(extra="ignore")

    limit: int = Field(100, ge=1, le=MAX_PAGE, description="How many entries at most.")
    cursor: str = Field("", pattern="^[0-9]{0,18}$", description="`next_cursor` of the page before.")
    tenant: str | None = Field(None, pattern=f"^{NAME_PATTERN}$", description="Only what concerns this tenant.")
    actor: Word | None = Field(None, description="Only what this actor did, such as `key:abcdefgh`.")
    action: Word | None = Field(None, description="Only this action, such as `publish` or `revoke_key`.")
    since: AwareDatetime | None = Field(None, description="Only from this time on.")
    until: AwareDatetime | None = Field(None, description="Only before this time.")


@audit.get("", response_model=AuditPage, responses=operator_errors(Unavailable))
async def read_audit(
    context: Context, service: Accepted, threads: Threads, query: Annotated[AuditQuery, Query()]
) -> Response:
    """Every change of what is published, of aliases, tenants and keys, newest first; for operators."""
    before_id = int(query.cursor) if query.cursor else None
    wanted = AuditFilter(query.tenant, query.actor, query.action, query.since, query.until)
    entries = await service.store.registry.audit(wanted, limit=query.limit + 1, before_id=before_id)
    page = ListPage("records", entries, query.limit, lambda one: one, by_cursor(lambda one: one.id))
    return await answer_page(threads, context, page)
