"""One imported part: its spec and its tensors."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor
from torch.nn import functional as F

from peltier_adapters.errors import AdapterError
from peltier_adapters.spec.parts import PartSpec


@dataclass(frozen=True)
class ImportedPart:
    """A part and exactly the tensors that its spec names."""

    spec: PartSpec
    tensors: Mapping[str, Tensor]

    def named(self) -> dict[str, Tensor]:
        """The tensors with the names of an artifact, `part.tensor`."""
        return {f"{self.spec.kind}.{name}": tensor for name, tensor in self.tensors.items()}


def grown(tensor: Tensor, *shape: int) -> Tensor:
    """`tensor` padded with zeros at the end of each dimension, up to `shape`, into which it must fit."""
    missing = [want - have for want, have in zip(shape, tensor.shape, strict=True)]
    if any(amount < 0 for amount in missing):  # a negative padding would remove values
        raise AdapterError(f"a tensor of shape {list(tensor.shape)} does not fit into {list(shape)}")
    return F.pad(tensor, [size for amount in reversed(missing) for size in (0, amount)])


At = TypeVar("At", bound=tuple[int, ...])


def stacked(found: Mapping[At, Tensor], leading: tuple[int, ...], shape: tuple[int, ...]) -> Tensor:
    """One tensor [*leading, *shape] of tensors by place, padded with zeros for missing and smaller ones."""
    result = torch.zeros(*leading, *shape)
    for place, tensor in found.items():
        result[place] = grown(tensor, *shape)
    return result
