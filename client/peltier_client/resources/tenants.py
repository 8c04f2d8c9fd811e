"""Requests about tenants and their quotas."""

from typing import TypedDict

from peltier_client.exchange.request import Request, page_query, reader, to_json
from peltier_client.protocol import TenantInfo, TenantList, TenantQuotas, TenantRequest, TenantUsage, check_name


class QuotaOptions(TypedDict, total=False):
    """A tenant's quotas, as keyword arguments. See `peltier_client.protocol.TenantQuotas`."""

    requests_per_second: float | None
    tokens_per_second: float | None
    max_concurrent_requests: int | None
    max_stored_bytes: int | None
    max_adapters: int | None
    weight: float


def create_tenant(name: str, quotas: QuotaOptions) -> Request[TenantInfo]:
    """Create a tenant."""
    return Request(
        "POST", "/v1/tenants", reader(TenantInfo), json=to_json(TenantRequest, {"name": name, "quotas": quotas})
    )


def list_tenants(cursor: str | None = None) -> Request[TenantList]:
    """The page of tenants at `cursor`; None is the first."""
    return Request("GET", "/v1/tenants", reader(TenantList), query=page_query(cursor))


def get_tenant(name: str) -> Request[TenantInfo]:
    """One tenant."""
    return Request("GET", f"/v1/tenants/{check_name(name, 'tenant')}", reader(TenantInfo))


def get_usage(name: str) -> Request[TenantUsage]:
    """What a tenant uses of its quotas now."""
    return Request("GET", f"/v1/tenants/{check_name(name, 'tenant')}/usage", reader(TenantUsage))


def set_tenant(name: str, quotas: QuotaOptions) -> Request[TenantInfo]:
    """Replace all quotas of a tenant."""
    json = to_json(TenantQuotas, quotas)
    return Request("PUT", f"/v1/tenants/{check_name(name, 'tenant')}", reader(TenantInfo), json=json)
