"""A task's own LayerNorm weights in place of the backbone's (methods-quirks Q-C2; BitFit's norm biases)."""

import torch
from peltier_backbone.load import Backbone
from torch import Tensor

from peltier_adapters.parts.part import Context, Part, Tensors
from peltier_adapters.spec import NormSpec


def init(spec: NormSpec, backbone: Backbone, generator: torch.Generator) -> dict[str, Tensor]:
    """The backbone's own weights: the first forward is unchanged."""
    return {name: backbone_norms(name, backbone).clone() for name in spec.shapes(backbone.config)}


def backbone_norms(name: str, backbone: Backbone) -> Tensor:
    """Frozen norm weights or biases, [norms, hidden], in float32."""
    return torch.stack([getattr(norm, name) for norm in backbone.model.norms()]).float()


class Norm(Part):
    """Norms of one slice, [G, norms, hidden]; what the task leaves alone is the backbone's."""

    has_norm = True

    def __init__(self, spec: NormSpec, tensors: Tensors, context: Context) -> None:
        self._segments = context.segments
        self._weight, self._bias = (self._values(name, tensors, context) for name in ("weight", "bias"))

    @staticmethod
    def _values(name: str, tensors: Tensors, context: Context) -> Tensor:
        dtype = context.backbone.dtype
        if name in tensors:
            return tensors[name].to(dtype)
        base = backbone_norms(name, context.backbone).to(dtype)
        return base.expand(context.segments.num_groups, -1, -1)

    def norm(self, index: int, x: Tensor, eps: float) -> Tensor:
        return self._segments.norm(x, self._weight[:, index], self._bias[:, index], eps)
