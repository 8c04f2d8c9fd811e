"""Tenants with their quotas, API keys and the audit log on the wire."""

from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from pydantic import AwareDatetime, Field, field_serializer

from peltier_client.protocol.names import Name
from peltier_client.protocol.wire import RequestModel, ResponseModel

_MAX_COUNT = 2**63 - 1
MIN_WEIGHT, MAX_WEIGHT = 0.01, 100.0

PerSecond = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Minutes = Annotated[float, Field(gt=0, allow_inf_nan=False)]
QuotaCount = Annotated[int, Field(ge=0, le=_MAX_COUNT)]
Weight = Annotated[float, Field(ge=MIN_WEIGHT, le=MAX_WEIGHT)]
# predict uses and lists adapters, publish changes them, train starts trainings and keeps their files, admin runs the
# server, metrics reads /metrics. The scopes are independent, except that admin also reads it.
Scope = Literal["predict", "publish", "train", "admin", "metrics"]

MAX_NOTE_LEN = 200
# The UTC form of a later time may not be representable.
_END_OF_TIME = datetime(9999, 1, 1, tzinfo=UTC)


class TenantQuotas(RequestModel):
    """Quotas of a tenant; null is no limit. `weight` is its share of a busy server relative to other tenants.

    `max_trainings` counts those that have not ended, and `max_training_rows` the examples of one training.
    """

    requests_per_second: PerSecond | None = None
    tokens_per_second: PerSecond | None = None
    max_concurrent_requests: QuotaCount | None = None
    max_stored_bytes: QuotaCount | None = None
    max_adapters: QuotaCount | None = None
    max_trainings: QuotaCount | None = None
    max_training_rows: QuotaCount | None = None
    max_training_minutes_per_day: Minutes | None = None
    weight: Weight = 1.0


class TenantRequest(RequestModel):
    """A tenant to create."""

    name: Name
    quotas: TenantQuotas = TenantQuotas()


class TenantInfo(ResponseModel):
    """A tenant and its quotas."""

    name: str
    created_at: datetime
    quotas: TenantQuotas


class TenantList(ResponseModel):
    """A page of tenants in order of name; `next_cursor` is that of the next page, null on the last."""

    tenants: list[TenantInfo]
    next_cursor: str | None = None


class RateUsage(ResponseModel):
    """What a tenant took of one of its rates: `used` of `limit` units in the last `seconds`."""

    used: int
    limit: int
    seconds: int


class TenantUsage(ResponseModel):
    """What a tenant uses of its quotas now. A rate is null without a quota; rates and concurrent requests are those of
    this replica, unless replicas count rates together. Deleted versions count as stored until they are purged.
    `trainings` are those that have not ended, and `training_minutes` those that count for the quota of a day."""

    requests: RateUsage | None
    tokens: RateUsage | None
    concurrent_requests: int
    stored_bytes: int
    adapters: int
    trainings: int
    training_minutes: float


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
