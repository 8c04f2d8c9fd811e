"""Tenants and their quotas on the wire."""

from datetime import datetime
from typing import Annotated

from pydantic import Field

from peltier_client.protocol.names import Name
from peltier_client.protocol.wire import RequestModel, ResponseModel

_MAX_COUNT = 2**63 - 1
MIN_WEIGHT, MAX_WEIGHT = 0.01, 100.0

PerSecond = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=0, le=_MAX_COUNT)]
Weight = Annotated[float, Field(ge=MIN_WEIGHT, le=MAX_WEIGHT)]


class TenantQuotas(RequestModel):
    """Quotas of a tenant; null is no limit. `weight` is its share of a busy server relative to other tenants."""

    requests_per_second: PerSecond | None = None
    tokens_per_second: PerSecond | None = None
    max_concurrent_requests: Count | None = None
    max_stored_bytes: Count | None = None
    max_adapters: Count | None = None
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
    this replica, unless replicas count rates together. Deleted versions count as stored until they are purged."""

    requests: RateUsage | None
    tokens: RateUsage | None
    concurrent_requests: int
    stored_bytes: int
    adapters: int
