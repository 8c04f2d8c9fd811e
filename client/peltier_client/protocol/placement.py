"""Pins of adapters, and where adapters are in the memory of a replica, on the wire."""

from datetime import datetime
from typing import Literal

from peltier_client.protocol.predict import Tier
from peltier_client.protocol.wire import RequestModel, ResponseModel

PinnedTier = Literal["device", "host"]


class PinRequest(RequestModel):
    """The tier of memory in which every replica keeps an adapter."""

    tier: PinnedTier = "device"


class AdapterPin(ResponseModel):
    """A pin: its tier, its time, and who made it."""

    tier: PinnedTier
    pinned_at: datetime
    pinned_by: str


class VersionPlacement(ResponseModel):
    """Where a version is on one replica, and why. `share` is its share of the requests for the bare name.

    `since` is when it came there, and `last_used_at` the end of its last use; both are null for the store.
    """

    version: int
    share: float
    tier: Tier
    pinned: bool
    since: datetime | None
    last_used_at: datetime | None
    in_use: int
    reason: str


class AdapterPlacement(ResponseModel):
    """Where the versions of an adapter are on the replica that answers: those of the bare name, and others in its
    memory."""

    name: str
    replica: str
    pin: AdapterPin | None
    versions: list[VersionPlacement]
