"""An adapter in the device tier, and the right to use it for the time of a block."""

import asyncio
import time
from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from peltier_client.protocol import Tier

from peltier_server.residency.fetches import Fetch
from peltier_server.residency.host import Sized

K = TypeVar("K", bound=Hashable)
A = TypeVar("A", bound=Sized)
R = TypeVar("R")


class AdapterKey(NamedTuple):
    """A tenant and the digest of an artifact. Two tenants with the same artifact have two copies in memory, so that
    neither can learn from a tier or a load time that the other has it."""

    tenant: str
    digest: str


@dataclass(frozen=True)
class Lease(Generic[R]):
    """The right to use an adapter on the device. `tier` is where it was found, `load_seconds` the time of its load."""

    resident: R
    tier: Tier
    load_seconds: float


class SlotEntry(Generic[K, A, R]):
    """One adapter that is on the device or will be.

    It is fetched unless its artifact is known; then its size is known, and it is installed once there is room.
    `wanted` counts the callers that lease it or wait for it, `leases` those that lease it, by tenant. It is `fresh`
    until the first caller wants it, and `gone` once it has been dropped: callers that still wait for it begin again.
    """

    fetch: Fetch[K, A]

    def __init__(self, key: K, found_in: Tier) -> None:
        self.key = key
        self.found_in: Tier = found_in
        self.artifact: A | None = None
        self.fetched = False
        self.nbytes = 0
        self.installing: asyncio.Task[R] | None = None
        self.begun_at = time.monotonic()
        self.wanted = 0
        self.leases: Counter[str] = Counter()
        self.fresh = True
        self.retired = False
        self.loaded = False
        self.gone = False

    @property
    def tasks(self) -> list[asyncio.Task[Any]]:
        """Its fetch and its installation, as far as they have begun."""
        fetching = [self.fetch.task] if self.fetch.begun.is_set() else []
        return [*fetching, *([] if self.installing is None else [self.installing])]


@dataclass(eq=False)
class SlotClaim(Generic[K, A, R]):
    """A caller that waits for room. `granted` is False if the adapter was dropped meanwhile."""

    entry: SlotEntry[K, A, R]
    granted: asyncio.Future[bool]


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
