"""UniPELT's gates (Mao et al. 2022, section 3; docs/methods/unipelt.md): a part's own gates, or the central gate over
LoRA and the prefix of one adapter, as in the authors' code (`add_central_gate`)."""

from collections.abc import Sequence
from typing import Literal

import torch
from peltier_backbone.backbone import Backbone
from torch import Tensor

from peltier_adapters.ops.op import Gate
from peltier_adapters.parts.part import LoweringContext, PartTensors, normal
from peltier_adapters.spec.maps import Shapes
from peltier_adapters.spec.parts import CentralGateSpec

_CENTRAL = ("lora", "prefix")


def init(shapes: Shapes, generator: torch.Generator) -> dict[str, Tensor]:
    """Gate tensors among `shapes`: weight N(0, 0.02^2), bias 0, so a gate starts near one half."""
    return {
        name: normal(shape, 0.02, generator) if name.startswith("gate.weight") else torch.zeros(shape)
        for name, shape in shapes.items()
        if name.startswith("gate.")
    }


class PartGates:
    """The gates of one part by place; its gate tensors are [..., hidden] and [...]."""

    def __init__(self, tensors: PartTensors) -> None:
        self._weights, self._biases = _leaves(tensors, "gate.weight", 1), _leaves(tensors, "gate.bias", 0)

    def __call__(self, place: int, label: str, number: int) -> Gate | None:
        """The gate of place number `place`, counted through all leading dimensions; None if the part has no gates."""
        if not self._weights:
            return None
        return Gate(label, number, self._weights[place], self._biases[place])


class CentralShares:
    """The share by which the central gate scales LoRA or the prefix in each of `attentions`."""

    def __init__(
        self, part: Literal["lora", "prefix"], attentions: Sequence[int], weight: Tensor, bias: Tensor
    ) -> None:  # fmt: skip
        self._column = _CENTRAL.index(part)
        self._shares = dict(zip(attentions, zip(weight.unbind(), bias.unbind(), strict=True), strict=True))

    def __call__(self, place: int, label: str, number: int) -> Gate:
        """The share in attention `number`, which is the same for every `place`."""
        return Gate(label, number, *self._shares[number], self._column)


def find_gates(
    part: Literal["lora", "prefix"], attentions: Sequence[int], tensors: PartTensors, context: LoweringContext
) -> PartGates | CentralShares:
    """The gates that scale a part in `attentions`: its share of the central gate, or its own gates, which may be
    none."""
    return PartGates(tensors) if context.central is None else CentralShares(part, attentions, *context.central)


def _leaves(tensors: PartTensors, name: str, trailing: int) -> tuple[Tensor, ...]:
    found = tensors.get(name)
    return () if found is None else found.flatten(0, found.dim() - trailing - 1).unbind()


def init_central(spec: CentralGateSpec, backbone: Backbone, generator: torch.Generator) -> dict[str, Tensor]:
    """Fresh tensors: weight N(0, 0.02^2), bias 0, so both shares start near one half."""
    shapes = spec.shapes(backbone.config)
    return {"weight": normal(shapes["weight"], 0.02, generator), "bias": torch.zeros(shapes["bias"])}
