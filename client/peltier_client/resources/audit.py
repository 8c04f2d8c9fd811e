"""Requests for the audit log."""

from datetime import datetime
from typing import TypedDict

from peltier_client.errors import InvalidInput
from peltier_client.exchange.request import Request, page_query, reader
from peltier_client.protocol import AuditPage, check_name


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
