"""Prefix tuning: P extra keys and values in every attention (Li and Liang 2021; docs/methods/prefix.md), gated as in
UniPELT."""

from collections.abc import Iterator

import torch
from peltier_backbone.backbone import Backbone
from torch import Tensor

from peltier_adapters.ops.op import PrefixKeys
from peltier_adapters.parts import gate
from peltier_adapters.parts.part import LoweringContext, PartTensors, normal
from peltier_adapters.spec.parts import PrefixSpec


def init(spec: PrefixSpec, backbone: Backbone, generator: torch.Generator) -> dict[str, Tensor]:
    """Fresh keys and values N(0, 0.02^2). Training usually draws them through an MLP instead."""
    shapes = spec.shapes(backbone.config)
    drawn = {name: normal(shapes[name], 0.02, generator) for name in ("keys", "values")}
    return drawn | gate.init(shapes, generator)


def lower(spec: PrefixSpec, tensors: PartTensors, context: LoweringContext) -> Iterator[PrefixKeys]:
    """One op for each attention; keys and values are [A, P, width]. They shift no position and change no query."""
    config = context.backbone.config
    attentions = spec.attentions(config)
    gates = gate.find_gates("prefix", attentions, tensors, context)
    heads = (len(attentions), spec.length, config.num_heads, config.head_size)
    keys, values = (tensors[name].view(heads).transpose(1, 2).unbind() for name in ("keys", "values"))
    for place, (number, key, value) in enumerate(zip(attentions, keys, values, strict=True)):
        yield PrefixKeys(number, key, value, gates(place, "prefix", number))
