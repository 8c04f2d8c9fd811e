"""Where an adapter is in the memory of this replica, and why."""

from dataclasses import dataclass

from peltier_client.protocol import Tier

_NAMES: dict[Tier, str] = {"device": "on the device", "host": "in host memory", "store": "in the store"}


@dataclass(frozen=True)
class Placement:
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


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
