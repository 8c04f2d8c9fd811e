"""A task's own norm weights in place of the backbone's (methods-quirks Q-C2; BitFit's norm biases)."""

import torch
from peltier_backbone.load import Backbone
from torch import Tensor

from peltier_adapters.parts.part import Context, Part
from peltier_adapters.segments import Reweighted
from peltier_adapters.spec import NormSpec
from peltier_adapters.tensors import Tensors


def init(spec: NormSpec, backbone: Backbone, generator: torch.Generator) -> dict[str, Tensor]:
    """The backbone's own weights, and zeros where it has no bias: the first forward is unchanged."""
    tensors = {}
    for name, shape in spec.shapes(backbone.config).items():
        own = backbone_norms(name, backbone)
        tensors[name] = torch.zeros(shape) if own is None else own.clone()
    return tensors


def backbone_norms(name: str, backbone: Backbone) -> Tensor | None:
    """Frozen norm weights or biases, [norms, hidden], in float32; None for the biases that T5 does not have."""
    if name == "bias" and backbone.config.generates:
        return None
    return torch.stack([getattr(norm, name) for norm in backbone.model.norms()]).float()


class Norm(Part):
    """Norms of one slice, weight [G, norms, hidden], bias [G, biased norms, hidden]; what the task leaves alone is the
    backbone's."""

    has_norm = True

    def __init__(self, spec: NormSpec, tensors: Tensors, context: Context) -> None:
        self._segments = context.segments
        self._places = {norm: place for place, norm in enumerate(spec.biased(context.backbone.config))}
        weight = self._values("weight", tensors, context)
        assert weight is not None, "every norm has a weight"
        self._weight, self._bias = weight, self._values("bias", tensors, context)

    @staticmethod
    def _values(name: str, tensors: Tensors, context: Context) -> Tensor | None:
        dtype = context.dtype
        if name in tensors:
            return tensors[name].to(dtype)
        base = backbone_norms(name, context.backbone)
        return None if base is None else base.to(dtype).expand(context.segments.num_groups, -1, -1)

    def norm(self, index: int, x: Tensor, base: Reweighted, residual: Tensor | None = None) -> Tensor:
        place = self._places.get(index)
        bias = None if self._bias is None or place is None else self._bias[:, place]
        return self._segments.norm(x, self._weight[:, index], bias, base, residual)
