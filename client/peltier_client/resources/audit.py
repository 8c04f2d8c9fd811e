"""Requests for the audit log."""

from peltier_client.exchange.request import Request, page_query, reader
from peltier_client.protocol import AuditPage, check_name


def read_audit(tenant: str | None, cursor: str | None = None) -> Request[AuditPage]:
    """The page of the audit log that `cursor` points to, the newest for None; of all tenants or of one."""
    own = {"tenant": check_name(tenant, "tenant")} if tenant is not None else {}
    return Request("GET", "/v1/audit", reader(AuditPage), query=page_query(cursor) | own)
