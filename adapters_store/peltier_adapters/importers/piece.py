"""What an importer makes of one mechanism: a part's spec and its tensors."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor
from torch.nn import functional as F

from peltier_adapters.spec import PartSpec


@dataclass(frozen=True)
class Piece:
    """A part and exactly the tensors that its spec names."""

    spec: PartSpec
    tensors: Mapping[str, Tensor]

    def named(self) -> dict[str, Tensor]:
        """The tensors as an artifact names them, `part.tensor`."""
        return {f"{self.spec.kind}.{name}": tensor for name, tensor in self.tensors.items()}


@dataclass(frozen=True)
class Gate:
    """A linear score per token: weight [hidden], bias []."""

    weight: Tensor
    bias: Tensor


def grown(tensor: Tensor, *shape: int) -> Tensor:
    """`tensor` with zeros behind it in each dimension, up to `shape`."""
    missing = [want - have for want, have in zip(shape, tensor.shape, strict=True)]
    return F.pad(tensor, [size for amount in reversed(missing) for size in (0, amount)])


At = TypeVar("At", bound=tuple[int, ...])


def stacked(found: Mapping[At, Tensor], leading: tuple[int, ...], shape: tuple[int, ...]) -> Tensor:
    """Tensors by place as one, [*leading, *shape]; zeros where there is none, and behind smaller ones."""
    result = torch.zeros(*leading, *shape)
    for place, tensor in found.items():
        result[place] = grown(tensor, *shape)
    return result


def stacked_gates(found: Mapping[At, Gate], leading: tuple[int, ...], hidden: int) -> dict[str, Tensor]:
    """The gate tensors of a part; none where nothing is gated."""
    if not found:
        return {}
    weights = {place: gate.weight for place, gate in found.items()}
    biases = {place: gate.bias for place, gate in found.items()}
    return {
        "gate.weight": stacked(weights, leading, (hidden,)),
        "gate.bias": stacked(biases, leading, ()),
    }
