"""The host tier: the most recently used parsed artifacts, up to a number of bytes, and pinned ones."""

import time
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Generic, Protocol, TypeVar

from peltier_server.metrics.metrics import Metrics
from peltier_server.residency.pinned_bytes import PinnedBytes


class Sized(Protocol):
    """Something with a size."""

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""


K = TypeVar("K", bound=Hashable)
T = TypeVar("T", bound=Sized)


@dataclass
class HostEntry(Generic[T]):
    """A value, when it came and when it was last used, in seconds of `time.monotonic`. `pinned_by` is the tenant that
    is charged for its pin."""

    value: T
    pinned_by: str | None = None
    loaded_at: float = field(default_factory=time.monotonic)
    used_at: float = field(default_factory=time.monotonic)


class HostCache(Generic[K, T]):
    """Evicts the least recently used values first, pinned ones never; keeps none larger than the room beside the pins.
    Belongs to the event loop."""

    def __init__(self, max_bytes: int, metrics: Metrics) -> None:
        self._max_bytes = max_bytes
        self._metrics = metrics
        self._evictable: OrderedDict[K, HostEntry[T]] = OrderedDict()
        self._pinned: dict[K, HostEntry[T]] = {}
        self._pinned_bytes = PinnedBytes("in host memory", max_bytes)
        self.nbytes = 0

    def __len__(self) -> int:
        return len(self._evictable) + len(self._pinned)

    def __contains__(self, key: object) -> bool:
        return key in self._evictable or key in self._pinned

    @property
    def pinned(self) -> list[K]:
        """The keys of the pinned values."""
        return list(self._pinned)

    def get(self, key: K) -> T | None:
        """The value of `key`, if it is in the cache."""
        entry = self.find(key)
        if entry is None:
            return None
        entry.used_at = time.monotonic()
        if entry.pinned_by is None:
            self._evictable.move_to_end(key)
        return entry.value

    def find(self, key: K) -> HostEntry[T] | None:
        """The entry of `key`, whose use this is not."""
        return self._evictable.get(key) or self._pinned.get(key)

    def put(self, key: K, value: T) -> None:
        """Keeps `value`, and evicts others for it."""
        if key in self or value.nbytes > self._max_bytes - self._pinned_bytes.total:
            return
        self._make_room(value.nbytes)
        self._evictable[key] = HostEntry(value)
        self._report()

    def pin(self, key: K, value: T, tenant: str) -> None:
        """Keeps `value` until `unpin`, charged to `tenant`. Raises `StorageFull` if it does not fit beside other
        pins."""
        if key in self._pinned:
            return
        self._pinned_bytes.take(tenant, value.nbytes)
        known = self._evictable.pop(key, None)
        if known is None:
            self._make_room(value.nbytes)
        self._pinned[key] = known or HostEntry(value)
        self._pinned[key].pinned_by = tenant
        self._report()

    def unpin(self, key: K) -> None:
        """Makes a pinned value the most recently used of the others."""
        entry = self._pinned.pop(key, None)
        if entry is not None and entry.pinned_by is not None:
            self._pinned_bytes.give_back(entry.pinned_by, entry.value.nbytes)
            entry.pinned_by = None
            self._evictable[key] = entry
            self._report()

    def drop(self, key: K) -> None:
        """Removes `key`, if it is in the cache, also a pinned one."""
        self.unpin(key)
        entry = self._evictable.pop(key, None)
        if entry is not None:
            self.nbytes -= entry.value.nbytes
            self._report()

    def note_use(self, key: K, used_at: float) -> None:
        """Notes a use of the adapter on the device at that time."""
        if (entry := self.find(key)) is not None:
            entry.used_at = max(entry.used_at, used_at)

    def unused_since(self, before: float) -> list[K]:
        """The keys that are not pinned and were last used before that time."""
        return [key for key, entry in self._evictable.items() if entry.used_at < before]

    def num_before(self, key: K) -> int:
        """How many values would be evicted before that of `key`."""
        return sum(1 for _ in takewhile(lambda other: other != key, self._evictable))

    def _make_room(self, num_bytes: int) -> None:
        """Counts so many bytes more, and evicts values for them."""
        while self.nbytes + num_bytes > self._max_bytes:
            self.drop(next(iter(self._evictable)))
            self._metrics.evictions.labels("host").inc()
        self.nbytes += num_bytes

    def _report(self) -> None:
        self._metrics.adapters.labels("host").set(len(self))
        self._metrics.adapter_bytes.labels("host").set(self.nbytes)
        self._metrics.pinned_adapters.labels("host").set(len(self._pinned))
