"""Tenants and their quotas, for the operator."""

from dataclasses import asdict

from fastapi import Request
from peltier_client.errors import (
    Conflict,
    Draining,
    Forbidden,
    InvalidInput,
    NotFound,
    NotReady,
    Unauthorized,
    Unavailable,
)
from peltier_client.protocol import RateUsage, TenantInfo, TenantList, TenantQuotas, TenantRequest, TenantUsage
from peltier_store.registry import Quotas, TenantRecord

from peltier_server.errors import describe_errors
from peltier_server.http.application import Accepted, Changing, Context, Keys, Limit, NameCursor
from peltier_server.http.scoped_route import scoped_router
from peltier_server.quotas.enforcer import QuotaEnforcer
from peltier_server.quotas.rates import Left

_SHARED = (Unauthorized, Forbidden, InvalidInput, NotReady, Draining)

router = scoped_router("admin", "tenants", "/v1/tenants")


@router.get("", responses=describe_errors(*_SHARED))
async def list_tenants(keyring: Keys, service: Accepted, limit: Limit = 100, cursor: NameCursor = "") -> TenantList:
    """The tenants in order of name, with their quotas, a page at a time."""
    found = keyring.tenants(after=cursor, limit=limit + 1)
    page = [_on_the_wire(tenant) for tenant in found[:limit]]
    return TenantList(tenants=page, next_cursor=page[-1].name if len(found) > limit else None)


@router.post("", status_code=201, responses=describe_errors(*_SHARED, Conflict))
async def create_tenant(body: TenantRequest, context: Context, service: Changing) -> TenantInfo:
    """Make a tenant, whose keys and adapters are its own."""
    quotas = Quotas(**body.quotas.model_dump())
    tenant = await service.store.registry.create_tenant(body.name, quotas, actor=context.caller.actor)
    await service.store.sync.sync_after_write()
    return _on_the_wire(tenant)


@router.get("/{tenant}", responses=describe_errors(*_SHARED, NotFound))
async def get_tenant(tenant: str, keyring: Keys, service: Accepted) -> TenantInfo:
    """One tenant with its quotas."""
    return _on_the_wire(keyring.tenant(tenant))


@router.get("/{tenant}/usage", responses=describe_errors(*_SHARED, NotFound, Unavailable))
async def get_usage(tenant: str, request: Request, keyring: Keys, service: Accepted) -> TenantUsage:
    """What a tenant uses of its quotas now. The rates are those of this replica, or of all if they count together."""
    keyring.tenant(tenant)
    enforcer: QuotaEnforcer = request.app.state.enforcer
    stored, left = await service.store.registry.usage(tenant), await enforcer.left(tenant)
    return TenantUsage(
        requests=_usage(left.get("requests")),
        tokens=_usage(left.get("tokens")),
        concurrent_requests=enforcer.in_flight.get(tenant, 0),
        stored_bytes=stored.stored_bytes,
        adapters=stored.num_adapters,
        pinned_adapters=stored.num_pinned,
    )


@router.put("/{tenant}", responses=describe_errors(*_SHARED, NotFound))
async def set_tenant(tenant: str, body: TenantQuotas, context: Context, keyring: Keys, service: Changing) -> TenantInfo:
    """Replace all quotas of a tenant; what is left out is no longer limited. They hold within a second."""
    await service.store.registry.update_tenant(tenant, Quotas(**body.model_dump()), actor=context.caller.actor)
    await service.store.sync.sync_after_write()
    return _on_the_wire(keyring.tenant(tenant))


def _on_the_wire(tenant: TenantRecord) -> TenantInfo:
    return TenantInfo(name=tenant.name, created_at=tenant.created_at, quotas=TenantQuotas(**asdict(tenant.quotas)))


def _usage(left: Left | None) -> RateUsage | None:
    if left is None:
        return None
    return RateUsage(used=left.rate.amount - left.amount, limit=left.rate.amount, seconds=left.rate.seconds)
