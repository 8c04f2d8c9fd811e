"""The options of calls about tenants, API keys and the audit log."""

from datetime import datetime
from typing import TypedDict

import httpx2

from peltier_client.errors import InvalidInput, Unavailable
from peltier_client.exchange.request import read_body
from peltier_client.protocol.names import check_name
from peltier_client.protocol.operations import ReadyResponse


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


class KeyOptions(TypedDict, total=False):
    """Fields of a new key, as keyword arguments. See `peltier_client.protocol.administration.KeyRequest`."""

    tenant: str
    note: str
    expires_at: datetime | None


class AuditOptions(TypedDict, total=False):
    """Which records are wanted, as keyword arguments. `since` is included, `until` is not; both need a time zone."""

    actor: str | None
    action: str | None
    since: datetime | None
    until: datetime | None


def tenant_path(name: str) -> str:
    """The address of a tenant."""
    return f"/v1/tenants/{check_name(name, 'tenant')}"


def tenant_query(tenant: str | None) -> dict[str, str]:
    """The part of a query that asks for what is of one tenant; None is all tenants."""
    return {} if tenant is None else {"tenant": check_name(tenant, "tenant")}


def audit_query(tenant: str | None, options: AuditOptions) -> dict[str, str]:
    """The query for the wanted records. Raises `InvalidInput` for a time without a zone."""
    wanted = {name: _text(name, value) for name, value in options.items() if value is not None}
    return tenant_query(tenant) | wanted


def _text(name: str, value: object) -> str:
    if not isinstance(value, datetime):
        return str(value)
    if value.tzinfo is None:
        raise InvalidInput(f"{name} is {value.isoformat()}, which has no time zone")
    return value.isoformat()


def read_unreadiness(response: httpx2.Response) -> str | None:
    """Why a server is not ready; None if it is."""
    try:
        read_body(response, ReadyResponse)
    except Unavailable as error:
        return error.message
    return None
