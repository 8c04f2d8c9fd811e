"""UniPELT's gates (section 3): a part's own, a sigmoid of a linear score per token, averaged over the row's real
tokens; or one of the central gate's two outputs."""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from peltier_adapters.map_spec import Shapes
from peltier_adapters.parts.part import Context, normal
from peltier_adapters.tensors import Tensors


def init(shapes: Shapes, generator: torch.Generator) -> dict[str, Tensor]:
    """Gate tensors among `shapes`: weight N(0, 0.02^2), bias 0, so a gate starts near one half."""
    tensors = {name: normal(shape, 0.02, generator) for name, shape in shapes.items() if name == "gate.weight"}
    return tensors | {name: torch.zeros(shape) for name, shape in shapes.items() if name == "gate.bias"}


# One value a row, [rows, 1], for the gate at `index` = (…, layer) given that layer's input.
AnyGate = Callable[..., Tensor]


class Gate:
    """weight [G, …, L, hidden], bias [G, …, L]; the leading dimensions are the gated part's own (sites, targets)."""

    def __init__(self, name: str, tensors: Tensors, context: Context) -> None:
        dtype = context.dtype
        self._name, self._context = name, context
        self._weight, self._bias = tensors["gate.weight"].to(dtype), tensors["gate.bias"].to(dtype)

    def __call__(self, x: Tensor, *index: int, label: str = "", layer: int | None = None) -> Tensor:
        """One value a row, [rows, 1], for the gate at `index` = (…, layer); where `index` counts only the layers that
        have a gate, `layer` is the one it is of."""
        gate = self._context.segments.gate(x, _at(self._weight, index), _at(self._bias, index))
        _record(
            gate, f"{self._name}.{label}" if label else self._name, index[-1] if layer is None else layer, self._context
        )
        return gate.to(self._context.dtype)


class CentralShare:
    """What the central gate gives one part (methods.md 1.14): its column of the softmax."""

    def __init__(self, name: Literal["lora", "prefix"], weight: Tensor, bias: Tensor, context: Context) -> None:
        self._name, self._weight, self._bias, self._context = name, weight, bias, context
        self._column = ("lora", "prefix").index(name)

    def __call__(self, x: Tensor, *index: int, label: str = "") -> Tensor:
        segments, layer = self._context.segments, index[-1]
        scores = segments.linear(x, self._weight[:, layer], self._bias[:, layer])  # [tokens, 2]
        shares = segments.row_mean(scores.float().relu()).softmax(-1)
        share = shares[:, self._column : self._column + 1]
        _record(share, f"{self._name}.{label}" if label else self._name, layer, self._context)
        return share.to(self._context.dtype)


def read_central(tensors: Tensors, dtype: torch.dtype) -> tuple[Tensor, Tensor] | None:
    """The central gate among all tensors of a slice's adapters."""
    found = tensors.get("central_gate.weight"), tensors.get("central_gate.bias")
    return None if found[0] is None or found[1] is None else (found[0].to(dtype), found[1].to(dtype))


def find_gate(name: Literal["lora", "prefix"], tensors: Tensors, context: Context) -> AnyGate | None:
    """What scales a part: its share of the central gate, its own gate, or nothing."""
    if context.central is not None:
        return CentralShare(name, *context.central, context)
    return Gate(name, tensors, context) if "gate.weight" in tensors else None


def _record(gate: Tensor, name: str, layer: int, context: Context) -> None:
    if context.gates is not None:
        context.gates.setdefault(name, {})[layer] = gate[:, 0]


def _at(tensor: Tensor, index: tuple[int, ...]) -> Tensor:
    for number in index:
        tensor = tensor[:, number]
    return tensor
