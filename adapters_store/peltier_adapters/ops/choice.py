"""Chooses the backend that runs ops on a device."""

import logging
from functools import cache
from importlib.util import find_spec

import torch
from peltier_backbone.native.choice import choose_kernels
from peltier_backbone.native.library import Library

from peltier_adapters.ops.backend import Backend
from peltier_adapters.ops.native import NativeBackend
from peltier_adapters.ops.torch import TORCH

logger = logging.getLogger(__name__)

_failed_devices: set[str] = set()


def choose_backend(device: torch.device, dtype: torch.dtype) -> Backend:
    """The backend for a backbone that computes in `dtype` on `device`. On a CPU it is that of the chosen kernels. On a
    GPU the first call compares the kernels with torch; if they are wrong or do not run, it logs that and chooses
    torch."""
    library = choose_kernels(dtype).library if device.type == "cpu" else None
    if library is not None:
        return _native(library)
    return _choose_elsewhere(device, dtype)


@cache
def _native(library: Library) -> Backend:
    return NativeBackend(library)


@cache
def _choose_elsewhere(device: torch.device, dtype: torch.dtype) -> Backend:
    """Triton or torch."""
    has_triton = device.type == "cuda" and not _failed_devices and find_spec("triton") is not None
    triton = _try_triton(device, dtype) if has_triton else None
    return TORCH if triton is None else triton


def _try_triton(device: torch.device, dtype: torch.dtype) -> Backend | None:
    try:
        from peltier_adapters.gpu.backend import TritonBackend  # needs Triton
        from peltier_adapters.gpu.self_check import check

        backend = TritonBackend(device, dtype)
        check(backend, device, dtype)
    except Exception as error:  # Triton, its compilers and the driver have no common error
        leave_out_kernels(device, error)
        return None
    return backend


def leave_out_kernels(device: torch.device, error: Exception) -> None:
    """Log that kernels do not work on a GPU. From now on torch is chosen, whatever the dtype."""
    logger.warning("the Triton kernels are left out: %s: %s", type(error).__name__, error)
    _failed_devices.add(device.type)
    _choose_elsewhere.cache_clear()
