"""The audit log on the wire."""

from datetime import datetime
from typing import Any

from peltier_client.protocol.wire import ResponseModel


class AuditRecord(ResponseModel):
    """Who did what when: `subject` names it (`sst2@3`), `detail` says the rest. `id` grows with time."""

    id: int
    at: datetime
    tenant: str
    actor: str
    action: str
    subject: str
    detail: dict[str, Any]


class AuditPage(ResponseModel):
    """Some records, newest first; `next_cursor` asks for those before them, null on the last page."""

    records: list[AuditRecord]
    next_cursor: str | None = None
