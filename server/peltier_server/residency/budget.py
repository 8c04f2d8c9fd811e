"""How much memory adapters may take, and how long callers wait for some."""

from dataclasses import dataclass


@dataclass(frozen=True)
class MemoryBudget:
    """Bytes of each tier, and the maximum wait for a load to begin, and then for room on the device."""

    device_bytes: int
    host_bytes: int
    wait_seconds: float = 10.0
