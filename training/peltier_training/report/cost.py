"""The cost of a run."""

import resource
import sys
import time

import torch
from peltier_adapters.spec.maps import Spec

from peltier_training.fit.trainer import History

_RSS_UNIT = 1 if sys.platform == "darwin" else 1024  # bytes on macOS, KiB elsewhere


class Cost(Spec):
    """`threads` counts CPU threads. `seconds_per_epoch` covers training without validation, None if a resumed run had
    no epoch left. `total_seconds` is the time from the start to the artifact, or to a baseline's metrics.

    `memory_bytes` is the process's peak of resident memory until the end of training, with loading and validation (and
    the copy in which a T5 baseline is validated). `device_memory_bytes` is the peak of tensors on a CUDA device.
    """

    device: str
    dtype: str
    threads: int | None = None
    seconds_per_epoch: float | None
    training_seconds: float
    total_seconds: float
    memory_bytes: int
    device_memory_bytes: int | None


class Meter:
    """Measures from its creation."""

    def __init__(self) -> None:
        self._start = time.perf_counter()
        self._memory, self._device_memory = 0, 0
        if torch.cuda.is_available():
            torch.cuda.reset_peak_memory_stats()

    def mark_trained(self) -> None:
        """Record the peak of memory at the end of training."""
        self._memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _RSS_UNIT
        self._device_memory = torch.cuda.max_memory_allocated() if torch.cuda.is_available() else 0

    def read(self, history: History, device: torch.device, dtype: str) -> Cost:
        """The cost at the end of a run."""
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
