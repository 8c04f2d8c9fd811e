"""Chooses the kernel of the frozen linear maps once, at start-up."""

import time

import torch
from torch import Tensor

from peltier_backbone.linear import Linear, PlainLinear
from peltier_backbone.native.library import knows, load_library
from peltier_backbone.native_linear import NativeLinear

Kernel = type[PlainLinear] | type[NativeLinear]

_ROUNDS = 7
# torch prepares a bfloat16 product for each number of tokens, and keeps it. So torch is taken if faster by this.
_WORTH_PREPARING = 1.25


def choose_linear(device: torch.device, dtype: torch.dtype) -> Kernel:
    """The kernel that suits this machine and `dtype`, by a trial of some milliseconds; `PlainLinear` off the CPU."""
    if device.type != "cpu":
        return PlainLinear
    seconds = _try(dtype)
    if NativeLinear in seconds:
        seconds[NativeLinear] /= _WORTH_PREPARING
    return min(seconds, key=seconds.__getitem__)


def slowdown(dtype: torch.dtype) -> float:
    """How many times as long products take in `dtype` as in float32 on this CPU, each by its fastest kernel."""
    return min(_try(dtype).values()) / min(_try(torch.float32).values())


def _try(dtype: torch.dtype) -> dict[Kernel, float]:
    """The seconds of each kernel that works on this machine."""
    weight, x = _example(dtype)
    plain = PlainLinear(weight, weight[:, 0])
    made: dict[Kernel, Linear] = {PlainLinear: plain}
    if load_library() is not None and knows(dtype):
        made[NativeLinear] = NativeLinear(weight, weight[:, 0])
    # The kernels take turns and are timed in CPU time, so that other load on the machine does not decide the result.
    rounds = [[_seconds(linear, x) for linear in made.values()] for _ in range(_ROUNDS)]
    return dict(zip(made, map(min, *rounds), strict=True))


def _example(dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """A weight and an input of medium size."""
    generator = torch.Generator().manual_seed(0)
    weight, x = torch.randn(1024, 512, generator=generator), torch.randn(256, 512, generator=generator)
    return weight.to(dtype), x.to(dtype)


@torch.inference_mode()
def _seconds(linear: Linear, x: Tensor) -> float:
    """The seconds of the two products that an encoder uses: a plain one and one with GELU."""
    start = time.process_time()
    linear(x)
    linear(x, "gelu")
    return time.process_time() - start
