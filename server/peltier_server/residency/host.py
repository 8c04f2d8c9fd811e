"""The host tier: the most recently used parsed artifacts, up to a number of bytes."""

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, Protocol, TypeVar

from peltier_server.metrics.metrics import Metrics


class Sized(Protocol):
    """Something with a size."""

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""


K = TypeVar("K", bound=Hashable)
T = TypeVar("T", bound=Sized)


class HostCache(Generic[K, T]):
    """Evicts the least recently used values first; keeps none larger than the cache. Belongs to the event loop."""

    def __init__(self, max_bytes: int, metrics: Metrics) -> None:
        self._max_bytes = max_bytes
        self._metrics = metrics
        self._values: OrderedDict[K, T] = OrderedDict()
        self.nbytes = 0

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, key: object) -> bool:
        return key in self._values

    def get(self, key: K) -> T | None:
        """The value of `key`, if it is in the cache."""
        if key not in self._values:
            return None
        self._values.move_to_end(key)
        return self._values[key]

    def put(self, key: K, value: T) -> None:
        """Keeps `value`, and evicts others for it."""
        if key in self._values or value.nbytes > self._max_bytes:
            return
        while self.nbytes + value.nbytes > self._max_bytes:
            self.drop(next(iter(self._values)))
            self._metrics.evictions.labels("host").inc()
        self._values[key] = value
        self.nbytes += value.nbytes
        self._report()

    def drop(self, key: K) -> None:
        """Removes `key`, if it is in the cache."""
        value = self._values.pop(key, None)
        if value is not None:
            self.nbytes -= value.nbytes
            self._report()

    def _report(self) -> None:
        self._metrics.adapters.labels("host").set(len(self._values))
        self._metrics.adapter_bytes.labels("host").set(self.nbytes)
