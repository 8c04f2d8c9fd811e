"""The tensors of a checkpoint while a model is built: each is taken once, and its shape and values are checked."""

import math
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from peltier_backbone.errors import BackboneError


@dataclass
class Weights:
    """The tensors of the checkpoint in `directory` that are not taken yet, by their canonical names."""

    tensors: dict[str, Tensor]
    directory: Path

    def __contains__(self, name: str) -> bool:
        return name in self.tensors

    def take(self, name: str, *shape: int) -> Tensor:
        """Remove and return tensor `name`; raises a `BackboneError` if it is missing, has not this `shape`, or has
        values that are not finite in its dtype."""
        if name not in self.tensors:
            raise BackboneError(f"{self.directory}: tensor {name!r} is missing")
        tensor = self.tensors.pop(name)
        if tuple(tensor.shape) != shape:
            raise BackboneError(
                f"{self.directory}: tensor {name!r} has shape {tuple(tensor.shape)}, the configuration says {shape}"
            )
        if not is_finite(tensor):
            precision = str(tensor.dtype).removeprefix("torch.")
            raise BackboneError(f"{self.directory}: tensor {name!r} has values that are NaN or infinite in {precision}")
        return tensor

    def finish(self, model: str) -> None:
        """Raise a `BackboneError` if tensors are left: the checkpoint's own model uses them and answers differently."""
        if self.tensors:
            raise BackboneError(
                f"{self.directory}: {len(self.tensors)} tensors have no place in a {model}, "
                f"such as {min(self.tensors)!r}"
            )


def is_finite(tensor: Tensor) -> bool:
    """Whether no value of a floating-point tensor is NaN or infinite. It reads the tensor once and takes no memory; a
    test of each value takes thirty times as long."""
    if tensor.is_meta or not tensor.numel():  # sizes alone, or nothing
        return True
    return all(math.isfinite(bound) for bound in torch.stack(tensor.aminmax()).tolist())
