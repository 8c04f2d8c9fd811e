"""The audit log on the wire."""

from datetime import datetime
from typing import Any

from peltier_client.protocol.wire import ResponseModel


class AuditRecord(ResponseModel):
    """An action: who did it, when, and to which `subject` (`sst2@3`). `id` increases with time."""

    id: int
    at: datetime
    tenant: str
    actor: str
    action: str
    subject: str
    detail: dict[str, Any]


class AuditPage(ResponseModel):
    """A page of records, newest first; `next_cursor` is that of the next page, null on the last."""

    records: list[AuditRecord]
    next_cursor: str | None = None
