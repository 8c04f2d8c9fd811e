"""What an importer makes of one mechanism: a part's spec and its tensors."""

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
        """The tensors as an artifact names them, `part.tensor`."""
        return {f"{self.spec.kind}.{name}": tensor for name, tensor in self.tensors.items()}


def grown(tensor: Tensor, *shape: int) -> Tensor:
    """`tensor` with zeros behind it in each dimension, up to `shape`, into which it must fit."""
    missing = [want - have for want, have in zip(shape, tensor.shape, strict=True)]
    if any(amount < 0 for amount in missing):  # padding by a negative amount would cut values off
        raise AdapterError(f"a tensor of shape {list(tensor.shape)} does not fit where {list(shape)} is wanted")
    return F.pad(tensor, [size for amount in reversed(missing) for size in (0, amount)])


At = TypeVar("At", bound=tuple[int, ...])


def stacked(found: Mapping[At, Tensor], leading: tuple[int, ...], shape: tuple[int, ...]) -> Tensor:
    """Tensors by place as one, [*leading, *shape]; zeros where there is none, and behind smaller ones."""
    result = torch.zeros(*leading, *shape)
    for place, tensor in found.items():
        result[place] = grown(tensor, *shape)
    return result
