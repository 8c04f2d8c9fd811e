"""Bottleneck adapters: y + up(act(down(x))) at the output of a sub-layer (Houlsby et al. 2019, Pfeiffer et al. 2021;
docs/methods/houlsby.md)."""

from collections.abc import Iterator
from itertools import product
from typing import Literal

import torch
from peltier_backbone.backbone import Backbone
from torch import Tensor

from peltier_adapters.ops.op import FusedMatmul, Normed
from peltier_adapters.parts import gate, maps
from peltier_adapters.parts.part import Context, Tensors, normal, under
from peltier_adapters.spec.parts import BottleneckSpec

_SHARED_RULE_STD = 1e-4
# T5 adapters start closer to the identity than BERT's (docs/methods.md#initialisation).
_TEXT_STD, _ENCODER_STD = 0.01, 0.02
_SIDES = ("down", "up")
# The norm after each of BERT's sub-layers, counted within a layer; number 0 is the norm of the embeddings.
_NORM_AFTER = {"attention": 1, "ffn": 2}


def init(spec: BottleneckSpec, backbone: Backbone, generator: torch.Generator) -> dict[str, Tensor]:
    """Fresh tensors: an LPHM adapter starts as the identity to 1e-5, the others near it."""
    shapes, std = spec.shapes(backbone.config), _TEXT_STD if backbone.config.generates else _ENCODER_STD
    tensors = {name: torch.zeros(shape) for name, shape in shapes.items() if name.endswith("bias")}
    for side in _SIDES:
        own = {name.removeprefix(f"{side}."): shape for name, shape in shapes.items() if name.startswith(side)}
        tensors |= {f"{side}.{name}": tensor for name, tensor in maps.init(spec.map, own, std, generator).items()}
    if "rule" in shapes:
        tensors["rule"] = normal(shapes["rule"], _SHARED_RULE_STD, generator)
    return tensors | gate.init(shapes, generator)


def lower(spec: BottleneckSpec, tensors: Tensors, context: Context) -> Iterator[FusedMatmul]:
    """One op for each site of each block that has an adapter; tensors are [S, B, ...]."""
    rule, gates, device = tensors.get("rule"), gate.Gates(tensors), context.backbone.device
    downs, ups = (maps.lower(spec.map, under(f"{side}.", tensors), rule, device) for side in _SIDES)
    places = product(spec.sites, spec.blocks(context.backbone.config))
    for place, (down, up, (site, block)) in enumerate(zip(downs, ups, places, strict=True)):
        yield FusedMatmul(
            site, block, (*maps.activated(down, spec.activation), *up), reads=_reads(spec, site, block, context),
            gate=gates(place, f"bottleneck.{site}", block),
        )  # fmt: skip


def _reads(spec: BottleneckSpec, site: str, block: int, context: Context) -> Literal["x", "sum"] | Normed:
    match spec.input:
        case "output":
            return "x"
        case "sum":
            return "sum"
        case "normed":
            index = 2 * block + _NORM_AFTER[site]
            return Normed(index, context.backbone.model.norms()[index])


def build(spec: BottleneckSpec, tensors: Tensors) -> dict[str, Tensor]:
    """The tensors in their served form (`served_spec`)."""
    rule, built = tensors.get("rule"), {name: one for name, one in tensors.items() if name.startswith("gate.")}
    for side in _SIDES:
        own = maps.build(spec.map, under(f"{side}.", tensors), rule)
        built |= {f"{side}.{name}": one for name, one in own.items()}
    return built
