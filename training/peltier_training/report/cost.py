"""The cost of a run: its parameters by part, its time and its memory."""

import resource
import sys
import time

import torch
from peltier_adapters.spec.parts import Parts, count_parameters
from peltier_backbone.checkpoint.config import BackboneConfig
from peltier_client.protocol.reports import ReportCost, ReportCount, ReportParameters
from torch import nn

from peltier_training.fit.trainer import History

_RSS_UNIT = 1 if sys.platform == "darwin" else 1024  # bytes on macOS, KiB elsewhere


class Cost(ReportCost, extra="forbid"):
    """`threads` counts CPU threads. `seconds_per_epoch` covers training without validation, None if a resumed run had
    no epoch left. `total_seconds` is the time from the start to the artifact, or to a baseline's metrics.

    `memory_bytes` is the process's peak of resident memory until the end of training, with loading and validation (and
    the copy in which a T5 baseline is validated). `device_memory_bytes` is the peak of tensors on a CUDA device.
    """


class Meter:
    """Measures from its creation."""

    def __init__(self) -> None:
        self._start = time.perf_counter()
        self._memory, self._device_memory = 0, 0
        if torch.cuda.is_available():
            torch.cuda.reset_peak_memory_stats()

    def mark_trained(self) -> None:
        self._memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _RSS_UNIT
        self._device_memory = torch.cuda.max_memory_allocated() if torch.cuda.is_available() else 0

    def read(self, history: History, device: torch.device, dtype: str) -> Cost:
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


class ParameterCounts(ReportParameters, extra="forbid"):
    """`total` excludes the head, as in the papers; `trained` counts the optimizer's parameters, including the head, all
    experts of AdaMix and the MLP of a prefix."""

    @classmethod
    def create(
        cls, parts: Parts, config: BackboneConfig, model: nn.Module, total: int | None = None
    ) -> "ParameterCounts":
        """The counts of a trained `model` of `parts`; a baseline has none, and its method gives the `total`."""
        trained = sum(weights.numel() for weights in model.parameters() if weights.requires_grad)
        return cls(
            backbone=config.num_parameters,
            parts=[_row(part.kind, count_parameters((part,), config, head=True), config) for part in parts],
            total=_row("total", count_parameters(parts, config) if total is None else total, config),
            trained=_row("trained", trained, config),
        )


def _row(name: str, counted: int, config: BackboneConfig) -> ReportCount:
    return ReportCount(part=name, parameters=counted, percent=100 * counted / config.num_parameters)
