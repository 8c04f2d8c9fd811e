"""Requests about tenants and their quotas, API keys, the audit log, and the server itself."""

from collections.abc import Iterable
from datetime import datetime
from typing import TypedDict
from urllib.parse import quote

import httpx2

from peltier_client.errors import InvalidInput, Unavailable
from peltier_client.exchange.request import Request, page_query, raise_for_error, read_body, reader, to_json
from peltier_client.protocol.administration import (
    AuditPage,
    KeyList,
    KeyRequest,
    NewKey,
    TenantInfo,
    TenantList,
    TenantQuotas,
    TenantRequest,
    TenantUsage,
)
from peltier_client.protocol.names import check_name
from peltier_client.protocol.operations import HealthResponse, InfoResponse, ReadyResponse
from peltier_client.protocol.session import SESSION_HEADER


class QuotaOptions(TypedDict, total=False):
    """A tenant's quotas, as keyword arguments. See `peltier_client.protocol.administration.TenantQuotas`."""

    requests_per_second: float | None
    tokens_per_second: float | None
    max_concurrent_requests: int | None
    max_stored_bytes: int | None
    max_adapters: int | None
    max_trainings: int | None
    max_training_rows: int | None
    max_training_minutes_per_day: float | None
    weight: float


def create_tenant(name: str, quotas: QuotaOptions) -> Request[TenantInfo]:
    return Request(
        "POST", "/v1/tenants", reader(TenantInfo), json=to_json(TenantRequest, {"name": name, "quotas": quotas})
    )


def list_tenants(cursor: str | None = None) -> Request[TenantList]:
    """The page of tenants at `cursor`; None is the first."""
    return Request("GET", "/v1/tenants", reader(TenantList), query=page_query(cursor))


def get_tenant(name: str) -> Request[TenantInfo]:
    return Request("GET", f"/v1/tenants/{check_name(name, 'tenant')}", reader(TenantInfo))


def get_usage(name: str) -> Request[TenantUsage]:
    return Request("GET", f"/v1/tenants/{check_name(name, 'tenant')}/usage", reader(TenantUsage))


def set_tenant(name: str, quotas: QuotaOptions) -> Request[TenantInfo]:
    json = to_json(TenantQuotas, quotas)
    return Request("PUT", f"/v1/tenants/{check_name(name, 'tenant')}", reader(TenantInfo), json=json)


class KeyOptions(TypedDict, total=False):
    """Fields of a new key, as keyword arguments. See `peltier_client.protocol.administration.KeyRequest`."""

    tenant: str
    note: str
    expires_at: datetime | None


def create_key(scopes: Iterable[str], options: KeyOptions) -> Request[NewKey]:
    json = to_json(KeyRequest, {"scopes": sorted(set(scopes)), **options})
    return Request("POST", "/v1/keys", reader(NewKey), json=json)


def list_keys(tenant: str | None, cursor: str | None = None) -> Request[KeyList]:
    """The page of keys at `cursor`, of all tenants or one; None is the first."""
    own = {"tenant": check_name(tenant, "tenant")} if tenant is not None else {}
    return Request("GET", "/v1/keys", reader(KeyList), query=page_query(cursor) | own)


def revoke_key(prefix: str) -> Request[None]:
    return Request("DELETE", f"/v1/keys/{quote(prefix, safe='')}", raise_for_error)


class AuditOptions(TypedDict, total=False):
    """Which records are wanted, as keyword arguments. `since` is included, `until` is not; both need a time zone."""

    actor: str | None
    action: str | None
    since: datetime | None
    until: datetime | None


def read_audit(tenant: str | None, options: AuditOptions, cursor: str | None = None) -> Request[AuditPage]:
    """The page of the audit log at `cursor`, of all tenants or one; None is the newest."""
    own = {"tenant": check_name(tenant, "tenant")} if tenant is not None else {}
    wanted = {name: _text(name, value) for name, value in options.items() if value is not None}
    return Request("GET", "/v1/audit", reader(AuditPage), query=page_query(cursor) | own | wanted)


def _text(name: str, value: object) -> str:
    if not isinstance(value, datetime):
        return str(value)
    if value.tzinfo is None:
        raise InvalidInput(f"{name} is {value.isoformat()}, which has no time zone")
    return value.isoformat()


def info() -> Request[InfoResponse]:
    return Request("GET", "/info", reader(InfoResponse))


def metrics() -> Request[str]:
    """The page that Prometheus reads. Not retried, because the answer is about now.

    All callers are of one session, so that a balancer that knows sessions shows them the same replica each time.
    """

    def read(response: httpx2.Response) -> str:
        raise_for_error(response)
        return response.text

    return Request("GET", "/metrics", read, headers={SESSION_HEADER: "peltier/metrics"}, retried=False)


def health() -> Request[HealthResponse]:
    """Whether the process is alive. Not retried, because the answer is about now."""
    return Request("GET", "/health", reader(HealthResponse), retried=False)


def ready() -> Request[bool]:
    """Whether the server accepts predictions. Not retried."""
    return Request("GET", "/ready", lambda response: _read_unreadiness(response) is None, retried=False)


def why_not_ready() -> Request[str | None]:
    """Why the server accepts no predictions; None if it does. Not retried."""
    return Request("GET", "/ready", _read_unreadiness, retried=False)


def _read_unreadiness(response: httpx2.Response) -> str | None:
    try:
        read_body(response, ReadyResponse)
    except Unavailable as error:
        return error.message
    return None
