"""UniPELT's central gate over LoRA and the prefix of one adapter (methods.md 1.14)."""

import torch
from peltier_backbone.load import Backbone
from torch import Tensor

from peltier_adapters.parts.part import Context, Part, Tensors, normal
from peltier_adapters.spec import CentralGateSpec


def init(spec: CentralGateSpec, backbone: Backbone, generator: torch.Generator) -> dict[str, Tensor]:
    """Weight N(0, 0.02^2), bias 0: both shares start near one half."""
    shapes = spec.shapes(backbone.config)
    return {"weight": normal(shapes["weight"], 0.02, generator), "bias": torch.zeros(shapes["bias"])}


class CentralGate(Part):
    """Changes nothing by itself: the parts after it find their shares in the context."""

    def __init__(self, spec: CentralGateSpec, tensors: Tensors, context: Context) -> None:
        dtype = context.backbone.dtype
        context.central = tensors["weight"].to(dtype), tensors["bias"].to(dtype)
