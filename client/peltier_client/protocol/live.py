"""The state of one replica at one moment on the wire: its counters since the start, what adapter versions answered, and
what it holds now."""

from datetime import datetime
from typing import Literal

from peltier_client.protocol.operations import QuarantinedVersion
from peltier_client.protocol.wire import ResponseModel


class Distribution(ResponseModel):
    """Values since the start. `counts[i]` values were at most `bounds[i]` and above the bound before; the last count is
    of values above all bounds. `total` is the sum of all values."""

    bounds: list[float]
    counts: list[int]
    total: float


class LiveTenant(ResponseModel):
    """A tenant, or several: `_others` are those beyond the first hundred, `_nobody` are callers without a key.

    `requests` counts answers by HTTP status, `rows` and `tokens` what was computed. `queued_tokens` and
    `open_requests` are those of now.
    """

    tenant: str
    requests: dict[str, int]
    rows: int
    tokens: int
    queued_tokens: int
    open_requests: int


class LiveAdapter(ResponseModel):
    """A version: its requests by HTTP status, and their seconds. The tenant `other` stands for all versions without
    metrics of their own."""

    tenant: str
    adapter: str
    version: str
    requests: dict[str, int]
    seconds: Distribution


class LiveTier(ResponseModel):
    """A cache tier of adapters: what it holds now, its bound, and the evictions since the start."""

    tier: Literal["device", "host"]
    adapters: int
    bytes: int
    max_bytes: int
    evictions: int


class LiveQueue(ResponseModel):
    """What waits now, and the seconds that rows have waited since the start. `max_tokens` is the bound of the queue."""

    rows: int
    tokens: int
    max_tokens: int
    seconds: Distribution


class LiveBatches(ResponseModel):
    """Computed batches: rows, tokens, adapters and seconds of each. `max_rows` and `max_tokens` bound a batch."""

    rows: Distribution
    tokens: Distribution
    adapters: Distribution
    seconds: Distribution
    max_rows: int
    max_tokens: int


class LiveTexts(ResponseModel):
    """Generated tokens, the seconds of decoding steps, and the texts and beams in progress now."""

    tokens: int
    step_seconds: Distribution
    rows: int


class LiveRunner(ResponseModel):
    """Whether the thread that computes makes progress, and how many stuck threads were replaced."""

    state: Literal["well", "stuck"]
    restarts: int


class LiveQuarantine(QuarantinedVersion):
    """A version that is in quarantine for the requests of `tenant`."""

    tenant: str


class LiveSnapshot(ResponseModel):
    """The replica that answers, at the moment `at`. `replica` is its name in the metrics of a cluster of Ray, and null
    elsewhere. Counters begin at 0 at `started_at`; the difference between two snapshots of one replica is what
    happened between them. `reason` says why the replica is not ready.

    `adapters` has the versions with most requests, `loads` the adapters that came to the device, `lookups` where
    adapters in demand were: `device`, `host` or `store`. `quarantined` counts versions in quarantine, and `quarantine`
    describes the first of them.
    """

    at: datetime
    replica: str | None = None
    started_at: datetime
    ready: bool
    reason: str | None = None
    runner: LiveRunner
    seconds: Distribution
    tenants: list[LiveTenant]
    adapters: list[LiveAdapter]
    queue: LiveQueue
    batches: LiveBatches
    texts: LiveTexts
    tiers: list[LiveTier]
    lookups: dict[str, int]
    loads: int
    uploads: dict[str, int]
    quarantined: int
    quarantine: list[LiveQuarantine]
