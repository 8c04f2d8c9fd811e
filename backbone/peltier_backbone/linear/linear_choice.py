"""Chooses the kernel of the frozen linear maps."""

import torch

from peltier_backbone.linear.linear import PlainLinear
from peltier_backbone.linear.native_linear import NativeLinear
from peltier_backbone.native.choice import choose_kernels

Kernel = type[PlainLinear] | type[NativeLinear]


def choose_linear(device: torch.device, dtype: torch.dtype) -> Kernel:
    """The kernel that computes in `dtype` on `device`; `PlainLinear` off the CPU."""
    native = device.type == "cpu" and choose_kernels(dtype).library is not None
    return NativeLinear if native else PlainLinear
