"""Assembling a model: each tensor of a checkpoint is taken once, with the shape that the configuration says."""

from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from peltier_backbone.errors import BackboneError


@dataclass
class Weights:
    """Tensors of the checkpoint in `directory` that are not yet consumed, by their canonical names."""

    tensors: dict[str, Tensor]
    directory: Path

    def __contains__(self, name: str) -> bool:
        return name in self.tensors

    def take(self, name: str, *shape: int) -> Tensor:
        """Tensor `name`, which must be there and of `shape`."""
        if name not in self.tensors:
            raise BackboneError(f"{self.directory}: tensor {name!r} is missing")
        tensor = self.tensors.pop(name)
        if tuple(tensor.shape) != shape:
            raise BackboneError(
                f"{self.directory}: tensor {name!r} has shape {tuple(tensor.shape)}, the configuration says {shape}"
            )
        return tensor

    def finish(self, model: str) -> None:
        """Refuse what is left over: it would change the answers of the checkpoint's own model."""
        if self.tensors:
            raise BackboneError(
                f"{self.directory}: {len(self.tensors)} tensors have no place in a {model}, "
                f"such as {min(self.tensors)!r}"
            )
