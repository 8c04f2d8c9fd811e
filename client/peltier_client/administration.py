"""What operators ask: keys, tenants and their quotas."""

from collections.abc import Iterable
from datetime import datetime
from typing import TypedDict
from urllib.parse import quote

from peltier_client.exchange import Request, page_query, raise_for_error, reader, to_json
from peltier_client.protocol import (
    KeyList,
    KeyRequest,
    NewKey,
    TenantInfo,
    TenantList,
    TenantQuotas,
    TenantRequest,
    check_name,
)


class KeyOptions(TypedDict, total=False):
    """What else a key may have. See `peltier_client.protocol.KeyRequest`."""

    tenant: str
    note: str
    expires_at: datetime | None


class QuotaOptions(TypedDict, total=False):
    """A tenant's quotas, as keyword arguments. See `peltier_client.protocol.TenantQuotas`."""

    requests_per_second: float | None
    tokens_per_second: float | None
    max_concurrent_requests: int | None
    max_stored_bytes: int | None
    max_adapters: int | None
    weight: float


def create_key(scopes: Iterable[str], options: KeyOptions) -> Request[NewKey]:
    """A key to be made."""
    json = to_json(KeyRequest, {"scopes": sorted(set(scopes)), **options})
    return Request("POST", "/v1/keys", reader(NewKey), json=json)


def keys(tenant: str | None, cursor: str | None = None) -> Request[KeyList]:
    """The page of keys, or of those of one tenant, that `cursor` points to, the first for None."""
    own = {"tenant": check_name(tenant, "tenant")} if tenant is not None else {}
    return Request("GET", "/v1/keys", reader(KeyList), query=page_query(cursor) | own)


def revoke_key(prefix: str) -> Request[None]:
    """A key whose rights are to end."""
    return Request("DELETE", f"/v1/keys/{quote(prefix, safe='')}", raise_for_error)


def create_tenant(name: str, quotas: QuotaOptions) -> Request[TenantInfo]:
    """A tenant to be made."""
    return Request(
        "POST", "/v1/tenants", reader(TenantInfo), json=to_json(TenantRequest, {"name": name, "quotas": quotas})
    )


def tenants(cursor: str | None = None) -> Request[TenantList]:
    """The page of tenants that `cursor` points to, the first for None."""
    return Request("GET", "/v1/tenants", reader(TenantList), query=page_query(cursor))


def tenant(name: str) -> Request[TenantInfo]:
    """One tenant."""
    return Request("GET", f"/v1/tenants/{check_name(name, 'tenant')}", reader(TenantInfo))


def set_tenant(name: str, quotas: QuotaOptions) -> Request[TenantInfo]:
    """All quotas of a tenant."""
    json = to_json(TenantQuotas, quotas)
    return Request("PUT", f"/v1/tenants/{check_name(name, 'tenant')}", reader(TenantInfo), json=json)
