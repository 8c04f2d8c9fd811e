"""BitFit: a task's own biases in place of the backbone's (methods.md 1.10)."""

import torch
from peltier_backbone.load import Backbone
from torch import Tensor

from peltier_adapters.parts.part import Context, Part
from peltier_adapters.spec import BiasSpec
from peltier_adapters.tensors import Tensors

_FUSED = ("query", "key", "value")


def init(spec: BiasSpec, backbone: Backbone, generator: torch.Generator) -> dict[str, Tensor]:
    """The backbone's own biases, zeros where it has none (T5): the first forward is unchanged."""
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


class Bias(Part):
    """Biases of one slice, kept as differences [G, layers, width] to what the frozen map has already added."""

    def __init__(self, spec: BiasSpec, tensors: Tensors, context: Context) -> None:
        self._context = context
        backbone = context.backbone
        deltas: dict[str, Tensor] = {
            site: tensors[site] - backbone_bias(site, backbone, shape).to(backbone.device)
            for site, shape in spec.shapes(backbone.config).items()
        }
        self.pooler = deltas.pop("pooler", None)
        if "lm_head" in deltas:
            deltas["lm_head"] = deltas["lm_head"][:, None]  # one layer
        deltas |= self._fused({site: deltas.pop(site) for site in _FUSED if site in deltas})
        self._deltas = {site: delta.to(context.dtype) for site, delta in deltas.items()}
        self.projections = frozenset(self._deltas)

    def _fused(self, own: dict[str, Tensor]) -> dict[str, Tensor]:
        """Query, key and value as the backbone computes them: together, and apart in T5's cross-attention."""
        if not own:
            return {}
        zeros = torch.zeros_like(next(iter(own.values())))
        fused = torch.cat([own.get(site, zeros) for site in _FUSED], -1)
        if not self._context.backbone.config.generates:
            return {"query_key_value": fused}
        query, key_value = torch.split(fused, [zeros.shape[-1], 2 * zeros.shape[-1]], -1)
        return {"query_key_value": fused, "query": query, "key_value": key_value}

    def project(self, layer: int, site: str, x: Tensor, y: Tensor) -> None:
        if site in self._deltas:
            self._context.segments.add(y, self._deltas[site][:, layer])
