"""UniPELT's gate (section 3): a sigmoid of a linear score per token, averaged over the row's real tokens."""

import torch
from torch import Tensor

from peltier_adapters.map_spec import Shapes
from peltier_adapters.parts.part import Context, Tensors, normal


def init(shapes: Shapes, generator: torch.Generator) -> dict[str, Tensor]:
    """Gate tensors among `shapes`: weight N(0, 0.02^2), bias 0, so a gate starts near one half."""
    tensors = {name: normal(shape, 0.02, generator) for name, shape in shapes.items() if name == "gate.weight"}
    return tensors | {name: torch.zeros(shape) for name, shape in shapes.items() if name == "gate.bias"}


class Gate:
    """weight [G, …, L, hidden], bias [G, …, L]; the leading dimensions are the gated part's own (sites, targets)."""

    def __init__(self, name: str, tensors: Tensors, context: Context) -> None:
        dtype = context.backbone.dtype
        self._name, self._context = name, context
        self._weight, self._bias = tensors["gate.weight"].to(dtype), tensors["gate.bias"].to(dtype)

    def __call__(self, x: Tensor, *index: int, label: str = "") -> Tensor:
        """One value a row, [rows, 1], for the gate at `index` = (…, layer)."""
        segments = self._context.segments
        weight, bias = _at(self._weight, index), _at(self._bias, index)
        scores = segments.linear(x, weight[:, :, None], bias[:, None])
        gate = segments.row_mean(scores.float().sigmoid())
        if self._context.gates is not None:
            self._context.gates.setdefault(f"{self._name}.{label}" if label else self._name, []).append(gate[:, 0])
        return gate.to(x.dtype)


def _at(tensor: Tensor, index: tuple[int, ...]) -> Tensor:
    for number in index:
        tensor = tensor[:, number]
    return tensor
