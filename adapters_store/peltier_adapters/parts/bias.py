"""BitFit: a task's own biases replace the backbone's (Ben Zaken et al. 2022; docs/methods.md#bitfit)."""

from collections.abc import Iterator

import torch
from peltier_backbone.config import BackboneConfig
from peltier_backbone.load import Backbone
from torch import Tensor

from peltier_adapters.ops.op import AddedBias
from peltier_adapters.parts.part import Context, Tensors, projection
from peltier_adapters.spec.parts import BiasSite, BiasSpec

_FUSED = ("query", "key", "value")


def init(spec: BiasSpec, backbone: Backbone, generator: torch.Generator) -> dict[str, Tensor]:
    """The backbone's own biases, or zeros if it has none (T5): the first forward pass is the backbone's own."""
    shapes = spec.shapes(backbone.config)
    return {site: backbone_bias(site, backbone, shape).clone() for site, shape in shapes.items()}


def backbone_bias(site: str, backbone: Backbone, shape: tuple[int, ...]) -> Tensor:
    """The frozen biases of `site`, [L, width] ([hidden] for the pooler), in float32."""
    if backbone.config.generates:
        return torch.zeros(shape, device=backbone.device)
    model = backbone.bert
    if site == "pooler":
        assert model.pooler is not None, "presets and artifacts without a pooler are refused before"
        return model.pooler.bias.float()
    if site in _FUSED:
        hidden, column = backbone.config.hidden_size, _FUSED.index(site) * backbone.config.hidden_size
        fused = torch.stack([layer.query_key_value.bias for layer in model.layers])
        return fused[:, column : column + hidden].float()
    return torch.stack([getattr(layer, site).bias for layer in model.layers]).float()


def lower(spec: BiasSpec, tensors: Tensors, context: Context) -> Iterator[AddedBias]:
    """One op for each site of each layer: [L, width], or [width] at the pooler and at T5's output layer."""
    backbone = context.backbone
    for site in spec.sites:
        own = tensors[site] if tensors[site].dim() > 1 else tensors[site][None]
        frozen = None if backbone.config.generates else backbone_bias(site, backbone, tuple(tensors[site].shape))
        replaced = [None] * len(own) if frozen is None else frozen.view(own.shape).to(backbone.device).unbind()
        for number, (bias, base) in enumerate(zip(own.unbind(), replaced, strict=True)):
            place, column = _place(site, number, backbone.config)
            yield AddedBias(place, number, bias, base, column)


def _place(site: BiasSite, number: int, config: BackboneConfig) -> tuple[str, int]:
    match site:
        case "query" | "key" | "value":
            return projection(site, number, config)
        case _:
            return site, 0
