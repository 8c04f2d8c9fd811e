"""IA3: learned factors of keys, values and the inner states of feed-forward layers (Liu et al. 2022, section 3.3;
docs/methods/ia3.md)."""

from collections.abc import Iterator

import torch
from peltier_backbone.backbone import Backbone
from peltier_backbone.checkpoint.config import BackboneConfig
from torch import Tensor

from peltier_adapters.ops.op import Scaled
from peltier_adapters.parts.part import LoweringContext, PartTensors, projection
from peltier_adapters.spec.parts import ScaleSite, ScaleSpec


def init(spec: ScaleSpec, backbone: Backbone, generator: torch.Generator) -> dict[str, Tensor]:
    """Ones: the first forward pass is the backbone's own."""
    return {site: torch.ones(shape) for site, shape in spec.shapes(backbone.config).items()}


def lower(spec: ScaleSpec, tensors: PartTensors, context: LoweringContext) -> Iterator[Scaled]:
    """One op for each site of each layer: [L, width]."""
    config = context.backbone.config
    for site in spec.sites:
        for number, factor in zip(spec.numbers(site, config), tensors[site].unbind(), strict=True):
            place, column = _place(site, number, config)
            yield Scaled(place, number, factor, column)


def _place(site: ScaleSite, number: int, config: BackboneConfig) -> tuple[str, int]:
    match site:
        case "query" | "key" | "value":
            return projection(site, number, config)
        case "activated" if config.expansion_size > config.intermediate_size:
            # In a gated layer the second half of `intermediate` multiplies the activated half.
            return "intermediate", config.intermediate_size
        case _:
            return site, 0
