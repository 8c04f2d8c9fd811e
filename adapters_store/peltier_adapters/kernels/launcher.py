"""All kernels for one slice of a batch: what `Segments` and parts call on a GPU."""

from collections.abc import Sequence

import torch
from torch import Tensor

from peltier_adapters.kernels import linear, lora
from peltier_adapters.kernels.runs import create_runs


class Launcher:
    """Kernels over groups of `lengths` tokens; weights carry a leading group dimension, as everywhere in parts."""

    def __init__(self, lengths: Sequence[int], device: torch.device) -> None:
        self.runs = create_runs(lengths, range(len(lengths)), device)

    def linear(self, x: Tensor, weight: Tensor, bias: Tensor | None, fold: int) -> Tensor:
        """As `Segments.linear`."""
        return linear.linear(_side_by_side(x), _side_by_side(weight), bias, self.runs, fold)

    def add_linear(self, y: Tensor, x: Tensor, weight: Tensor, fold: int) -> None:
        """As `Segments.add_linear`."""
        linear.add_linear(y, _side_by_side(x), _side_by_side(weight), self.runs, fold)

    def lora(self, y: Tensor, x: Tensor, down: Tensor, up: Tensor, scale: Tensor | None) -> None:
        """y += scale (x down) up, in place; `scale` is [tokens, 1]."""
        lora.lora(y, x, down, up, self.runs, scale)


def _side_by_side(tensor: Tensor) -> Tensor:
    """With rows as kernels read them; a few folded factors come transposed."""
    return tensor if tensor.shape[-1] == 1 or tensor.stride(-1) == 1 else tensor.contiguous()
