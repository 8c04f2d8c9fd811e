"""The bytes of a tier that pinned adapters take."""

from peltier_client.errors import StorageFull

from peltier_server import retry_hints
from peltier_server.fairness.shared_bound import TIMES_THE_REST, Shares, is_fair

# Pins leave half of a tier to other adapters, so an adapter of up to that size can always be loaded.
_PARTS = 2


class PinnedBytes:
    """At most half of a tier. A tenant pins at most three times what is then left of that half, but always one adapter
    if it fits."""

    def __init__(self, where: str, tier_bytes: int) -> None:
        """`where` names the tier in messages."""
        self._where = where
        self._shares = Shares(tier_bytes // _PARTS)

    @property
    def total(self) -> int:
        """Bytes of all pinned adapters."""
        return self._shares.taken

    def take(self, tenant: str, num_bytes: int) -> None:
        """Counts an adapter that `tenant` pins. Raises `StorageFull` if it does not fit."""
        shares = self._shares
        rest = shares.rest(num_bytes)
        if rest < 0:
            raise StorageFull(
                f"pinned adapters take {shares.taken} of the {shares.capacity} bytes that they may take "
                f"{self._where}; {num_bytes} more do not fit",
                retry_after=retry_hints.STORE_FULL,
            )
        held = shares.held(tenant)
        if held and not is_fair(held + num_bytes, rest):
            raise StorageFull(
                f"tenant {tenant!r} has pinned {held} bytes {self._where}; {num_bytes} more would leave {rest} of "
                f"{shares.capacity} to others, and one tenant may pin at most {TIMES_THE_REST} times what it leaves",
                retry_after=retry_hints.STORE_FULL,
            )
        shares.take(tenant, num_bytes, num_bytes)

    def give_back(self, tenant: str, num_bytes: int) -> None:
        """Counts an adapter no longer."""
        self._shares.give_back(tenant, num_bytes, num_bytes)
