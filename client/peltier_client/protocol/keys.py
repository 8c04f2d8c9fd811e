"""API keys on the wire. Only the response to its creation holds the key itself."""

from datetime import UTC, datetime
from typing import Annotated, Literal

from pydantic import AwareDatetime, Field, field_serializer

from peltier_client.protocol.names import Name
from peltier_client.protocol.wire import RequestModel, ResponseModel

# predict uses and lists adapters, publish changes them, admin runs the server, metrics reads /metrics and
# /v1/live. The scopes are independent, except that admin also reads these two.
Scope = Literal["predict", "publish", "admin", "metrics"]

MAX_NOTE_LEN = 200
# The UTC form of a later time may not be representable.
_END_OF_TIME = datetime(9999, 1, 1, tzinfo=UTC)


class KeyRequest(RequestModel):
    """A key to create. Without `expires_at` it is valid until it is revoked."""

    tenant: Name = "default"
    scopes: Annotated[frozenset[Scope], Field(min_length=1)]
    note: Annotated[str, Field(max_length=MAX_NOTE_LEN)] = ""
    expires_at: Annotated[AwareDatetime, Field(lt=_END_OF_TIME)] | None = None

    @field_serializer("scopes")
    def _in_order(self, scopes: frozenset[Scope]) -> list[Scope]:
        return sorted(scopes)


class KeyInfo(ResponseModel):
    """A key without its secret. `prefix` identifies it in lists, in revocations and in the audit log."""

    prefix: str
    tenant: str
    scopes: list[Scope]
    note: str
    created_at: datetime
    created_by: str
    expires_at: datetime | None
    revoked_at: datetime | None


class NewKey(KeyInfo):
    """A new key with its text, which cannot be read again."""

    key: Annotated[str, Field(repr=False)]


class KeyList(ResponseModel):
    """A page of keys, oldest first, including revoked and expired keys; `next_cursor` is that of the next page, null on
    the last."""

    keys: list[KeyInfo]
    next_cursor: str | None = None
