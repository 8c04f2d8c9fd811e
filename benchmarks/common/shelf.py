"""Adapters in a store, and the tiers that a server would load them to."""

import asyncio
import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from common.serving import variant, write_blob
from peltier_server.context import AdapterKey
from peltier_server.metrics.metrics import Metrics
from peltier_server.residency.loader import StoreLoader
from peltier_server.residency.slots import Slots
from peltier_server.residency.tiers import MemoryBudget

_AT_ONCE = 16
_ENOUGH = MemoryBudget(64 * 1024**3, 0)


class Seconds(NamedTuple):
    """Wall-clock and CPU seconds."""

    clock: float
    cpu: float


@dataclass(frozen=True)
class Shelf:
    """Adapters in a store, and the tiers that they are loaded to."""

    directory: Path
    originals: dict[str, bytes]
    slots: Slots
    metrics: Metrics
    numbers: "itertools.count[int]" = field(default_factory=itertools.count)

    @classmethod
    def create(
        cls, loader: StoreLoader, directory: Path, originals: dict[str, bytes], budget: MemoryBudget = _ENOUGH
    ) -> "Shelf":  # fmt: skip
        """A shelf over the blobs in `directory`, with variants of `originals` by their presets."""
        metrics = Metrics()
        return cls(directory, originals, Slots(loader, budget, metrics), metrics)

    def store(self, preset: str) -> AdapterKey:
        """Stores a new artifact with different bytes."""
        data = variant(self.originals[preset], next(self.numbers))
        return AdapterKey("default", write_blob(self.directory, data))

    async def load(self, owned: AdapterKey) -> Seconds:
        """Seconds until it can be used."""
        start, used = time.perf_counter(), time.process_time()
        async with self.slots.lease(owned, "default"):
            return Seconds(time.perf_counter() - start, time.process_time() - used)

    async def load_all(self, owned: Sequence[AdapterKey]) -> None:
        """Loads each adapter once, 16 at a time."""
        for start in range(0, len(owned), _AT_ONCE):
            await asyncio.gather(*map(self.load, owned[start : start + _AT_ONCE]))
