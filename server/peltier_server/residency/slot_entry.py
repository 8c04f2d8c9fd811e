"""One adapter in the device tier, and the callers that wait for room for it."""

import asyncio
import time
from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from peltier_client.protocol import Tier

from peltier_server.residency.fetches import Fetch
from peltier_server.residency.host import Sized

K = TypeVar("K", bound=Hashable)
A = TypeVar("A", bound=Sized)
R = TypeVar("R")


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
