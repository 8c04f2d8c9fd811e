"""BitFit: a task's own biases replace the backbone's (Ben Zaken et al. 2022; docs/methods/bitfit.md)."""

from collections.abc import Iterator

import torch
from peltier_backbone.backbone import Backbone
from peltier_backbone.bert.bert import Bert
from peltier_backbone.checkpoint.config import BackboneConfig
from torch import Tensor

from peltier_adapters.ops.op import AddedBias
from peltier_adapters.parts.part import LoweringContext, PartTensors, projection
from peltier_adapters.spec.parts import BiasSite, BiasSpec

_FUSED = ("query", "key", "value")


def init(spec: BiasSpec, backbone: Backbone, generator: torch.Generator) -> dict[str, Tensor]:
    """The backbone's own biases, or zeros if it has none: the first forward pass is the backbone's own."""
    return {site: backbone_bias(spec, site, backbone).clone() for site in spec.sites}


def backbone_bias(spec: BiasSpec, site: BiasSite, backbone: Backbone) -> Tensor:
    """The frozen biases that the part replaces at `site`, [L, width] ([hidden] for the pooler), in float32."""
    config = backbone.config
    if not config.biased:
        return torch.zeros(spec.shapes(config)[site], device=backbone.device)
    model = backbone.model
    assert isinstance(model, Bert), "no other model has biases"
    if site == "pooler":
        assert model.pooler is not None, "presets and artifacts without a pooler are refused before"
        return model.pooler.bias.float()
    layers = [model.layers[number] for number in spec.numbers(site, config)]
    if site in _FUSED:
        hidden, column = config.hidden_size, _FUSED.index(site) * config.hidden_size
        fused = torch.stack([layer.query_key_value.bias for layer in layers])
        return fused[:, column : column + hidden].float()
    return torch.stack([getattr(layer, site).bias for layer in layers]).float()


def lower(spec: BiasSpec, tensors: PartTensors, context: LoweringContext) -> Iterator[AddedBias]:
    """One op for each site of each layer: [L, width], or [width] at the pooler and at T5's output layer."""
    backbone = context.backbone
    for site in spec.sites:
        own = tensors[site] if tensors[site].dim() > 1 else tensors[site][None]
        frozen = backbone_bias(spec, site, backbone) if backbone.config.biased else None
        replaced = [None] * len(own) if frozen is None else frozen.view(own.shape).to(backbone.device).unbind()
        numbers = spec.numbers(site, backbone.config)
        for number, bias, base in zip(numbers, own.unbind(), replaced, strict=True):
            place, column = _place(site, number, backbone.config)
            yield AddedBias(place, number, bias, base, column)


def _place(site: BiasSite, number: int, config: BackboneConfig) -> tuple[str, int]:
    match site:
        case "query" | "key" | "value":
            return projection(site, number, config)
        case _:
            return site, 0
