"""The right to use an adapter on the device, for the time of a block."""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from peltier_client.protocol import Tier

from peltier_server.residency.host import Sized
from peltier_server.residency.slot_entry import SlotEntry

K = TypeVar("K", bound=Hashable)
A = TypeVar("A", bound=Sized)
R = TypeVar("R")


@dataclass(frozen=True)
class Lease(Generic[R]):
    """The right to use an adapter on the device. `tier` is where it was found, `load_seconds` the time of its load."""

    resident: R
    tier: Tier
    load_seconds: float


class Leaser(Protocol[K, A, R]):
    """Begins and ends leases."""

    async def begin_lease(self, key: K, tenant: str, artifact: A | None) -> tuple[SlotEntry[K, A, R], Lease[R]]:
        """The lease, and the entry by which it is ended."""

    def end_lease(self, entry: SlotEntry[K, A, R], tenant: str) -> None:
        """Ends a lease of `tenant`."""


class Leasing(Generic[K, A, R]):
    """A block that leases an adapter. A generator as a context manager takes four times as long."""

    __slots__ = ("_asked", "_entry", "_slots")

    def __init__(self, slots: Leaser[K, A, R], key: K, tenant: str, artifact: A | None) -> None:
        self._slots = slots
        self._asked = key, tenant, artifact
        self._entry: SlotEntry[K, A, R]

    async def __aenter__(self) -> Lease[R]:
        self._entry, lease = await self._slots.begin_lease(*self._asked)
        return lease

    async def __aexit__(self, *_: object) -> None:
        self._slots.end_lease(self._entry, self._asked[1])
