"""Where an adapter is in the memory of this replica, and why."""

from dataclasses import dataclass
from typing import Any

from peltier_client.protocol import Tier

from peltier_server.residency.host import HostCache
from peltier_server.residency.leases import DeviceTier, SlotEntry

_NAMES: dict[Tier, str] = {"device": "on the device", "host": "in host memory", "store": "in the store"}


@dataclass(frozen=True)
class MemoryPlacement:
    """The fastest tier that has an adapter, and since when; `used_at` is the end of its last use. Times are in seconds
    of `time.monotonic`.

    `pinned_in` is the tier of its pin. `num_before` adapters would be evicted before it. It came from `found_in`.
    `is_loading` is whether it is on its way to the device.
    """

    tier: Tier
    loaded_at: float = 0.0
    used_at: float = 0.0
    num_leases: int = 0
    pinned_in: Tier | None = None
    num_before: int = 0
    found_in: Tier = "store"
    is_loading: bool = False

    def explain(self, now: float) -> str:
        """Why the adapter is there and how long it stays, in one sentence without its pin."""
        where = _NAMES[self.tier]
        if self.tier == "store":
            return f"{where}: {'it is being loaded' if self.is_loading else 'the next request loads it'}"
        loaded = f"loaded {now - self.loaded_at:.0f} s ago from the {self.found_in}"
        return f"{where}: {loaded}; {self._stay()}{', and on its way to the device' if self.is_loading else ''}"

    def _stay(self) -> str:
        if self.num_leases:
            return f"in use by {_count(self.num_leases, 'request')}, so it is not evicted now"
        if self.pinned_in == self.tier:
            return "pinned, so it is never evicted"
        kept = ", to host memory, where it is pinned" if self.pinned_in == "host" else ""
        if not self.num_before:
            return f"next to be evicted when room is needed{kept}"
        return f"to be evicted after {_count(self.num_before, 'other')} when room is needed{kept}"


def locate(
    key: Any, entry: SlotEntry[Any, Any, Any] | None, device: DeviceTier[Any, Any, Any], host: HostCache[Any, Any]
) -> MemoryPlacement:
    """The place of an adapter, whose `entry` is that of its slot."""
    kept = host.find(key)
    is_loading = entry is not None and not entry.loaded
    pinned_in: Tier | None = "host" if kept is not None and kept.pinned_by is not None else None
    if entry is not None and entry.loaded:
        pinned_in = pinned_in if entry.pinned_by is None else "device"
        num_leases, before = entry.leases.total(), device.num_before(entry)
        return MemoryPlacement("device", entry.loaded_at, entry.used_at, num_leases, pinned_in, before, entry.found_in)
    if kept is not None:
        before = host.num_before(key)
        return MemoryPlacement("host", kept.loaded_at, kept.used_at, 0, pinned_in, before, "store", is_loading)
    return MemoryPlacement("store", is_loading=is_loading)


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
