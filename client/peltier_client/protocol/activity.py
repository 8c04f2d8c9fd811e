"""What adapter versions answered and where they are in memory, on the wire."""

from typing import Literal

from pydantic import Field

from peltier_client.protocol.adapters import Digest
from peltier_client.protocol.predict import Tier
from peltier_client.protocol.wire import ResponseModel


class VersionActivity(ResponseModel):
    """What one version answered on this replica: its `requests`, with `errors` those with a status from 400 on, and
    the seconds from a request to the end of its answer.

    `p50_seconds` and `p99_seconds` are interpolated in the buckets of `peltier_adapter_request_seconds`.
    """

    name: str
    version: int
    tier: Tier
    requests: int
    errors: int
    p50_seconds: float
    p99_seconds: float


class Resident(ResponseModel):
    """An artifact in the memory of this replica: on the device, or parsed on the host."""

    digest: Digest
    tier: Literal["device", "host"]


class ActivityResponse(ResponseModel):
    """The caller's adapters on this replica.

    `versions` are those with requests since the server started, the most asked first. As many versions are counted as
    have metrics of their own (`max_metric_versions`); a version that loses them begins again at 0. A request for
    several versions counts for none. `residents` are the artifacts in memory, those on the device first; all others
    are in the store. `num_residents` counts those that `limit` leaves out too.
    """

    versions: list[VersionActivity] = Field(default_factory=list)
    residents: list[Resident] = Field(default_factory=list)
    num_residents: int = 0
