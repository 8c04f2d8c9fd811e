"""Requests for the audit log."""

from peltier_client.exchange.request import Request, page_query, reader
from peltier_client.protocol import AuditPage, check_name


def read_audit(tenant: str | None, cursor: str | None = None) -> Request[AuditPage]:
    """The page of the audit log at `cursor`, of all tenants or one; None is the newest."""
    own = {"tenant": check_name(tenant, "tenant")} if tenant is not None else {}
    return Request("GET", "/v1/audit", reader(AuditPage), query=page_query(cursor) | own)
