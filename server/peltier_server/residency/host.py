"""The host tier: the most recently used parsed artifacts, up to a number of bytes."""

from collections import OrderedDict

from peltier_adapters.artifact.artifact import Artifact

from peltier_server.metrics.metrics import Metrics
from peltier_server.residency.adapter_key import AdapterKey


class HostCache:
    """Evicts the least recently used artifacts first; keeps none larger than the cache. Belongs to the event loop."""

    def __init__(self, max_bytes: int, metrics: Metrics) -> None:
        self._max_bytes = max_bytes
        self._metrics = metrics
        self._artifacts: OrderedDict[AdapterKey, Artifact] = OrderedDict()
        self.nbytes = 0

    def __len__(self) -> int:
        return len(self._artifacts)

    def get(self, key: AdapterKey) -> Artifact | None:
        """The artifact of `key`, if it is in the cache."""
        if key not in self._artifacts:
            return None
        self._artifacts.move_to_end(key)
        return self._artifacts[key]

    def put(self, key: AdapterKey, artifact: Artifact) -> None:
        """Keeps `artifact`, and evicts others for it."""
        if key in self._artifacts or artifact.nbytes > self._max_bytes:
            return
        while self.nbytes + artifact.nbytes > self._max_bytes:
            self.drop(next(iter(self._artifacts)))
            self._metrics.evictions.labels("host").inc()
        self._artifacts[key] = artifact
        self.nbytes += artifact.nbytes
        self._report()

    def drop(self, key: AdapterKey) -> None:
        """Removes `key`, if it is in the cache."""
        artifact = self._artifacts.pop(key, None)
        if artifact is not None:
            self.nbytes -= artifact.nbytes
            self._report()

    def _report(self) -> None:
        self._metrics.adapters.labels("host").set(len(self._artifacts))
        self._metrics.adapter_bytes.labels("host").set(self.nbytes)
