"""Where the kernels of this folder are used. Imports neither Triton nor anything that does."""

from functools import cache
from importlib.util import find_spec

import torch
from peltier_backbone.native import library

# What is between two maps stays in registers, so it must not be wider.
MAX_SIZE = 64


def use_kernels(device: torch.device) -> bool:
    """On a GPU, where Triton is installed."""
    return device.type == "cuda" and _installed()


def kernel_name(device: torch.device) -> str:
    """What `/info` shows."""
    if use_kernels(device):
        return "triton"
    native = library.load_library() if device.type == "cpu" else None
    return "torch" if native is None else f"native-{native.name}"


@cache
def _installed() -> bool:
    return find_spec("triton") is not None
