"""What a run took."""

import resource
import sys
import time

import torch
from peltier_adapters.spec.maps import Spec

from peltier_training.fit.history import History

_RSS_UNIT = 1 if sys.platform == "darwin" else 1024  # bytes on macOS, KiB elsewhere


class Cost(Spec):
    """`threads` are the CPU's. `seconds_per_epoch` is training alone, without validation (None if all epochs were there
    already), and `total_seconds` the run from its start to its artifact, of a baseline to its metrics. Memory is the
    process's peak of resident bytes until the end of training, loading and validation among it (a T5 baseline is
    validated in a copy, which counts); on CUDA `device_memory_bytes` the peak of what tensors held on the device."""

    device: str
    dtype: str
    threads: int | None = None
    seconds_per_epoch: float | None
    training_seconds: float
    total_seconds: float
    memory_bytes: int
    device_memory_bytes: int | None


class Meter:
    """Begins to measure when it is made."""

    def __init__(self) -> None:
        self._start = time.perf_counter()
        self._memory, self._device_memory = 0, 0
        if torch.cuda.is_available():
            torch.cuda.reset_peak_memory_stats()

    def mark_trained(self) -> None:
        """What comes later does not count as training's memory."""
        self._memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _RSS_UNIT
        self._device_memory = torch.cuda.max_memory_allocated() if torch.cuda.is_available() else 0

    def read(self, history: History, device: torch.device, dtype: str) -> Cost:
        """What there is to say at the end of a run."""
        return Cost(
            device=_name(device),
            dtype=dtype,
            threads=torch.get_num_threads(),
            seconds_per_epoch=history.seconds / history.epochs if history.epochs else None,
            training_seconds=history.seconds,
            total_seconds=time.perf_counter() - self._start,
            memory_bytes=self._memory,
            device_memory_bytes=self._device_memory if device.type == "cuda" else None,
        )


def _name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
