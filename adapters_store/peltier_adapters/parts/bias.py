"""BitFit: a task's own biases in place of the backbone's (methods.md 1.10)."""

import torch
from peltier_backbone.load import Backbone
from torch import Tensor

from peltier_adapters.parts.part import Context, Part, Tensors
from peltier_adapters.spec import BiasSpec

_FUSED = ("query", "key", "value")


def init(spec: BiasSpec, backbone: Backbone, generator: torch.Generator) -> dict[str, Tensor]:
    """The backbone's own biases: the first forward is unchanged."""
    return {site: backbone_bias(site, backbone).clone() for site in spec.sites}


def backbone_bias(site: str, backbone: Backbone) -> Tensor:
    """The frozen biases of `site`, [L, width] ([hidden] for the pooler), in float32."""
    model = backbone.model
    if site == "pooler":
        assert model.pooler is not None, "presets and artifacts without a pooler are refused before"
        return model.pooler.bias.float()
    if site in _FUSED:
        hidden, column = backbone.config.hidden_size, _FUSED.index(site) * backbone.config.hidden_size
        fused = torch.stack([layer.query_key_value.bias for layer in model.layers])
        return fused[:, column : column + hidden].float()
    return torch.stack([getattr(layer, site).bias for layer in model.layers]).float()


class Bias(Part):
    """Biases of one slice, kept as differences [G, L, width] to what the frozen map has already added."""

    def __init__(self, spec: BiasSpec, tensors: Tensors, context: Context) -> None:
        self._context = context
        backbone = context.backbone
        deltas: dict[str, Tensor] = {
            site: tensors[site] - backbone_bias(site, backbone).to(tensors[site].device) for site in spec.sites
        }
        self.pooler = deltas.pop("pooler", None)
        if any(site in deltas for site in _FUSED):
            width = (*next(iter(deltas.values())).shape[:2], backbone.config.hidden_size)
            zeros = torch.zeros(width, device=backbone.device)
            deltas["query_key_value"] = torch.cat([deltas.pop(site, zeros) for site in _FUSED], -1)
        self._deltas = {site: delta.to(backbone.dtype) for site, delta in deltas.items()}
        self.projections = frozenset(self._deltas)

    def project(self, layer: int, site: str, x: Tensor, y: Tensor) -> None:
        if site in self._deltas:
            self._context.segments.add(y, self._deltas[site][:, layer])
