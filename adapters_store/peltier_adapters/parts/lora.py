"""LoRA on the attention projections: y + alpha / r * x A B (Hu et al. 2021; docs/methods.md#lora). A gate replaces the
scale (docs/methods.md#unipelt)."""

from collections.abc import Iterator
from itertools import product

import torch
from peltier_backbone.load import Backbone
from torch import Tensor

from peltier_adapters.ops.op import FusedMatmul, MatmulStep
from peltier_adapters.parts import gate
from peltier_adapters.parts.part import Context, Tensors, projection
from peltier_adapters.spec.parts import LoraSpec


def init(spec: LoraSpec, backbone: Backbone, generator: torch.Generator) -> dict[str, Tensor]:
    """Fresh tensors: down U(+-1/sqrt(in)), up 0, so the first forward pass is the backbone's own."""
    shapes = spec.shapes(backbone.config)
    bound = backbone.config.hidden_size**-0.5
    down = torch.empty(shapes["down"]).uniform_(-bound, bound, generator=generator)
    return {"down": down, "up": torch.zeros(shapes["up"])} | gate.init(shapes, generator)


def lower(spec: LoraSpec, tensors: Tensors, context: Context) -> Iterator[FusedMatmul]:
    """One op for each target of each attention; down is [K, A, hidden, r], up [K, A, r, width]."""
    config = context.backbone.config
    attentions = spec.attentions(config)
    gates = gate.find_gates("lora", attentions, tensors, context)
    downs, ups = (tensors[name].flatten(0, 1).unbind() for name in ("down", "up"))
    places = product(spec.targets, attentions)
    for place, (down, up, (target, attention)) in enumerate(zip(downs, ups, places, strict=True)):
        site, column = projection(target, attention, config)
        own = gates(place, f"lora.{target}", attention)
        gain = spec.alpha / spec.rank if own is None else 1.0
        yield FusedMatmul(site, attention, (MatmulStep(down), MatmulStep(up)), column=column, gain=gain, gate=own)
