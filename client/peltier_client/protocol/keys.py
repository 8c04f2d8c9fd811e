"""API keys on the wire. The key itself is in one answer only: that to the request that made it."""

from datetime import UTC, datetime
from typing import Annotated, Literal

from pydantic import AwareDatetime, Field, field_serializer

from peltier_client.protocol.names import Name
from peltier_client.protocol.wire import RequestModel, ResponseModel

# predict asks adapters and looks at them, publish changes them, admin runs the server, metrics reads /metrics alone.
# Each is independent of the others, but for one thing: admin reads /metrics too.
Scope = Literal["predict", "publish", "admin", "metrics"]

MAX_NOTE_LEN = 200
# Later moments may have no counterpart in UTC that can be written.
_END_OF_TIME = datetime(9999, 1, 1, tzinfo=UTC)


class KeyRequest(RequestModel):
    """A key to be made; without `expires_at` it lasts until it is revoked."""

    tenant: Name = "default"
    scopes: Annotated[frozenset[Scope], Field(min_length=1)]
    note: Annotated[str, Field(max_length=MAX_NOTE_LEN)] = ""
    expires_at: Annotated[AwareDatetime, Field(lt=_END_OF_TIME)] | None = None

    @field_serializer("scopes")
    def _in_order(self, scopes: frozenset[Scope]) -> list[Scope]:
        return sorted(scopes)


class KeyInfo(ResponseModel):
    """A key without its secret. `prefix` is what names it, in lists, when it is revoked and in the audit log."""

    prefix: str
    tenant: str
    scopes: list[Scope]
    note: str
    created_at: datetime
    created_by: str
    expires_at: datetime | None
    revoked_at: datetime | None


class NewKey(KeyInfo):
    """A key that has just been made, with its whole text, which nobody can ever read again."""

    key: Annotated[str, Field(repr=False)]


class KeyList(ResponseModel):
    """Some keys, oldest first, also those that open nothing any more; `next_cursor` asks for those that follow, null on
    the last page."""

    keys: list[KeyInfo]
    next_cursor: str | None = None
