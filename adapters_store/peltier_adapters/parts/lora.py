"""LoRA on linear maps: y + alpha / r * x A B (Hu et al. 2021; docs/methods/lora.md). A gate replaces the scale
(docs/methods/unipelt.md)."""

from collections.abc import Iterator
from itertools import product

import torch
from peltier_backbone.backbone import Backbone
from peltier_backbone.checkpoint.config import BackboneConfig
from torch import Tensor

from peltier_adapters.ops.op import FusedMatmul, MatmulStep
from peltier_adapters.parts import gate
from peltier_adapters.parts.part import LoweringContext, PartTensors, projection
from peltier_adapters.spec.parts import LoraSpec, LoraStack


def init(spec: LoraSpec, backbone: Backbone, generator: torch.Generator) -> dict[str, Tensor]:
    """Fresh tensors: down U(+-1/sqrt(in)), up 0, so the first forward pass is the backbone's own."""
    shapes = spec.shapes(backbone.config)
    tensors = {name: torch.zeros(shape) for name, shape in shapes.items() if name.startswith(("down", "up"))}
    for name, tensor in tensors.items():
        if name.startswith("down"):
            bound = tensor.shape[-2] ** -0.5
            tensor.uniform_(-bound, bound, generator=generator)
    return tensors | gate.init(shapes, generator)


def lower(spec: LoraSpec, tensors: PartTensors, context: LoweringContext) -> Iterator[FusedMatmul]:
    """One op for each map of each attention and block."""
    for stack in spec.stacks(context.backbone.config):
        yield from _lower(spec, stack, stack.find(tensors), context)


def _lower(spec: LoraSpec, stack: LoraStack, tensors: PartTensors, context: LoweringContext) -> Iterator[FusedMatmul]:
    config, gates = context.backbone.config, gate.find_gates("lora", stack.numbers, tensors, context)
    downs, ups = (tensors[name].flatten(0, 1).unbind() for name in ("down", "up"))
    places = product(range(len(stack.maps)), stack.numbers)
    for place, (down, up, (which, number)) in enumerate(zip(downs, ups, places, strict=True)):
        site, column = _site(stack, which, number, config)
        own = gates(place, _label(stack, which), number)
        gain = spec.alpha / spec.rank if own is None else 1.0
        yield FusedMatmul(site, number, (MatmulStep(down), MatmulStep(up)), column=column, gain=gain, gate=own)


def _site(stack: LoraStack, which: int, number: int, config: BackboneConfig) -> tuple[str, int]:
    """The backbone's projection that computes map number `which` of a stack, and the map's first column in it."""
    match stack.maps[which]:
        case "intermediate":
            return "intermediate", which * stack.after
        case "ffn_output":
            return "output", 0
        case target:
            return projection(target, number, config)


def _label(stack: LoraStack, which: int) -> str:
    """The name of a map's gate; the maps of a gated `intermediate` are numbered."""
    target = stack.maps[which]
    return f"lora.{target}.{which}" if stack.maps.count(target) > 1 else f"lora.{target}"
