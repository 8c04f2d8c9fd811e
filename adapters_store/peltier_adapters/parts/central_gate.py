"""UniPELT's central gate over LoRA and the prefix of one adapter, as in the authors' code (`add_central_gate`;
docs/methods/unipelt.md). Both parts read it through `gate.CentralShares`."""

import torch
from peltier_backbone.backbone import Backbone
from torch import Tensor

from peltier_adapters.parts.part import normal
from peltier_adapters.spec.parts import CentralGateSpec


def init(spec: CentralGateSpec, backbone: Backbone, generator: torch.Generator) -> dict[str, Tensor]:
    """Fresh tensors: weight N(0, 0.02^2), bias 0, so both shares start near one half."""
    shapes = spec.shapes(backbone.config)
    return {"weight": normal(shapes["weight"], 0.02, generator), "bias": torch.zeros(shapes["bias"])}
